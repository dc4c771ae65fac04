package propose

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A leadership is sound as long as its commands come back; when one does not, a majority is asked, and its word holds
// for a while.
func TestConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		var mu sync.Mutex
		asked := 0
		var answer error
		p := New(Options{Flight: &Flight{}, Majority: func() error {
			mu.Lock()
			defer mu.Unlock()
			asked++
			time.Sleep(20 * time.Millisecond)
			return answer
		}})
		want := func(age time.Duration, ok bool, questions int) {
			t.Helper()
			err := p.Confirm(ctx, age)
			mu.Lock()
			defer mu.Unlock()
			if (err == nil) != ok || asked != questions {
				t.Errorf("within %s: %v, with %d questions", age, err, asked)
			}
		}
		time.Sleep(time.Hour)
		want(time.Second, true, 0) // nothing is on its way

		first := &proposal{began: time.Now(), done: make(chan struct{})}
		p.proof.track(first)
		time.Sleep(500 * time.Millisecond)
		second := &proposal{began: time.Now(), done: make(chan struct{})}
		p.proof.track(second)
		want(time.Second, true, 0)
		want(100*time.Millisecond, true, 1)
		time.Sleep(600 * time.Millisecond)
		want(time.Second, true, 1) // it was asked not longer ago
		time.Sleep(time.Second)
		answer = errors.New("it is in another term")
		want(time.Second, false, 2)
		close(first.done)
		want(time.Second, false, 3) // the second one hangs as well
		close(second.done)
		want(time.Second, true, 3)

		// Those who come while a question is on its way share the next one.
		p.proof.track(&proposal{began: time.Now().Add(-time.Minute), done: make(chan struct{})})
		answer = nil
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := p.Confirm(ctx, time.Millisecond); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if asked > 5 {
			t.Errorf("asked %d times", asked-3)
		}
		over, cancel := context.WithCancel(ctx)
		cancel()
		time.Sleep(time.Second)
		if err := p.Confirm(over, time.Millisecond); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		time.Sleep(time.Second)
		p.End()
		if err := p.Confirm(ctx, time.Millisecond); !errors.Is(err, ErrEnded) {
			t.Error(err)
		}
	})
}

// The question goes on without a caller who gave up, and those who came meanwhile get an answer of their own.
func TestVerifyLeaderEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, free := make(chan struct{}, 10), make(chan error)
		p := New(Options{Flight: &Flight{}, Verify: func() error {
			asked <- struct{}{}
			return <-free
		}})
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- p.VerifyLeader(ctx) }()
		<-asked
		go func() { second <- p.VerifyLeader(t.Context()) }()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("its caller gave up: %v", err)
		}
		synctest.Wait()       // the second waits
		free <- ErrNoMajority // to the first question: the second was asked after it
		<-asked
		free <- nil
		if err := <-second; err != nil {
			t.Errorf("the second got the first one's answer: %v", err)
		}
	})
}
