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
		secure, insecure  bool
		listen, advertise string
		want, err         bool
	}{
		{listen: "127.0.0.1:7400"},
		{listen: "127.8.0.1:7400"},
		{listen: "[::1]:7400"},
		{listen: "[::ffff:127.0.0.1]:7400"},
		{listen: "localhost:7400"},
		{listen: "127.0.0.1:7400", advertise: "localhost:7400"},
		{listen: "10.0.0.1:7400", want: true},
		{listen: "0.0.0.0:7400", want: true},
		{listen: ":7400", want: true},
		{listen: "[::]:7400", want: true},
		{listen: "[fe80::1%eth0]:7400", want: true},
		{listen: "n1.example.com:7400", want: true},
		{listen: "localhost.example.com:7400", want: true},
		{listen: "127.0.0.1.example.com:7400", want: true},
		// Something passes on what comes from elsewhere: a port of a container, a proxy.
		{listen: "127.0.0.1:7400", advertise: "10.0.0.1:7400", want: true},
		{listen: "127.0.0.1:7400", advertise: "n1.example.com:7400", want: true},
		{listen: "0.0.0.0:7400", advertise: "127.0.0.1:7400", want: true},
		{insecure: true, listen: "10.0.0.1:7400"},
		{insecure: true, listen: "0.0.0.0:7400", advertise: "n1:7400"},
		{insecure: true, listen: "127.0.0.1:7400"},
		{secure: true, listen: "127.0.0.1:7400", want: true},
		{secure: true, listen: "10.0.0.1:7400", want: true},
		{secure: true, insecure: true, listen: "10.0.0.1:7400", err: true},
		{secure: true, insecure: true, listen: "127.0.0.1:7400", err: true},
	} {
		got, err := Mode(tc.secure, tc.insecure, tc.listen, tc.advertise)
		if got != tc.want || (err != nil) != tc.err {
			t.Errorf("%+v: %v, %v", tc, got, err)
		}
	}
}

// The line that others join with names an address that they can dial, and holds the secret on a terminal only.
func TestJoinLine(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	if _, err := MakeKeys(dir, "c1", time.Now()); err != nil {
		t.Fatal(err)
	}
	tok, err := keys.ReadTokenFile(keys.JoinToken, filepath.Join(dir, keys.JoinTokenFile))
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]string{
		"10.0.0.1:7400":  "--join 10.0.0.1:7400 --token",
		"n1:7400":        "--join n1:7400 --token",
		"127.0.0.1:7400": "--join 127.0.0.1:7400 --secure --token",
		"[::]:7400":      "--join " + host + ":7400 --token",
	} {
		line, shown := JoinLine(dir, addr, false), JoinLine(dir, addr, true)
		if !strings.Contains(line, want+"-file "+dir) || strings.Contains(line, tok.Text()) {
			t.Errorf("%s: %s", addr, line)
		}
		if !strings.Contains(shown, want+" "+tok.Text()) {
			t.Errorf("%s, on a terminal: %s", addr, shown)
		}
	}
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(dir, keys.JoinTokenFile), old, old); err != nil {
		t.Fatal(err)
	}
	if line := JoinLine(dir, "n1:7400", true); line != "" {
		t.Errorf("after an hour: %s", line)
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
	mistyped := text[:len(text)-1] + "A"
	if mistyped == text {
		mistyped = text[:len(text)-1] + "B"
	}
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
		"mistyped":        {Flags{secure: true, token: mistyped}, nil, join, "typing error"},
		"by default":      {Flags{token: text}, nil, join, ""},
		"not secure":      {Flags{insecure: true, token: text}, nil, join, "only a secure cluster"},
		"an API token":    {Flags{secure: true, token: "ct1.a.b.c"}, nil, join, "needs a join token"},
		"the environment": {Flags{secure: true}, map[string]string{"CARILLON_TOKEN": "x"}, nil, ""},
	} {
		got, err := tc.flags.Settings(func(k string) string { return tc.env[k] }, "10.0.0.2:7400", "", tc.join != nil)
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
