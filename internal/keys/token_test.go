package keys_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

func someCA() keys.Hash {
	var h keys.Hash
	for i := range h {
		h[i] = byte(i + 1)
	}
	return h
}

func TestTokenComesBackAsItWas(t *testing.T) {
	for _, kind := range []keys.TokenKind{keys.JoinToken, keys.APIToken} {
		for _, ca := range []keys.Hash{{}, someCA()} {
			tok := keys.NewToken(kind, ca)
			got, err := keys.ParseToken(kind, " "+tok.Text()+"\n")
			if err != nil || got != tok {
				t.Errorf("%s: %v, %v", kind, got, err)
			}
			if !got.Sum().Equal(tok.Sum()) || got.Sum().Equal(keys.NewToken(kind, ca).Sum()) {
				t.Error("the sums do not tell tokens apart")
			}
			if !keys.TokenID(tok.ID) {
				t.Errorf("%q is not taken for an id", tok.ID)
			}
		}
	}
}

// Every text that differs from a token in one character, or was cut off, is told from one that is not known.
func TestTokenWithATypingError(t *testing.T) {
	text := keys.NewToken(keys.APIToken, someCA()).Text()
	for i := range text {
		if _, err := keys.ParseToken(keys.APIToken, text[:i]); err == nil {
			t.Errorf("cut off at %d it was taken", i)
		}
		for _, c := range "aZ9-.~é" {
			wrong := text[:i] + string(c) + text[i+1:]
			if wrong == text {
				continue
			}
			if _, err := keys.ParseToken(keys.APIToken, wrong); err == nil {
				t.Errorf("%q at %d was taken", c, i)
			}
		}
	}
}

func TestTokenErrorsNameTheRemedy(t *testing.T) {
	api := keys.NewToken(keys.APIToken, someCA()).Text()
	join := keys.NewToken(keys.JoinToken, someCA()).Text()
	parts := strings.Split(api, ".")
	last := map[bool]string{true: "B", false: "A"}[api[20] == 'A']
	for name, tc := range map[string]struct {
		text, says, remedy string
	}{
		"nothing":      {" ", "it is empty", "carillon token create"},
		"a word":       {"secret", "does not begin like a token", "carillon token create"},
		"another kind": {join, "it is a join token, but this needs an API token", "carillon token create"},
		"a later one":  {"ct2.a.b.c", `this version does not know tokens of the kind "ct2"`, "newer carillon"},
		"too long":     {"ct1." + strings.Repeat("a", 400), "404 characters", "token alone"},
		"too few":      {strings.Join(parts[:3], "."), "3 parts instead of 4", "copy all"},
		"hash":         {"ct1.abc." + parts[2] + "." + parts[3], "CA's hash is damaged", "copy all"},
		"id":           {"ct1." + parts[1] + ".a0b." + parts[3], "id is damaged", "copy all"},
		"cut secret":   {api[:len(api)-3], "45 characters instead of 48", "copy all"},
		"character":    {api[:len(api)-1] + "!", "a character that no secret has", "copy all"},
		"checksum":     {api[:20] + last + api[21:], "typing error", "copy it again"},
	} {
		_, err := keys.ParseToken(keys.APIToken, tc.text)
		e, ok := err.(*job.Error)
		if !ok || e.Field != "token" || !strings.Contains(e.Message, tc.says) || !strings.Contains(e.Remedy, tc.remedy) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && len(tc.text) > 60 && strings.Contains(err.Error(), parts[3][:10]) {
			t.Errorf("%s: the error tells the secret: %v", name, err)
		}
	}
}

func TestTokenIsNotPrinted(t *testing.T) {
	tok := keys.NewToken(keys.APIToken, someCA())
	secret := tok.Text()[strings.LastIndexByte(tok.Text(), '.')+1:]
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("token", "token", tok, "pointer", &tok)
	for _, s := range []string{fmt.Sprint(tok), fmt.Sprintf("%+v", tok), fmt.Sprintf("%#v", tok), fmt.Sprint(&tok),
		log.String()} {
		if strings.Contains(s, secret[:8]) || !strings.Contains(s, tok.ID) {
			t.Errorf("printed as %s", s)
		}
	}
	if b, err := json.Marshal(tok); err == nil {
		t.Errorf("marshalled as %s", b)
	}
}

func TestReadTokenFile(t *testing.T) {
	dir := t.TempDir()
	tok := keys.NewToken(keys.APIToken, someCA())
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(tok.Text()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := keys.ReadTokenFile(keys.APIToken, file); err != nil || got != tok {
		t.Errorf("%v, %v", got, err)
	}
	for path, says := range map[string]string{
		filepath.Join(dir, "none"): "no such file",
		dir:                        "it is empty",
	} {
		if _, err := keys.ReadTokenFile(keys.APIToken, path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := os.WriteFile(file, bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keys.ReadTokenFile(keys.APIToken, file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a large file: %v", err)
	}
}

func FuzzParseToken(f *testing.F) {
	for _, kind := range []keys.TokenKind{keys.JoinToken, keys.APIToken} {
		f.Add(keys.NewToken(kind, keys.Hash{}).Text())
		f.Add(keys.NewToken(kind, someCA()).Text())
	}
	f.Add("ct1...")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		for _, kind := range []keys.TokenKind{keys.JoinToken, keys.APIToken} {
			tok, err := keys.ParseToken(kind, text)
			if (err == nil) != (tok.ID != "") {
				t.Fatalf("%v with the error %v", tok, err)
			}
			if err == nil && tok.Text() != strings.TrimSpace(text) {
				t.Fatalf("%q is a second text of %q", text, tok.Text())
			}
		}
	})
}

// BenchmarkParseToken is what each request costs the node that is asked, and the leader.
func BenchmarkParseToken(b *testing.B) {
	text := keys.NewToken(keys.APIToken, keys.Hash{1}).Text()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := keys.ParseToken(keys.APIToken, text); err != nil {
			b.Fatal(err)
		}
	}
}
