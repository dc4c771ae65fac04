package scheduler

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// eventLog keeps which events were logged.
type eventLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *eventLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *eventLog) count(name string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(strings.ReplaceAll(l.text.String(), "\n", " "), " event="+name+" ")
}

func (w *world) events() *eventLog {
	l := &eventLog{}
	w.opts.Logger = slog.New(slog.NewTextHandler(l, nil))
	return l
}

// A hold is a line when it begins and one when it ends, however long it lasts.
func TestHoldIsTwoLines(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		l := w.events()
		w.lead()
		w.worker("w", 1, nil)
		w.create("@every 1s", nil)
		time.Sleep(5 * time.Second)
		if n := l.count("hold_begun") + l.count("hold_ended"); n != 0 {
			t.Fatalf("%d events of holds in good times", n)
		}
		w.clock.jump(time.Hour)
		time.Sleep(3 * time.Second)
		if b, e := l.count("hold_begun"), l.count("hold_ended"); b != 1 || e != 0 {
			t.Errorf("in the hold: %d began, %d ended", b, e)
		}
		time.Sleep(time.Minute)
		if b, e := l.count("hold_begun"), l.count("hold_ended"); b != 1 || e != 1 {
			t.Errorf("after the hold: %d began, %d ended", b, e)
		}
	})
}

// Runs, polls and heartbeats write nothing.
func TestGoodTimesAreQuiet(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		l := w.events()
		w.lead()
		w.worker("w", 4, nil)
		for range 10 {
			w.create("@every 1s", nil)
		}
		pulled := w.queueJob(nil)
		time.Sleep(2 * time.Second)
		l.mu.Lock()
		l.text.Reset()
		l.mu.Unlock()
		for range 600 {
			w.trigger(pulled)
			r, _ := w.pullOne(job.Poll{Worker: "p"})
			wantAnswer(t, w.finish(r), job.StatusOK, "")
			time.Sleep(6 * time.Second)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.text.Len() != 0 {
			t.Errorf("in an hour of good times the scheduler logs:\n%s", l.text.String())
		}
	})
}
