package mask_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/mask"
)

const awkward = `pä ss/w"o<r>d&+=%\x`

// Every form in which a value may be echoed is masked.
func TestForms(t *testing.T) {
	for _, v := range []string{"hunter2hunter2", awkward, "sixsix", "a b c d e f", "line one\nline two\nline three"} {
		m := mask.New(v)
		inJSON, err := json.Marshal(map[string]string{"v": v})
		if err != nil {
			t.Fatal(err)
		}
		texts := map[string]string{
			"raw": v, "query": url.QueryEscape(v), "path": url.PathEscape(v), "json": string(inJSON),
			"lower hex": strings.ToLower(url.QueryEscape(v)), "crlf": strings.ReplaceAll(v, "\n", "\r\n"),
		}
		for _, before := range []string{"", "u", "us", "usr", "user:"} {
			for _, after := range []string{"", "x", "xy", "xyz"} {
				for name, enc := range map[string]*base64.Encoding{"std": base64.StdEncoding, "url": base64.URLEncoding,
					"raw": base64.RawStdEncoding} {
					texts["base64 "+name+" "+before+after] = enc.EncodeToString([]byte(before + v + after))
				}
			}
		}
		for name, text := range texts {
			got := m.String("before " + text + " after")
			if !strings.Contains(got, mask.Replacement) || !strings.HasPrefix(got, "before ") ||
				!strings.HasSuffix(got, " after") {
				t.Errorf("%q, %s: %q", v, name, got)
			}
			if !strings.HasPrefix(name, "base64") && strings.Contains(got, v) {
				t.Errorf("%q, %s: %q", v, name, got)
			}
			// Of base64 at most the characters at its ends are left, which are shared with what is beside the value.
			if left := len(got) - len("before  after") - len(mask.Replacement); name == "raw" && left != 0 ||
				strings.HasPrefix(name, "base64") && left > 16 {
				t.Errorf("%q, %s: %d bytes are left of it: %q", v, name, left, got)
			}
		}
	}
}

func TestNothingToMask(t *testing.T) {
	if m := mask.New("short", ""); m != nil {
		t.Error("a masker of values that cannot be masked")
	}
	var none *mask.Masker
	var b bytes.Buffer
	w := none.Writer(&b)
	if _, err := w.Write([]byte("text")); err != nil || w.Flush() != nil || b.String() != "text" ||
		none.String("text") != "text" || none.Longest() != 0 || none.Head("text") != "text" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// A value is found however it is split over writes, and nothing else is lost.
func TestSplitOverWrites(t *testing.T) {
	v := "aabaabaaab" // with borders, so that prefixes overlap
	m := mask.New(v, "baab-baab")
	for _, text := range []string{v, "a" + v, "aab" + v + "aab", v + v, v[:5] + v, v + " " + v[:9],
		"aabaab" + v[:4] + "baab-baab" + v, "aabaabaabaab-baabaabaabaaab", strings.Repeat("a", 40)} {
		want := m.String(text)
		for i := 0; i <= len(text); i++ {
			for j := i; j <= len(text); j++ {
				var b bytes.Buffer
				w := m.Writer(&b)
				for _, part := range []string{text[:i], text[i:j], text[j:]} {
					if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
						t.Fatal(n, err)
					}
					if !strings.HasPrefix(want, b.String()) {
						t.Fatalf("%q after %q: %q, want %q", text, part, b.String(), want)
					}
				}
				if err := w.Flush(); err != nil || b.String() != want {
					t.Fatalf("%q split at %d and %d: %q, want %q", text, i, j, b.String(), want)
				}
			}
		}
	}
}

// What cannot be a value is passed on at once: those who watch do not wait for it.
func TestHoldsBackNoMoreThanNeeded(t *testing.T) {
	var b bytes.Buffer
	w := mask.New("secret-value").Writer(&b)
	for _, step := range []struct{ write, seen string }{
		{"hello\n", "hello\n"}, {"sec", "hello\n"}, {"ond\n", "hello\nsecond\n"}, {"secret-valu", "hello\nsecond\n"},
		{"e!", "hello\nsecond\n***!"}} {
		if _, err := w.Write([]byte(step.write)); err != nil || b.String() != step.seen {
			t.Errorf("after %q: %q, %v, want %q", step.write, b.String(), err, step.seen)
		}
	}
}

// Of a text that was cut, no beginning of a value is left at the end.
func TestHead(t *testing.T) {
	v := "correct horse"
	m := mask.New(v)
	for n := range len(v) {
		if got := m.Head("it is " + v[:n]); got != "it is " {
			t.Errorf("%q", got)
		}
	}
	if got := m.Head("it is " + v + "."); got != "it is ***." {
		t.Errorf("%q", got)
	}
}

