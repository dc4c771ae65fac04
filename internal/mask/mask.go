// Package mask takes the values of secrets out of what a run leaves behind: its output, its errors, its answers.
package mask

import (
	"bytes"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// Replacement is what stands where a value stood. Values side by side leave one.
const Replacement = "***"

// MinLength is how long a value must be to be found: shorter ones would be found everywhere.
const MinLength = 6

// MaxLines is how many lines the values of one Masker may have together: each is a value by itself.
const MaxLines = 1024

// Lines is how many lines of a value are masked by themselves.
func Lines(v string) (n int) {
	for range lines(v) {
		n++
	}
	return max(1, n)
}

func lines(v string) iter.Seq[string] {
	return strings.FieldsFuncSeq(v, func(r rune) bool { return r == '\n' || r == '\r' })
}

// Masker knows some values and finds them in texts, as they are and as they look when they have passed through a URL,
// JSON or a header. It does not change, and may be used side by side; nil masks nothing.
//
// The values are searched for as they are, all at once. It is the text that is read in several ways (see view): so
// there need not be a pattern for each way to write a value, of which there are many.
type Masker struct {
	automaton *automaton
	longest   int // the length of the longest value
	class     [textViews][256]byte
	sextets   [64]bool // with these six bits begins a value
	all       bool     // they have too many lines: everything is masked
}

// New makes a masker of values; nil if there is none to be masked.
//
// It is best effort: a program that prints a value backwards, in hex or a letter a line is not held up by it.
func New(values ...string) *Masker {
	count := 0
	var patterns []string
	for _, v := range values {
		patterns = appendPatterns(patterns, v)
		n := 0
		for line := range lines(v) { // what prints a key adds its own line ends
			n++
			if len(line) < len(v) {
				patterns = appendPatterns(patterns, line)
			}
		}
		if count += max(1, n); count > MaxLines {
			return &Masker{all: true}
		}
	}
	if len(patterns) == 0 {
		return nil
	}
	slices.Sort(patterns)
	patterns = slices.Compact(patterns)
	m := &Masker{automaton: build(patterns), longest: len(slices.MaxFunc(patterns, byLength))}
	for c, node := range m.automaton.root {
		for kind := range m.class {
			if strings.IndexByte(escapes[kind], byte(c)) >= 0 {
				m.class[kind][c] = escape
			} else if node != 0 {
				m.class[kind][c] = begins
			}
		}
		if node != 0 {
			m.sextets[c>>2] = true
		}
	}
	return m
}

// appendPatterns appends what is searched for to find a value.
func appendPatterns(patterns []string, v string) []string {
	if len(v) < MinLength {
		return patterns
	}
	patterns = append(patterns, v)
	if strings.Contains(v, "+") && strings.Contains(v, " ") {
		// A form in which spaces became + and + stayed: what it was is not to be seen.
		patterns = append(patterns, strings.ReplaceAll(v, "+", " "))
	}
	if !utf8.ValidString(v) {
		patterns = append(patterns, string([]rune(v))) // as JSON has it, with U+FFFD
	}
	return patterns
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

// Longest is the most bytes that a value may take in a text, where JSON makes six of one: so much more than what is to
// be kept has to be read.
func (m *Masker) Longest() int {
	if m == nil {
		return 0
	}
	return 6 * m.longest
}

// String masks a whole text.
func (m *Masker) String(s string) string {
	switch {
	case m == nil || s == "":
		return s
	case m.all:
		return Replacement
	case len(s) < MinLength:
		return s
	}
	text, found := []byte(s), search{m: m}
	found.read(text, 0, true)
	if found.next(0).from >= int64(len(s)) {
		return s
	}
	out, _ := found.masked(nil, text, 0, false)
	return string(out)
}

// Blot overwrites values in a piece of a text, of which the length must stay.
func (m *Masker) Blot(text []byte) {
	if m == nil {
		return
	}
	found := search{m: m}
	if m.all {
		found.views[plain].found.add(0, int64(len(text)))
	} else {
		found.read(text, 0, true)
	}
	for at := int64(0); ; {
		next := found.next(at)
		if next.from >= int64(len(text)) {
			return
		}
		for i := max(at, next.from); i < next.to; i++ {
			text[i] = Replacement[0]
		}
		at = next.to
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
