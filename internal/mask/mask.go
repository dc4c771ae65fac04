// Package mask takes the values of secrets out of what a run leaves behind: its output, its errors, its answers.
package mask

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// Replacement is what stands where a value stood. Values side by side leave one.
const Replacement = "***"

// MinLength is how long a value must be to be found: shorter ones would be found everywhere.
const MinLength = 6

// MaxLines is how many lines the values of one Masker may have together. Each line has some twenty forms, and all of
// them are searched for in all that a run leaves behind: 37,000 lines took seconds.
const MaxLines = 1024

// Lines is how many lines of a value are masked by themselves.
func Lines(v string) int {
	if lines := split(v); len(lines) > 1 {
		return len(lines)
	}
	return 1
}

func split(v string) []string {
	return strings.FieldsFunc(v, func(r rune) bool { return r == '\n' || r == '\r' })
}

// Masker knows the forms in which some values may show up. It does not change, and may be used side by side; nil masks
// nothing.
type Masker struct {
	forms []form
	all   bool // they have too many lines: everything is masked
}

// form is one way to write a value, with its borders: fail[i] is the length of the longest proper prefix of text[:i+1]
// that is also a suffix of it (Knuth, Morris, Pratt).
type form struct {
	text []byte
	fail []int
}

// New makes a masker of values; nil if there is none to be masked.
//
// It is best effort: a program that prints a value backwards, in hex or a letter a line is not held up by it.
func New(values ...string) *Masker {
	count := 0
	for _, v := range values {
		if count += Lines(v); count > MaxLines {
			return &Masker{all: true}
		}
	}
	var texts []string
	for _, v := range values {
		texts = append(texts, forms(v)...)
		if lines := split(v); len(lines) > 1 {
			for _, line := range lines { // what prints a key adds its own line ends
				texts = append(texts, forms(line)...)
			}
		}
	}
	slices.Sort(texts)
	m := &Masker{}
	for _, t := range slices.Compact(texts) {
		m.forms = append(m.forms, form{[]byte(t), borders(t)})
	}
	if len(m.forms) == 0 {
		return nil
	}
	return m
}

// forms are the ways in which a value is written as it passes through a program, a URL, JSON or a header.
func forms(v string) []string {
	if len(v) < MinLength {
		return nil
	}
	out := []string{v}
	// What is left as it is: by RFC 3986, by encodeURIComponent and encodeURI of JavaScript, by Go in a path, and with
	// the slashes of a path.
	for _, plain := range []string{"-_.~", "-_.~!*'()", "-_.~!*'();:@&=+$,/?#", "-_.~$&+=:@", "-_.~/"} {
		escaped := Percent(v, plain)
		form := strings.ReplaceAll(escaped, "%20", "+")
		out = append(out, escaped, lowerHex(escaped), form, lowerHex(form))
	}
	for _, html := range []bool{false, true} {
		text := quoted(v, html)
		out = append(out, text, strings.ReplaceAll(text, "/", `\/`))
	}
	for shift := range 3 {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			// Of what is encoded together with other text, the characters that depend on the value alone. At the end of
			// the text there may be padding, and at the end of the value a part of what follows.
			text := enc.EncodeToString(append(make([]byte, shift), v...))
			begin, end := (shift*8+5)/6, (shift+len(v))*8/6
			out = append(out, text[begin:end])
		}
	}
	return out
}

const upperDigits = "0123456789ABCDEF"

// Percent is a text with everything percent-encoded that is no letter, no digit and not in plain.
func Percent(s, plain string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(plain, c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(upperDigits[c>>4])
		b.WriteByte(upperDigits[c&15])
	}
	return b.String()
}

// lowerHex has the digits of a percent-encoded text in lower case.
func lowerHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
			i += 2
		}
	}
	return string(b)
}

// quoted is a text as it stands between the quotes of JSON.
func quoted(s string, html bool) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	if enc.Encode(s) != nil {
		return s
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}

func borders(s string) []int {
	fail := make([]int, len(s))
	for i, k := 1, 0; i < len(s); i++ {
		for k > 0 && s[i] != s[k] {
			k = fail[k-1]
		}
		if s[i] == s[k] {
			k++
		}
		fail[i] = k
	}
	return fail
}

// Longest is the length of the longest form: so much more than what is to be kept has to be read.
func (m *Masker) Longest() (n int) {
	if m == nil {
		return 0
	}
	for i := range m.forms {
		n = max(n, len(m.forms[i].text))
	}
	return n
}

// String masks a whole text.
func (m *Masker) String(s string) string {
	if m == nil || !m.all && len(s) < MinLength {
		return s
	}
	covered := m.cover([]byte(s), 0)
	if covered == nil {
		return s
	}
	var b strings.Builder
	run := false
	for i := range len(s) {
		if covered[i] && !run {
			b.WriteString(Replacement)
		} else if !covered[i] {
			b.WriteByte(s[i])
		}
		run = covered[i]
	}
	return b.String()
}

// Blot overwrites values in a piece of a text, of which the length must stay.
func (m *Masker) Blot(text []byte) {
	if m == nil {
		return
	}
	for i, covered := range m.cover(text, 0) {
		if covered {
			text[i] = Replacement[0]
		}
	}
}

// Head masks the beginning of a text of which there is more: what may be the beginning of a value at its end is left
// out.
func (m *Masker) Head(s string) string {
	var b bytes.Buffer
	w := m.Writer(&b)
	w.Write([]byte(s)) //nolint:errcheck // a buffer takes everything
	return b.String()
}

// cover says which bytes belong to a value, besides the first ones, which are known to; nil: none does.
func (m *Masker) cover(text []byte, first int) []bool {
	var covered []bool
	mark := func(from, to int) {
		if covered == nil {
			covered = make([]bool, len(text))
		}
		for i := from; i < to; i++ {
			covered[i] = true
		}
	}
	if m.all {
		first = len(text)
	}
	if first > 0 {
		mark(0, first)
	}
	for f := range m.forms {
		form := &m.forms[f]
		for from := 0; ; {
			i := bytes.Index(text[from:], form.text)
			if i < 0 {
				break
			}
			from += i
			mark(from, from+len(form.text))
			from = form.overlaps(text, from+len(form.text), mark)
		}
	}
	return covered
}

// overlaps marks the occurrences that begin in one which ends at a place, or in what may be the beginning of another,
// and returns where the next one may begin. It looks at each byte once. To search again from the second byte of each
// would, for a value that repeats itself, take the time of the value for every byte of the text.
func (f *form) overlaps(text []byte, at int, mark func(from, to int)) int {
	done, k := at, f.fail[len(f.text)-1]
	for ; k > 0 && at < len(text); at++ {
		for k > 0 && text[at] != f.text[k] {
			k = f.fail[k-1]
		}
		if text[at] == f.text[k] {
			k++
		}
		if k == len(f.text) {
			mark(max(done, at+1-k), at+1)
			done, k = at+1, f.fail[k-1]
		}
	}
	return at - k
}

// pending is how many bytes at the end of a text may be the beginning of a value.
func (m *Masker) pending(text []byte) (n int) {
	for f := range m.forms {
		form := &m.forms[f]
		k := 0
		for _, c := range text[max(0, len(text)-len(form.text)+1):] {
			for k > 0 && c != form.text[k] {
				k = form.fail[k-1]
			}
			if c == form.text[k] {
				k++
			}
		}
		n = max(n, k)
	}
	return n
}