// Random texts of few letters, in random pieces: the pieces make no difference, and no value is left.
func TestPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	letters := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "ab"[r.IntN(2)]
		}
		return string(b)
	}
	for range 3000 {
		values := []string{letters(6 + r.IntN(4)), letters(6 + r.IntN(10))}
		m := mask.New(values...)
		text := letters(r.IntN(60)) + values[r.IntN(2)] + letters(r.IntN(20))
		checkPieces(t, m, values, text, r)
	}
}

func checkPieces(t *testing.T, m *mask.Masker, values []string, text string, r *rand.Rand) {
	t.Helper()
	want := m.String(text)
	for _, v := range values {
		if len(v) >= mask.MinLength && !strings.Contains(v, "*") && strings.Contains(want, v) {
			t.Fatalf("%q is left in %q of %q", v, want, text)
		}
	}
	var b bytes.Buffer
	w := m.Writer(&b)
	for rest := text; rest != ""; {
		n := 1 + r.IntN(min(len(rest), 7))
		if _, err := w.Write([]byte(rest[:n])); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if err := w.Flush(); err != nil || b.String() != want {
		t.Fatalf("values %q in %q: %q in pieces, %q as a whole", values, text, b.String(), want)
	}
}

func FuzzPieces(f *testing.F) {
	f.Add("hunter2", "it is hunter2, aHVudGVyMg==", uint64(1))
	f.Add(awkward, awkward+url.QueryEscape(awkward), uint64(2))
	f.Add("aaaaaaaa", strings.Repeat("a", 30), uint64(3))
	f.Fuzz(func(t *testing.T, value, text string, seed uint64) {
		checkPieces(t, mask.New(value), []string{value}, text, rand.New(rand.NewPCG(seed, 0)))
	})
}

func BenchmarkWriter(b *testing.B) {
	w := mask.New("a-token-of-usual-length-0123456789").Writer(discard{})
	line := []byte(strings.Repeat("one line of what a program says\n", 128))
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		w.Write(line) //nolint:errcheck // it takes everything
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Values that repeat themselves overlap themselves: all of their bytes are covered, and no others.
func TestValuesThatOverlapThemselves(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		value, text := make([]byte, mask.MinLength+random.IntN(6)), make([]byte, random.IntN(60))
		for _, b := range [][]byte{value, text} {
			for i := range b {
				b[i] = "ab"[random.IntN(8)/7]
			}
		}
		got, want := bytes.Clone(text), bytes.Clone(text)
		for i := range text {
			if bytes.HasPrefix(text[i:], value) {
				copy(want[i:], bytes.Repeat([]byte("*"), len(value)))
			}
		}
		if mask.New(string(value)).Blot(got); !bytes.Equal(got, want) {
			t.Fatalf("%q in %q: %q, want %q", value, text, got, want)
		}
	}
}

// The time that it takes does not grow with the length of a value that repeats itself.
func BenchmarkValueThatRepeatsItself(b *testing.B) {
	text := strings.Repeat("a", 1<<20)
	for _, n := range []int{64, 8192} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			m := mask.New(strings.Repeat("a", n))
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				m.String(text)
			}
		})
	}
}

// Values of too many lines would take seconds for each run. Nothing of them is shown, and nothing else either.
func TestTooManyLines(t *testing.T) {
	enough := many(4, mask.MaxLines/4, 6)
	m := mask.New(enough...)
	if got := m.String("a 000001 b 001023 c"); got != "a *** b *** c" {
		t.Errorf("as many lines as there may be: %q", got)
	}
	m = mask.New(append(enough, "one more")...)
	if got := m.String("a 000001 b"); got != "***" || m.String("x") != "***" || m.String("") != "" {
		t.Errorf("a whole text: %q, %q, %q", got, m.String("x"), m.String(""))
	}
	var b strings.Builder
	w := m.Writer(&b)
	for _, s := range []string{"a", " 000001", "\n", "b"} {
		if _, err := w.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil || b.String() != "***" || m.Head("abc") != "***" {
		t.Errorf("a stream: %q, %q, %v", b.String(), m.Head("abc"), err)
	}
	text := []byte("a 000001")
	if m.Blot(text); string(text) != "********" {
		t.Errorf("in place: %q", text)
	}
	for v, n := range map[string]int{"one": 1, "one\n": 1, "\n": 1, "one\r\ntwo": 2, "\n\na\n\nb\n": 2} {
		if mask.Lines(v) != n {
			t.Errorf("%q has %d lines", v, mask.Lines(v))
		}
	}
}
