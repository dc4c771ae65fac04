package ratelimit

import (
	"testing"
	"testing/synctest"
	"time"
)

// A burst, then the rate; one key's use is not another's, and what is refused is not counted.
func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New[string](10, 20, 100)
		taken := func(key string) (n int) {
			for l.Take(key) == 0 {
				n++
			}
			return n
		}
		if n := taken("a"); n != 20 {
			t.Errorf("a burst of %d", n)
		}
		for range 1000 {
			l.Take("a")
		}
		if w := l.Wait("a"); w != 100*time.Millisecond {
			t.Errorf("the next one after %s", w)
		}
		time.Sleep(100 * time.Millisecond)
		if n := taken("a"); n != 1 {
			t.Errorf("%d in a tenth of a second", n)
		}
		if l.Wait("b") != 0 {
			t.Error("a key that was never seen waits")
		}
		if n := taken("b"); n != 20 {
			t.Errorf("a burst of %d of another key", n)
		}
		time.Sleep(time.Hour)
		if n := taken("a"); n != 20 {
			t.Errorf("a burst of %d after a rest", n)
		}
	})
}

// However many keys there are, memory is bounded, and who used up the most is not forgotten for them.
func TestManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New[int](1, 10, 1000)
		for range 10 {
			l.Take(-1)
		}
		for i := range 100_000 {
			if w := l.Take(i); w != 0 {
				t.Fatalf("key %d waits %s", i, w)
			}
		}
		if n := len(l.buckets); n > 1000 {
			t.Errorf("%d keys are remembered", n)
		}
		if l.Wait(-1) == 0 {
			t.Error("the one that used up its burst was forgotten")
		}
	})
}
