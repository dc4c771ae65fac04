package insight

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

// Without viewers there is one turn a second, at the pace of a simulated node: at that of its own it is nearly all that
// quiet days cost.
func TestFollowKeepsThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		for pace, want := range map[faultpoint.Pace]int{0: 600, 1: 600, 600: 1} {
			turns := 0
			b := New(Options{Source: &view.Source{Store: st, Now: func() int64 { return time.Now().UnixMilli() }}, Pace: pace,
				Logger: slog.New(slog.DiscardHandler), Stopping: func() bool { turns++; return false }})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute-time.Millisecond)
			b.Follow(ctx)
			cancel()
			if turns != want {
				t.Errorf("pace %d: %d turns in ten minutes, want %d", pace, turns, want)
			}
		}
	})
}

// A viewer that does not take its frames is told to go, and never waited for; the others get theirs.
func TestSlowViewersAreCutOff(t *testing.T) {
	var w viewers
	slow := &viewer{frames: make(chan []byte, viewerRoom), bye: make(chan string, 1)}
	quick := &viewer{frames: make(chan []byte, viewerRoom), bye: make(chan string, 1)}
	for _, v := range []*viewer{slow, quick} {
		if err := w.add(v); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 * viewerRoom {
		for _, v := range w.current() {
			v.give(fmt.Append(nil, i))
		}
		if got := string(<-quick.frames); got != fmt.Sprint(i) {
			t.Fatalf("frame %s, want %d", got, i)
		}
	}
	if why := <-slow.bye; why != "too_slow" || len(quick.bye) != 0 {
		t.Errorf("%q", why)
	}
	w.remove(slow)
	if len(w.current()) != 1 {
		t.Error("it is still fed")
	}
	w.end()
	if why := <-quick.bye; why != "stopping" {
		t.Errorf("%q", why)
	}
	if err := w.add(slow); job.CodeOf(err) != job.CodeUnavailable {
		t.Errorf("a stream of a node that stops: %v", err)
	}
}

func TestViewersAreBounded(t *testing.T) {
	var w viewers
	for range maxViewers {
		if err := w.add(&viewer{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.add(&viewer{}); job.CodeOf(err) != job.CodeUnavailable {
		t.Errorf("one too many: %v", err)
	}
}

func TestEventsAreLines(t *testing.T) {
	var out bytes.Buffer
	event(&out, "bye", 7, wire.ByeEvent{Reason: "a\nb"})
	if got := out.String(); got != "event: bye\nid: 7\ndata: {\"reason\":\"a\\nb\"}\n\n" || strings.Count(got, "\n") != 4 {
		t.Errorf("%q", got)
	}
}
