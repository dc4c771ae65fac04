package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// One caller that asks a hundred times holds up another by the turn that it has.
func TestTurnsAreFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns[string](1, 1, 100)
		var wg sync.WaitGroup
		ask := func(who string, at *time.Duration) {
			began := time.Now()
			wg.Go(func() {
				end, err := turns.Take(t.Context(), who)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Second)
				if end(); at != nil {
					*at = time.Since(began)
				}
			})
			synctest.Wait()
		}
		for range 100 {
			ask("many", nil)
		}
		var first, second time.Duration
		ask("one", &first)
		ask("two", &second)
		wg.Wait()
		if first > 3*time.Second || second > 4*time.Second {
			t.Errorf("they waited for %v and %v", first, second)
		}
		if turns.busy != 0 || len(turns.running)+len(turns.queues)+len(turns.order) != 0 {
			t.Errorf("%+v", turns)
		}
	})
}

func TestTurnsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns[string](3, 2, 1)
		take := func(who string) func() {
			t.Helper()
			end, err := turns.Take(t.Context(), who)
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		a1, a2, b1 := take("a"), take("a"), take("b")
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		waits := make(chan error, 1)
		go func() {
			_, err := turns.Take(short, "a")
			waits <- err
		}()
		synctest.Wait()
		if _, err := turns.Take(t.Context(), "a"); !errors.Is(err, ErrCrowded) {
			t.Errorf("%v", err)
		}
		if err := <-waits; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if _, err := turns.Take(short, "c"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		b1()
		again, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := turns.Take(again, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third one under a key: %v", err)
		}
		take("c")()
		a1()
		a2()
		if turns.busy != 0 || len(turns.running)+len(turns.queues)+len(turns.order) != 0 {
			t.Errorf("%+v", turns)
		}
	})
}

// Whoever comes, goes or gives up: never more than are allowed, and nobody is forgotten.
func TestTurnsByChance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns[int](4, 2, 1000)
		var mu sync.Mutex
		running, all := map[int]int{}, 0
		var wg sync.WaitGroup
		for range 2000 {
			key, patience := rand.IntN(7), time.Duration(rand.IntN(20000))*time.Millisecond
			wg.Go(func() {
				time.Sleep(time.Duration(rand.IntN(10000)) * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				end, err := turns.Take(ctx, key)
				if err != nil {
					return
				}
				mu.Lock()
				running[key]++
				all++
				if running[key] > 2 || all > 4 {
					t.Error(fmt.Sprint(running))
				}
				mu.Unlock()
				time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
				mu.Lock()
				running[key]--
				all--
				mu.Unlock()
				end()
			})
		}
		wg.Wait()
		if turns.busy != 0 || len(turns.running)+len(turns.queues)+len(turns.order) != 0 {
			t.Errorf("%+v", turns)
		}
	})
}
