package enroll

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

// Whether a node is secure follows from its flags and from who reaches its port.
func TestMode(t *testing.T) {
	for _, tc := range []struct {
		secure, insecure bool
		listen           string
		strict           bool
		want             bool
		err              bool
	}{
		{false, false, "127.0.0.1:7400", true, false, false},
		{false, false, "[::1]:7400", true, false, false},
		{false, false, "localhost:7400", true, false, false},
		{false, false, "10.0.0.1:7400", true, true, false},
		{false, false, "0.0.0.0:7400", true, true, false},
		{false, false, ":7400", true, true, false},
		{false, false, "[::]:7400", true, true, false},
		{false, false, "n1.example.com:7400", true, true, false},
		{false, true, "10.0.0.1:7400", true, false, false},
		{false, true, "127.0.0.1:7400", true, false, false},
		{true, false, "127.0.0.1:7400", true, true, false},
		{true, false, "10.0.0.1:7400", true, true, false},
		{true, true, "10.0.0.1:7400", true, false, true},
		{false, false, "10.0.0.1:7400", false, false, false},
		{true, false, "127.0.0.1:7400", false, true, false},
		{false, true, "10.0.0.1:7400", false, false, false},
		{true, true, "127.0.0.1:7400", false, false, true},
	} {
		got, err := Mode(tc.secure, tc.insecure, tc.listen, tc.strict)
		if got != tc.want || (err != nil) != tc.err {
			t.Errorf("%+v: %v, %v", tc, got, err)
		}
	}
}

// The join token comes from one place: a flag, the environment, or the directory with the keys.
func TestFlags(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	made, err := MakeKeys(dir, "c1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{keys.ClusterFile, keys.CAFile, keys.JoinTokenFile} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
	}
	if _, err := MakeKeys(dir, "c1", time.Now()); err == nil || !strings.Contains(err.Error(), "holds keys already") {
		t.Errorf("keys were overwritten: %v", err)
	}
	tok, err := keys.ReadTokenFile(keys.JoinToken, filepath.Join(dir, keys.JoinTokenFile))
	if err != nil || tok.CA.String() != made.CA {
		t.Fatalf("%v, %v", tok, err)
	}
	a, err := keys.ReadAuthority(dir)
	if err != nil || a.JoinToken(tok.ID) != tok {
		t.Fatalf("the token is not of these keys: %v", err)
	}
	text, file := tok.Text(), filepath.Join(dir, keys.JoinTokenFile)
	join := []string{"10.0.0.1:7400"}
	for name, tc := range map[string]struct {
		flags Flags
		env   map[string]string
		join  []string
		err   string
	}{
		"flag":            {Flags{secure: true, token: text}, nil, join, ""},
		"file":            {Flags{secure: true, tokenFile: file}, nil, join, ""},
		"environment":     {Flags{secure: true}, map[string]string{"CARILLON_TOKEN": text}, join, ""},
		"file in it":      {Flags{secure: true}, map[string]string{"CARILLON_TOKEN_FILE": file}, join, ""},
		"keys":            {Flags{secure: true, keysFrom: dir}, nil, join, ""},
		"both":            {Flags{secure: true, token: text, tokenFile: file}, nil, join, "give one of them"},
		"mistyped":        {Flags{secure: true, token: text[:len(text)-1] + "A"}, nil, join, "typing error"},
		"not secure":      {Flags{token: text}, nil, join, "only a secure cluster"},
		"an API token":    {Flags{secure: true, token: "ct1.a.b.c"}, nil, join, "a join token is needed"},
		"the environment": {Flags{secure: true}, map[string]string{"CARILLON_TOKEN": "x"}, nil, ""},
	} {
		got, err := tc.flags.Settings(func(k string) string { return tc.env[k] }, "10.0.0.2:7400", tc.join != nil)
		switch {
		case tc.err != "":
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil || tc.join != nil && got.Token != tok || !got.Secure:
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
