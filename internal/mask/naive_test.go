package mask_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/internal/mask"
)

// letter is a byte that some part of a text stands for.
type letter struct {
	c        byte
	from, to int
}

// readings are all ways in which a text may be read, each written as simply as can be.
func readings(text string) (all [][]letter) {
	var raw []letter
	for i := range len(text) {
		raw = append(raw, letter{text[i], i, i + 1})
	}
	all = append(all, raw, unpercent(text, false), unpercent(text, true), unjson(text))
	for begin := 0; begin < len(text); begin++ {
		end := begin
		for end < len(text) && strings.IndexByte(alphabet, text[end]) >= 0 {
			end++
		}
		if end > begin {
			for way := range 4 {
				all = append(all, unbase64(text, begin, end, way))
			}
			begin = end
		}
	}
	return all
}

func unpercent(text string, plus bool) (out []letter) {
	for i := 0; i < len(text); i++ {
		l := letter{text[i], i, i + 1}
		if i+3 <= len(text) && text[i] == '%' {
			if c, err := url.PathUnescape(text[i : i+3]); err == nil {
				l = letter{c[0], i, i + 3}
			}
		}
		if plus && text[i] == '+' {
			l.c = ' '
		}
		out = append(out, l)
		i = l.to - 1
	}
	return out
}

func unjson(text string) (out []letter) {
	unit := func(i int) (rune, bool) {
		if i+6 > len(text) || text[i:i+2] != `\u` {
			return 0, false
		}
		n, err := strconv.ParseUint(text[i+2:i+6], 16, 16)
		return rune(n), err == nil
	}
	for i := 0; i < len(text); {
		decoded, size := text[i:i+1], 1
		if r, ok := unit(i); ok {
			size = 6
			if second, ok := unit(i + 6); ok && utf16.DecodeRune(r, second) != utf8.RuneError {
				r, size = utf16.DecodeRune(r, second), 12
			}
			decoded = string(r) // half of a pair becomes U+FFFD
		} else if i+2 <= len(text) && text[i] == '\\' && text[i+1] != 'u' {
			var s string
			if json.Unmarshal([]byte(`"`+text[i:i+2]+`"`), &s) == nil {
				decoded, size = s, 2
			}
		}
		for n := range len(decoded) {
			out = append(out, letter{decoded[n], i, i + size})
		}
		i += size
	}
	return out
}

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"

// unbase64 reads a run of base64 in which groups of four begin at way, modulo four. A byte covers the characters that
// depend on it, but not the one that it shares with the byte before it.
func unbase64(text string, begin, end, way int) (out []letter) {
	sextet := func(i int) int {
		n := strings.IndexByte(alphabet, text[i])
		if n >= 64 {
			n -= 2
		}
		return n
	}
	for i := begin + 1; i < end; i++ {
		pair := sextet(i-1)<<6 | sextet(i)
		switch (i - begin - way + 4) % 4 {
		case 1:
			out = append(out, letter{byte(pair >> 4), i - 1, i + 1})
		case 2:
			out = append(out, letter{byte(pair >> 2), i, i + 1})
		case 3:
			out = append(out, letter{byte(pair), i, i + 1})
		}
	}
	return out
}

// naive masks byte by byte what belongs to one of some values, in any reading.
func naive(text string, values ...string) []byte {
	var patterns []string
	for _, v := range values {
		lines := strings.FieldsFunc(v, func(r rune) bool { return r == '\n' || r == '\r' })
		for _, p := range append(lines, v) {
			if len(p) >= mask.MinLength {
				patterns = append(patterns, p, string([]rune(p)))
				if strings.Contains(p, " ") {
					patterns = append(patterns, strings.ReplaceAll(p, "+", " "))
				}
			}
		}
	}
	out := []byte(text)
	for _, letters := range readings(text) {
		decoded := make([]byte, len(letters))
		for i, l := range letters {
			decoded[i] = l.c
		}
		for _, p := range patterns {
			for i := range decoded {
				if bytes.HasPrefix(decoded[i:], []byte(p)) {
					from, to := letters[i].from, letters[i+len(p)-1].to
					copy(out[from:to], bytes.Repeat([]byte("*"), to-from))
				}
			}
		}
	}
	return out
}

