// Package watch notices that the virtual time of a simulation stands still.
package watch

import (
	"context"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Watch notices that virtual time stands still: a goroutine that waits for a mutex whose holder waits for time, or for
// another mutex, keeps it from going on.
type Watch struct {
	beats  atomic.Int64
	bubble atomic.Pointer[string] // as the headers of stacks name it; nil: it has not begun to beat
	done   chan struct{}
}

// New calls stuck, once, if there was no beat for that long, with the stacks that keep time from going on.
func New(after time.Duration, stuck func(stacks string)) *Watch {
	w := &Watch{done: make(chan struct{})}
	go func() {
		last, since := int64(-1), time.Now()
		for {
			select {
			case <-w.done:
				return
			case <-time.After(after / 20):
			}
			if n, bubble := w.beats.Load(), w.bubble.Load(); n != last || bubble == nil {
				last, since = n, time.Now()
			} else if time.Since(since) > after {
				stuck(awake(stacks(true), *bubble))
				return
			}
		}
	}()
	return w
}

// Stop ends it.
func (w *Watch) Stop() { close(w.done) }

// Beat counts while the virtual time of its bubble goes on, until ctx ends.
func (w *Watch) Beat(ctx context.Context, every time.Duration) {
	name := bubbleName.FindString(stacks(false))
	w.bubble.Store(&name)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			w.beats.Add(1)
		}
	}
}

// bubbleName is a part of the header of a stack: goroutine 7 [select (durable), synctest bubble 5]:
var bubbleName = regexp.MustCompile(`synctest bubble \d+`)

// stacks are those of all goroutines, or that of the caller.
func stacks(all bool) string {
	for size := 64 << 10; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, all); n < size {
			return string(buf[:n])
		}
	}
}

// awake leaves of all stacks those of a bubble whose goroutines wait for nothing that virtual time or another goroutine
// of the bubble brings, as the runtime sees it: time goes on when there is none. A cluster has thousands of others, and
// other seeds run beside it. Stacks that are the same but for their numbers are told once.
func awake(all, bubble string) string {
	var out []string
	var times []int
	seen := map[string]int{}
	for stack := range strings.SplitSeq(all, "\n\n") {
		head, rest, _ := strings.Cut(stack, "\n")
		if bubble == "" || strings.Contains(head, "(durable)") || bubbleName.FindString(head) != bubble {
			continue
		}
		key := strings.Join(calls.FindAllString(rest, -1), "")
		if i, ok := seen[key]; ok {
			times[i]++
			continue
		}
		seen[key] = len(out)
		out, times = append(out, stack), append(times, 1)
	}
	if len(out) == 0 {
		return all // whatever it is, it is in there
	}
	var b strings.Builder
	for i, stack := range out {
		if times[i] > 1 {
			b.WriteString(strconv.Itoa(times[i]) + " times, with other arguments:\n")
		}
		b.WriteString(stack + "\n\n")
	}
	return b.String()
}

// calls are the places of a stack, without arguments.
var calls = regexp.MustCompile(`(?m)^\t\S+:\d+`)
