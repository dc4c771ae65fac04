package mask

import "io"

// Writer masks what passes through it, also values that are split over writes: it holds back what may be the beginning
// of one until it knows, and no more than that. It is not safe for concurrent use.
type Writer struct {
	search search
	to     io.Writer
	held   []byte
	gone   int   // so many bytes of held were passed on
	base   int64 // how many bytes were passed on altogether
	in     bool  // the last of them belongs to a value: its replacement was written
	out    []byte
}

// Writer makes one that passes on to another.
func (m *Masker) Writer(to io.Writer) *Writer { return &Writer{search: search{m: m}, to: to} }

// Write takes all of p, unless what it passes on to fails.
func (w *Writer) Write(p []byte) (int, error) {
	switch m := w.search.m; {
	case m == nil:
		return w.to.Write(p)
	case m.all:
		if !w.in && len(p) > 0 {
			w.in = true
			if _, err := io.WriteString(w.to, Replacement); err != nil {
				return 0, err
			}
		}
		return len(p), nil
	}
	text := p
	if len(w.held) > 0 {
		w.held = append(w.held, p...)
		text = w.held[w.gone:]
	}
	w.search.read(text, w.base, false)
	n := int(w.search.settled() - w.base)
	text, rest := text[:n], text[n:]
	err := w.pass(text)
	if len(w.held) == 0 {
		w.held = append(w.held, rest...)
	} else {
		w.drop(n)
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush passes on what is held back: there is no more to come.
func (w *Writer) Flush() error {
	text := w.held[w.gone:]
	if len(text) == 0 {
		return nil
	}
	w.search.read(text, w.base, true)
	err := w.pass(text)
	w.drop(len(text))
	return err
}

// pass passes on the first bytes of what was not yet.
func (w *Writer) pass(text []byte) (err error) {
	if len(text) == 0 {
		return nil
	}
	if next := w.search.next(w.base); next.from >= w.base+int64(len(text)) {
		w.in = false
		_, err = w.to.Write(text) // as it is
	} else if w.out, w.in = w.search.masked(w.out[:0], text, w.base, w.in); len(w.out) > 0 {
		_, err = w.to.Write(w.out)
	}
	w.base += int64(len(text))
	return err
}

// drop removes what was passed on of what is held.
func (w *Writer) drop(n int) {
	clear(w.held[w.gone : w.gone+n])
	w.gone += n
	// Not with each write: what is held may be much more than what is written.
	if w.gone >= len(w.held)-w.gone {
		rest := copy(w.held, w.held[w.gone:])
		clear(w.held[rest:])
		w.held, w.gone = w.held[:rest], 0
	}
}
