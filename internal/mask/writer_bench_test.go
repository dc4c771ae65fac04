package mask_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/mask"
)

// What is written byte by byte is looked at once, however long a value is that it may be the beginning of.
func TestByteByByte(t *testing.T) {
	m := mask.New(strings.Repeat("a", 8192))
	text := strings.Repeat("a", 1<<18) + "b" + strings.Repeat("a", 8191)
	var out strings.Builder
	w := m.Writer(&out)
	for i := range len(text) {
		if _, err := w.Write([]byte{text[i]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil || out.String() != m.String(text) || out.String() != "***b"+text[1<<18+1:] {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
}

// Texts of which much is escaped, or may be base64, and many values.
func BenchmarkWriterOfEscapes(b *testing.B) {
	one := []string{"a-token-of-usual-length-0123456789"}
	var many []string
	for i := range 32 {
		many = append(many, fmt.Sprintf("%c-token-of-usual-length-0123456789%d", 'a'+i%26, i))
	}
	for name, c := range map[string]struct {
		values []string
		line   string
	}{
		"JSON in JSON":      {one, `{\"level\":\"info\",\"message\":\"a line of a log\\n\",\"path\":\"\/a\/b\"} `},
		"base64":            {one, "bGluZSBvZiBhIHByb2dyYW0gdGhhdCBlbmNvZGVzIHdoYXQgaXQgc2F5cyBhcyBiYXNlNjQK"},
		"a URL":             {one, "GET /search?q=a%20line%20of%20a%20log%2Fand+more&page=%7B1%7D HTTP/1.1 200\n"},
		"lines, 32 secrets": {many, "one line of what a program says\n"},
	} {
		b.Run(name, func(b *testing.B) {
			w := mask.New(c.values...).Writer(discard{})
			text := []byte(strings.Repeat(c.line, 64))
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				w.Write(text) //nolint:errcheck // it takes everything
			}
		})
	}
}

func BenchmarkByteByByte(b *testing.B) {
	m := mask.New(strings.Repeat("a", 8192))
	b.SetBytes(1 << 16)
	for b.Loop() {
		w := m.Writer(discard{})
		for range 1 << 16 {
			w.Write([]byte("a")) //nolint:errcheck // it takes everything
		}
	}
}
