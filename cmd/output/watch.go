package output

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/internal/wait"
)

// Watch shows something again and again.
type Watch struct {
	Choice *Choice
	Every  time.Duration
	Out    io.Writer
	Now    func() time.Time
	// Screen says how many lines the terminal has, and whether to draw on it in place; otherwise what has changed is
	// printed below what was.
	Screen func() (lines int, ok bool)
	// Draw writes a picture.
	Draw func(io.Writer) error
	// Passing says that an error is one to wait out: the node is away.
	Passing func(error) bool
	// Report says that a picture is not to be had, where there is no screen to say it on.
	Report func(error)
}

// Escape codes. Nothing is cleared before it is overwritten: that would flicker.
const (
	home      = "\x1b[H"
	lineEnd   = "\x1b[K\n" // clears what an older picture has there
	screenEnd = "\x1b[J"
	wrapOff   = "\x1b[?7l" // a line is a row
	wrapOn    = "\x1b[?7h"
)

// Run goes on until the context ends, which is no error, or a picture is not to be had.
func (w *Watch) Run(ctx context.Context) error {
	var last []byte // the last picture that there was
	var seen uint64 // what it was made of
	said := ""      // the last error, where there is no screen
	var lost, zero time.Time
	for {
		lines, onScreen := w.Screen()
		var page bytes.Buffer
		w.Choice.seen = 0
		to := io.Writer(&page)
		if onScreen {
			to = terminal.To(&page)
		}
		err := w.Draw(to)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !w.Passing(err) {
			return err
		}
		switch {
		case err == nil && onScreen:
			last, lost = page.Bytes(), zero
			err = w.draw(last, "", lines)
		case err == nil:
			if said = ""; last == nil || w.changed(seen, last, page.Bytes()) {
				err = w.print(last != nil, page.Bytes())
			}
			last, seen = page.Bytes(), w.Choice.seen
		case onScreen:
			if lost == zero {
				lost = w.Now()
			}
			note := fmt.Sprintf("no answer since %s, trying again: %s", lost.Format("15:04:05"), Line(err.Error()))
			err = w.draw(last, note, lines)
		default:
			if text := err.Error(); text != said {
				said = text
				w.Report(err)
			}
			err = nil
		}
		if err != nil {
			return err
		}
		if !wait.For(ctx, w.Every) {
			return nil
		}
	}
}

// changed compares what pictures are made of: "in 4s" is another text a second later, and the same answer.
func (w *Watch) changed(seen uint64, last, now []byte) bool {
	return !bytes.Equal(last, now) && (seen == 0 || seen != w.Choice.seen)
}

func (w *Watch) print(again bool, page []byte) error {
	switch {
	case !again || w.Choice.Form == FormJSON:
	case w.Choice.Form != FormYAML:
		page = append([]byte("\n"), page...)
	case !bytes.HasPrefix(page, []byte("---\n")):
		page = append([]byte("---\n"), page...)
	}
	_, err := w.Out.Write(page)
	return err
}

// draw puts a picture over the one before, in one write. What the screen has no room for is left out at the end: a
// screen that scrolls is not drawn in place.
func (w *Watch) draw(page []byte, note string, room int) error {
	lines := strings.SplitAfter(string(page), "\n")
	lines = lines[:len(lines)-1]
	var notes []string
	if note != "" {
		notes = []string{note}
	}
	if most := room - 1 - len(notes); room > 0 && len(lines) > most {
		most = max(0, most-1)
		notes = append([]string{fmt.Sprintf("… and %d lines more", len(lines)-most)}, notes...)
		lines = lines[:most]
	}
	var b strings.Builder
	b.WriteString(wrapOff + home)
	for _, l := range lines {
		b.WriteString(strings.TrimSuffix(l, "\n") + lineEnd)
	}
	for _, n := range notes {
		b.WriteString(n + lineEnd)
	}
	b.WriteString(screenEnd + wrapOn)
	_, err := io.WriteString(w.Out, b.String())
	return err
}
