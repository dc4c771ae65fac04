package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// watch shows pictures one after the other, one a second, and then ends. An error is a picture that is not to be had.
func watch(t *testing.T, form Form, lines int, onScreen bool, pictures ...any) (out, said string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var page, report bytes.Buffer
		c := &Choice{Form: form}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := 0
		w := Watch{Choice: c, Every: time.Second, Out: &page, Now: time.Now,
			Screen:  func() (int, bool) { return lines, onScreen },
			Passing: func(err error) bool { return strings.Contains(err.Error(), "refused") },
			Report:  func(err error) { fmt.Fprintln(&report, err) },
			Draw: func(to io.Writer) error {
				if n == len(pictures) {
					cancel()
					return context.Canceled
				}
				n++
				switch p := pictures[n-1].(type) {
				case error:
					return p
				case string:
					answer, text, _ := strings.Cut(p, "|")
					c.Saw([]byte(answer))
					_, err := io.WriteString(to, text)
					return err
				}
				return nil
			}}
		err = w.Run(ctx)
		out, said = page.String(), report.String()
	})
	return out, said, err
}

// In a pipe a copy comes when the answer is another one, not when it only looks otherwise a second later.
func TestWatchInAPipe(t *testing.T) {
	away := errors.New("connection refused")
	pictures := []any{"1|in 3s\n", "1|in 2s\n", away, away, "1|in 1s\n", "2|in 9s\n", "2|in 8s\n", away, "3|in 8s\n"}
	for form, want := range map[Form]string{
		FormTable: "in 3s\n\nin 9s\n",
		FormJSON:  "in 3s\nin 9s\n", FormYAML: "in 3s\n---\nin 9s\n", FormName: "in 3s\n\nin 9s\n",
	} {
		out, said, err := watch(t, form, 0, false, pictures...)
		if err != nil || out != want || said != "connection refused\nconnection refused\n" {
			t.Errorf("%s: %q, %q, %v, want %q", form, out, said, err, want)
		}
	}
}

// On a screen a picture is put over the one before in one write and never cleared first; one that is not to be had
// leaves the last one where it is, and a line says so.
func TestWatchOnAScreen(t *testing.T) {
	out, said, err := watch(t, FormTable, 4, true, "1|a\nb\n", errors.New("connection refused"), "2|a\nb\nc\nd\n")
	away := time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC).Local().Format("15:04:05")
	want := "\x1b[?7l\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J\x1b[?7h" +
		"\x1b[?7l\x1b[Ha\x1b[K\nb\x1b[K\nno answer since " + away + ", trying again: connection refused\x1b[K\n\x1b[J\x1b[?7h" +
		"\x1b[?7l\x1b[Ha\x1b[K\nb\x1b[K\n… and 2 lines more\x1b[K\n\x1b[J\x1b[?7h"
	if err != nil || said != "" || out != want {
		t.Errorf("%q, %q, %v, want\n%q", out, said, err, want)
	}
	if strings.Contains(out, "\x1b[2J") {
		t.Error("the screen is cleared")
	}
}

// What a node refuses ends a watch: it will not get better.
func TestWatchEnds(t *testing.T) {
	gone := errors.New("there is no such job")
	if out, said, err := watch(t, FormTable, 0, false, "1|a\n", gone, "2|b\n"); !errors.Is(err, gone) || out != "a\n" || said != "" {
		t.Errorf("%q %q %v", out, said, err)
	}
}
