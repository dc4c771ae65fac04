// Package terminal is how the command line writes to a screen: nothing that comes from outside is obeyed.
package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// The colours that this program uses. No others are let through.
const (
	Plain  = "\x1b[39m"
	Red    = "\x1b[31m"
	Green  = "\x1b[32m"
	Yellow = "\x1b[33m"
	Cyan   = "\x1b[36m"
	Reset  = "\x1b[0m"
)

// Filter writes to a screen. A terminal obeys what it is sent: names, errors and output that come from outside could
// set its title, clear it, answer for its user or hide what is shown. Everything is therefore written out but text,
// line ends, tabs and the colours of this program. Into a pipe or a file everything goes as it is.
type Filter struct {
	w    io.Writer
	left []byte // the beginning of a rune or of a colour: the rest comes with the next write
	cr   bool   // the last one was a carriage return, which began a new line
}

// To filters what is written to w.
func To(w io.Writer) *Filter { return &Filter{w: w} }

// Screen is where to write for w: through the filter if it is a terminal.
func Screen(w *os.File) io.Writer {
	if term.IsTerminal(int(w.Fd())) {
		return &Filter{w: w}
	}
	return w
}

// File is what stands behind a writer, if it is a file.
func File(w io.Writer) (f *os.File, ok bool) {
	if t, is := w.(*Filter); is {
		w = t.w
	}
	f, ok = w.(*os.File)
	return f, ok
}

// Is says whether a writer is a terminal.
func Is(w io.Writer) bool {
	f, ok := File(w)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Raw is the way to a screen for what this program itself draws, and for programs that it starts.
func Raw(w io.Writer) io.Writer {
	if t, ok := w.(*Filter); ok {
		return t.w
	}
	return w
}

func (t *Filter) Write(p []byte) (int, error) {
	in := slices.Concat(t.left, p)
	out := make([]byte, 0, len(in))
	for len(in) > 0 {
		if in[0] == '\x1b' {
			code, partial := colour(in)
			if partial {
				break
			}
			if code != "" {
				out, in, t.cr = append(out, code...), in[len(code):], false
				continue
			}
		}
		if !utf8.FullRune(in) {
			break
		}
		r, n := utf8.DecodeRune(in)
		switch {
		case r == '\n' && t.cr: // the second half of a line end
		case r == '\n' || r == '\r':
			out = append(out, '\n')
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, in[0])
		case r == '\t' || !Disguised(r):
			out = append(out, in[:n]...)
		case r < 0x80:
			out = fmt.Appendf(out, `\x%02x`, r)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		t.cr, in = r == '\r', in[n:]
	}
	t.left = bytes.Clone(in)
	if _, err := t.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// colour is the colour that a text begins with, or whether it may become one with what follows.
func colour(b []byte) (code string, partial bool) {
	for _, c := range []string{Plain, Red, Green, Yellow, Cyan, Reset} {
		if bytes.HasPrefix(b, []byte(c)) {
			return c, false
		}
		partial = partial || strings.HasPrefix(c, string(b))
	}
	return "", partial
}

// Disguised says that a rune is not what is seen of it: control characters, and those that turn the direction of a text
// or take no room.
func Disguised(r rune) bool {
	return unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' ||
		r == '\ufeff' || r == '\u200b'
}
