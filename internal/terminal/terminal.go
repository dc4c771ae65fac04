// Package terminal is how the command line writes to a screen: nothing that comes from outside is obeyed.
package terminal

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// The colours of this program, as it writes them: marks that a Filter replaces by the codes of a terminal. A mark has a
// number that is drawn when the process starts, so no text from outside contains one.
var (
	Plain  = mark(39)
	Red    = mark(31)
	Green  = mark(32)
	Yellow = mark(33)
	Cyan   = mark(36)
	Reset  = mark(0)
)

var drawn = func() uint64 {
	var b [8]byte
	rand.Read(b[:]) //nolint:errcheck // crypto/rand ends the process rather than fail
	return binary.BigEndian.Uint64(b[:])
}()

// mark has the form of the code that it stands for: what measures or strips one treats the other alike.
func mark(code int) string { return fmt.Sprintf("\x1b[%d;%dm", drawn, code) }

// Filter writes to a screen. A terminal obeys what it is sent: names, errors and output that come from outside could
// set its title, clear it, answer for its user or hide what is shown. CSI sequences (colours, moves of the cursor) are
// removed, and other control characters written out; line ends, tabs and the marks of this program's colours have their
// effect. Into a pipe or a file everything goes as it is.
type Filter struct {
	w     io.Writer
	marks bool   // marks stay marks: another filter replaces them
	left  []byte // the beginning of a rune or of a mark: the rest comes with the next write
	csi   bool   // inside a CSI sequence, which is left out up to its last byte
	cr    bool   // the last one was a carriage return, which began a new line
}

// Shown is a text as a screen shows it. Marks stay.
func Shown(s string) string {
	var out strings.Builder
	_, _ = (&Filter{w: &out, marks: true}).Write([]byte(s)) // a Builder does not fail
	return out.String()
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
		if t.csi && in[0] >= ' ' && in[0] <= '~' {
			t.csi, in = in[0] < '@', in[1:] // parameters come before @, and one byte from there on ends it
			continue
		}
		t.csi = false
		if in[0] == '\x1b' {
			m, code, partial := colour(in)
			if partial {
				break
			}
			if m != "" {
				if t.marks {
					code = m
				}
				out, in, t.cr = append(out, code...), in[len(m):], false
				continue
			}
			if in[1] == '[' { // a lone escape is the beginning of a mark
				t.csi, in = true, in[2:]
				continue
			}
		}
		if !utf8.FullRune(in) {
			break
		}
		r, n := utf8.DecodeRune(in)
		switch {
		case r == csi || n == 1 && in[0] == csi:
			t.csi, in = true, in[n:]
			continue
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

// csi begins a CSI sequence, as does an escape with a bracket.
const csi = 0x9b

// colour is the mark that a text begins with and the code for it, or whether it may become one with what follows.
func colour(b []byte) (m, code string, partial bool) {
	for _, m := range []string{Plain, Red, Green, Yellow, Cyan, Reset} {
		if bytes.HasPrefix(b, []byte(m)) {
			return m, "\x1b[" + m[strings.IndexByte(m, ';')+1:], false
		}
		partial = partial || strings.HasPrefix(m, string(b))
	}
	return "", "", partial
}

// Disguised says that a rune is not what is seen of it: control characters, and those that turn the direction of a text
// or take no room.
func Disguised(r rune) bool {
	return unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' ||
		r == '\ufeff' || r == '\u200b'
}
