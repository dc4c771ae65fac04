package wait

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		if !For(ctx, time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("a minute took %s", time.Since(began))
		}
		if !For(ctx, 0) || !For(ctx, -time.Second) {
			t.Error("no time at all is over at once")
		}
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		began = time.Now()
		if For(ctx, time.Minute) || time.Since(began) != time.Second {
			t.Errorf("the context ended after a second, not after %s", time.Since(began))
		}
		if For(ctx, 0) || For(ctx, time.Minute) {
			t.Error("the context has ended")
		}
	})
}

func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := make(chan struct{}, 1)
		if Within(t.Context(), c, time.Minute) {
			t.Error("nothing came within a minute")
		}
		Wake(c)
		Wake(c) // woken already
		began := time.Now()
		if !Within(t.Context(), c, time.Minute) || time.Since(began) != 0 {
			t.Error("it was woken before it waited")
		}
		if Within(t.Context(), c, time.Minute) {
			t.Error("it was woken once")
		}
	})
}

func TestClosed(t *testing.T) {
	c := make(chan struct{})
	if Closed(c) {
		t.Error("it is open")
	}
	close(c)
	if !Closed(c) {
		t.Error("it is closed")
	}
}
