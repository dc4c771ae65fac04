package watch

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// When time stands still, what is shown is who keeps it from going on: none of those who wait for time, or that are in
// another bubble.
func TestStacksOfASimulationThatStandsStill(t *testing.T) {
	other := make(chan struct{})
	otherEnds := make(chan struct{})
	go func() {
		defer close(otherEnds)
		synctest.Test(t, func(*testing.T) { keepsAnotherBubble(other) })
	}()
	outside := make(chan struct{}) // as a mutex, a channel of no bubble: time does not go on while one waits for it
	var got string
	w := New(time.Second, func(stacks string) {
		got = stacks
		close(outside)
	})
	defer w.Stop()
	synctest.Test(t, func(*testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go w.Beat(ctx, time.Second)
		var all sync.WaitGroup
		all.Go(waitsForTime)
		all.Go(func() { keepsTime(outside) })
		keepsTime(outside)
		all.Wait()
	})
	close(other)
	<-otherEnds
	if n := strings.Count(got, "watch.keepsTime("); n != 2 {
		t.Errorf("%d of 2 that wait for no time are shown", n)
	}
	for _, name := range []string{"waitsForTime", "keepsAnotherBubble", "watch.New", ").Beat("} {
		if strings.Contains(got, name) {
			t.Errorf("%s is shown", name)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
	if all := "goroutine 1 [running]:\nmain.main()"; awake(all, "synctest bubble 7") != all {
		t.Error("nothing is shown if none is found")
	}
}

//go:noinline
func waitsForTime() { time.Sleep(time.Hour) }

//go:noinline
func keepsTime(c chan struct{}) { <-c }

//go:noinline
func keepsAnotherBubble(c chan struct{}) { <-c }

// A thousand who wait at the same place are one stack.
func TestSameStacksAreToldOnce(t *testing.T) {
	one := "goroutine 9 [sync.Mutex.Lock, synctest bubble 7]:\nsync.(*Mutex).Lock(0xc01)\n\t/mutex.go:46 +0x1\n"
	all := one + "\n" + strings.Replace(one, "0xc01", "0xc02", 1) + "\n" + strings.Replace(one, "bubble 7", "bubble 8", 1)
	if got := awake(all, "synctest bubble 7"); strings.Count(got, "goroutine") != 1 || !strings.Contains(got, "2 times") {
		t.Error(got)
	}
}