// written are the ways in which programs write a value that are known; encoded is base64 of it, with other text.
func written(v string) (forms, encoded []string) {
	quoted := func(escapeHTML bool) string {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(escapeHTML)
		if e.Encode(v) != nil {
			return v
		}
		return strings.TrimSuffix(b.String(), "\n")
	}
	var ascii strings.Builder // as Python's json.dumps does it
	for _, c := range utf16.Encode([]rune(v)) {
		if c < 0x80 {
			ascii.WriteByte(byte(c))
		} else {
			fmt.Fprintf(&ascii, `\u%04x`, c)
		}
	}
	forms = []string{v, url.QueryEscape(v), url.PathEscape(v), strings.ReplaceAll(url.PathEscape(v), "%20", "+"),
		strings.ToLower(url.QueryEscape(v)), mask.Percent(v, ""), mask.Percent(v, "-_.~!*'();:@&=+$,/?#"),
		strings.ReplaceAll(mask.Percent(v, "-_.~!*'();:@&=+$,/?#"), "%20", "+"),
		quoted(false), quoted(true), strings.ReplaceAll(quoted(true), "/", `\/`), html.UnescapeString(ascii.String())}
	for _, before := range []string{"", "u", "us", "usr"} {
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
			for _, after := range []string{"", "xyz"} {
				encoded = append(encoded, enc.EncodeToString([]byte(before+v+after)))
			}
		}
	}
	return forms, encoded
}

// same holds a masker to the naive one, on a whole text and in pieces.
func same(t *testing.T, text string, r *rand.Rand, values ...string) {
	t.Helper()
	m := mask.New(values...)
	got, want := []byte(text), naive(text, values...)
	if m.Blot(got); !bytes.Equal(got, want) {
		t.Fatalf("%q in %q:\n%q, want\n%q", values, text, got, want)
	}
	checkPieces(t, m, nil, text, r)
}

// Values of awkward bytes are found in everything that is written of them, by themselves and beside each other, cut and
// mixed; and nothing else is masked.
func TestSameAsTheNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	pieces := []string{"a", "b", "aa", "ab", " ", "+", "%", "/", `\`, `"`, "<", ">", "é", "😀", "\n", "\xff", "=", "%4", `\u`,
		"41", "n", "ud83d", "-", "_", "\x00", "Q"}
	some := func(n int) string {
		var b strings.Builder
		for b.Len() < n {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		return b.String()
	}
	for range 3000 {
		values := []string{some(mask.MinLength + r.IntN(12)), some(mask.MinLength + r.IntN(4))}
		if r.IntN(2) == 0 {
			values[1] = values[0][r.IntN(2):] + values[0] // it overlaps itself and the other
		}
		var text strings.Builder
		for range 1 + r.IntN(4) {
			forms, encoded := written(values[r.IntN(2)])
			forms = append(forms, encoded...)
			form := forms[r.IntN(len(forms))]
			if r.IntN(3) == 0 {
				form = form[r.IntN(len(form)):]
			}
			if r.IntN(3) == 0 {
				form = form[:r.IntN(len(form)+1)]
			}
			text.WriteString(form + some(r.IntN(6)))
		}
		same(t, text.String(), r, values...)
	}
}

// Each way to write a value whole is found whole: of base64 only characters at its ends may be left, which it shares.
func TestWhatIsWrittenIsFound(t *testing.T) {
	for _, v := range []string{"hunter2hunter2", awkward, "a+b c+d e", "naïve-pässwörd", "key 😀 key", "six\xffsix"} {
		m := mask.New(v)
		left := func(form string) string {
			text := []byte("<" + form + ">")
			m.Blot(text)
			return strings.Trim(string(bytes.ReplaceAll(text, []byte("*"), nil)), `<"=>`)
		}
		forms, encoded := written(v)
		for _, form := range forms {
			if rest := left(form); rest != "" {
				t.Errorf("%q as %q: %q is left", v, form, rest)
			}
		}
		for _, form := range encoded { // up to six characters around it, and two that are shared
			if rest := left(form); len(rest) > 8 {
				t.Errorf("%q as %q: %q is left", v, form, rest)
			}
		}
	}
	for text, v := range map[string]string{
		`{"k":"na\u00efve-key"}`:     "naïve-key",
		`"\ud83d\uDE00 smile"`:       "😀 smile",
		"na%c3%AFve-%6bey":           "naïve-key",
		"dG9rZW4tMS8_Pz8=":           "token-1/???",
		"eHRva2VuLTEvPz8_":           "token-1/???",
		`path\/to\u002fsecret`:       "path/to/secret",
		"a%20b+c d":                  "a b c d",
		"dG9rZW4tMS8/Pz8dG9rZW4tMS8": "token-1/???",
	} {
		got := []byte(text)
		if mask.New(v).Blot(got); bytes.Count(got, []byte("*")) < len(v) {
			t.Errorf("%q in %q: %q", v, text, got)
		}
	}
}

func FuzzSameAsTheNaive(f *testing.F) {
	f.Add("hunter2", "aHVudGVyMg== %68unter2", uint64(1))
	f.Add(awkward, url.QueryEscape(awkward)+awkward, uint64(2))
	f.Add("a+b c d", `a b\u0020c d`, uint64(3))
	f.Add("aaaaaaaa", strings.Repeat("a", 30)+"YWFhYWFhYWFh", uint64(4))
	f.Fuzz(func(t *testing.T, value, text string, seed uint64) {
		if len(text) < 2000 {
			same(t, text, rand.New(rand.NewPCG(seed, 0)), value)
		}
	})
}
