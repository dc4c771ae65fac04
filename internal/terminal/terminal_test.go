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
		"\x1b[31mfailed\x1b[0m":              "failed",
		"\x1b[8mhidden":                      "hidden",
		"\x1b[2J\x1b[Hgone":                  "gone",
		"\x1b[38;5;1mred\x1b[?25l\x1b[1 q":   "red",
		"\u009b2Jgone":                       "gone",
		"\x9b31mred":                         "red",
		"a\x1b[":                             "a",
		"a\x1b[31\nb":                        "a\nb",
		"a\x9b31日":                           "a日",
		"\x1b[\x1b[31mred":                   "red",
		"\x1b\x1b[31mred":                    `\x1bred`,
		"\x1b[3" + Red + "failed" + Reset:    "\x1b[31mfailed\x1b[0m",
		"\x1b[1;31mred":                      "red",
		"\x1b]0;owned\x07":                   `\x1b]0;owned\x07`,
		"\x1bP$q\x1b\\":                      `\x1bP$q\x1b\`,
		"\u009d0;owned\u009c":                `\u009d0;owned\u009c`,
		"\x90$q\x9c":                         `\x90$q\x9c`,
		"\x1bc":                              `\x1bc`,
		"safe\b\b\b\bevil\x7f\x00":           `safe\x08\x08\x08\x08evil\x7f\x00`,
		"gnp.\u202etxt.exe":                  `gnp.\u202etxt.exe`,
		"10 %\r20 %\r\n30 %\n":               "10 %\n20 %\n30 %\n",
		"line\u2028another\ufeff\u200b":      `line\u2028another\ufeff\u200b`,
		"\xe2\x82 cut, \xf0\x9f\x98\x80 not": `\xe2\x82 cut, 😀 not`,
	} {
		var whole, single, twice bytes.Buffer
		if _, err := To(&whole).Write([]byte(in)); err != nil || whole.String() != want {
			t.Errorf("%q is shown as %q, %v, want %q", in, whole.String(), err, want)
		}
		byByte := To(&single)
		for i := range len(in) {
			if n, err := byByte.Write([]byte(in[i : i+1])); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if single.String() != want {
			t.Errorf("%q written byte by byte is shown as %q, want %q", in, single.String(), want)
		}
		if _, err := To(&twice).Write([]byte(Shown(in))); err != nil || twice.String() != want {
			t.Errorf("%q in a cell is shown as %q, %v, want %q", in, twice.String(), err, want)
		}
	}
}

// However a text from outside is cut into writes, and wherever it stands among what this program writes, a terminal gets
// the program's own colours and nothing else to obey.
func FuzzTerminal(f *testing.F) {
	f.Add([]byte("a\x1b[31mb\x1b]0;x\x07\xe2\x82\xac"), 3)
	f.Add([]byte("\x9b8mhidden\x1b[3"), 1)
	f.Add([]byte("\x1bP\u009d0;x\x9c\x1b"), 2)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		cut = min(max(cut, 0), len(in))
		var out bytes.Buffer
		w := To(&out)
		for _, part := range [][]byte{[]byte(Red), in[:cut], in[cut:], []byte(Reset)} {
			w.Write(part)
		}
		text, ok := strings.CutPrefix(out.String(), "\x1b[31m")
		text, closed := strings.CutSuffix(text, "\x1b[0m")
		if !ok || !closed {
			t.Fatalf("%q took the colours along: %q", in, out.String())
		}
		for _, r := range text {
			if r != '\n' && r != '\t' && (Disguised(r) || r == utf8.RuneError && !bytes.ContainsRune(in, r)) {
				t.Fatalf("%q became %q", in, out.String())
			}
		}
	})
}
