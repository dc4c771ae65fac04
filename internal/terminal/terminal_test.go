package terminal

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTerminal(t *testing.T) {
	for in, want := range map[string]string{
		"plain text, 日本, é\tand more\n":      "plain text, 日本, é\tand more\n",
		Red + "failed" + Reset + "\n":        "\x1b[31mfailed\x1b[0m\n",
		"\x1b]0;owned\x07":                   `\x1b]0;owned\x07`,
		"\x1b[2J\x1b[H":                      `\x1b[2J\x1b[H`,
		"\x1b[8mhidden":                      `\x1b[8mhidden`,
		"\x1bP$q\x1b\\":                      `\x1bP$q\x1b\`,
		"\u009b2J":                           `\u009b2J`,
		"\x9b2J":                             `\x9b2J`,
		"safe\b\b\b\bevil\x7f\x00":           `safe\x08\x08\x08\x08evil\x7f\x00`,
		"gnp.\u202etxt.exe":                  `gnp.\u202etxt.exe`,
		"10 %\r20 %\r\n30 %\n":               "10 %\n20 %\n30 %\n",
		"line\u2028another\ufeff\u200b":      `line\u2028another\ufeff\u200b`,
		"\x1b\x1b[31m":                       `\x1b` + "\x1b[31m",
		"\xe2\x82 cut, \xf0\x9f\x98\x80 not": `\xe2\x82 cut, 😀 not`,
	} {
		var whole, single bytes.Buffer
		if _, err := (&Filter{w: &whole}).Write([]byte(in)); err != nil || whole.String() != want {
			t.Errorf("%q is shown as %q, %v, want %q", in, whole.String(), err, want)
		}
		byByte := &Filter{w: &single}
		for i := range len(in) {
			if n, err := byByte.Write([]byte(in[i : i+1])); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if single.String() != want {
			t.Errorf("%q written byte by byte is shown as %q, want %q", in, single.String(), want)
		}
	}
}

// However a text is cut into writes, a terminal gets nothing to obey but colours.
func FuzzTerminal(f *testing.F) {
	f.Add([]byte("a\x1b[31mb\x1b]0;x\x07\xe2\x82\xac"), 3)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		var out bytes.Buffer
		w := &Filter{w: &out}
		cut = min(max(cut, 0), len(in))
		w.Write(in[:cut])
		w.Write(in[cut:])
		text := out.String()
		for _, c := range []string{Plain, Red, Green, Yellow, Cyan, Reset} {
			text = strings.ReplaceAll(text, c, "")
		}
		for _, r := range text {
			if r != '\n' && r != '\t' && (Disguised(r) || r == utf8.RuneError && !bytes.ContainsRune(in, r)) {
				t.Fatalf("%q became %q", in, out.String())
			}
		}
	})
}
