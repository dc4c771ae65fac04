package mask

import "io"

// Writer masks what passes through it, also values that are split over writes: it holds back what may be the beginning
// of one until it knows, and no more than that. It is not safe for concurrent use.
type Writer struct {
	m    *Masker
	to   io.Writer
	held []byte
	// covered is how many of the held bytes belong to a value that began before them, and run that the last byte passed
	// on did: its replacement was written.
	covered int
	run     bool
	out     []byte
}

// Writer makes one that passes on to another.
func (m *Masker) Writer(to io.Writer) *Writer { return &Writer{m: m, to: to} }

// Write takes all of p, unless what it passes on to fails.
func (w *Writer) Write(p []byte) (int, error) {
	if w.m == nil {
		return w.to.Write(p)
	}
	w.held = append(w.held, p...)
	if err := w.pass(len(w.held) - w.m.pending(w.held)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush passes on what is held back: there is no more to come.
func (w *Writer) Flush() error {
	if w.m == nil {
		return nil
	}
	return w.pass(len(w.held))
}

// pass lets go of the first n bytes that are held.
func (w *Writer) pass(n int) error {
	covered := w.m.cover(w.held, w.covered)
	w.out = w.out[:0]
	for i, c := range w.held[:n] {
		in := covered != nil && covered[i]
		if in && !w.run {
			w.out = append(w.out, Replacement...)
		} else if !in {
			w.out = append(w.out, c)
		}
		w.run = in
	}
	// A value that began in what was let go and ends in what is held is not found again there. Its bytes are the first
	// of those; what else is covered will be found again, so counting it as well does no harm.
	w.covered = 0
	for covered != nil && n+w.covered < len(covered) && covered[n+w.covered] {
		w.covered++
	}
	rest := copy(w.held, w.held[n:])
	clear(w.held[rest:])
	w.held = w.held[:rest]
	if len(w.out) == 0 {
		return nil
	}
	_, err := w.to.Write(w.out)
	return err
}
