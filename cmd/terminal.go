package cmd

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

// terminal writes to a screen. A terminal obeys what it is sent: names, errors and output that come from outside could
// set its title, clear it, answer for its user or hide what is shown. Everything is therefore written out but text,
// line ends, tabs and the colours of this program. Into a pipe or a file everything goes as it is.
type terminal struct {
	w    io.Writer
	left []byte // the beginning of a rune or of a colour: the rest comes with the next write
	cr   bool   // the last one was a carriage return, which began a new line
}

// screen is where to write for w: through the filter if it is a terminal.
func screen(w *os.File) io.Writer {
	if term.IsTerminal(int(w.Fd())) {
		return &terminal{w: w}
	}
	return w
}

// file is what stands behind a writer, if it is a file.
func file(w io.Writer) (f *os.File, ok bool) {
	if t, is := w.(*terminal); is {
		w = t.w
	}
	f, ok = w.(*os.File)
	return f, ok
}

// isTerminal says whether somebody reads along.
func isTerminal(w io.Writer) bool {
	f, ok := file(w)
	return ok && term.IsTerminal(int(f.Fd()))
}

// raw is the way to a screen for what this program itself draws, and for programs that it starts.
func raw(w io.Writer) io.Writer {
	if t, ok := w.(*terminal); ok {
		return t.w
	}
	return w
}

func (t *terminal) Write(p []byte) (int, error) {
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
		case r == '\t' || !disguised(r):
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
	for _, c := range []string{plain, red, green, yellow, cyan, reset} {
		if bytes.HasPrefix(b, []byte(c)) {
			return c, false
		}
		partial = partial || strings.HasPrefix(c, string(b))
	}
	return "", partial
}

// disguised says that a rune is not what is seen of it: control characters, and those that turn the direction of a text
// or take no room.
func disguised(r rune) bool {
	return unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' ||
		r == '\ufeff' || r == '\u200b'
}
