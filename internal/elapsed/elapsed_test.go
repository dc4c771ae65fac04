package elapsed

import (
	"testing"
	"time"
)

func TestElapsed(t *testing.T) {
	c := New()
	a := c.Elapsed()
	b := c.Elapsed()
	if a < 0 || b < a {
		t.Fatalf("%v, then %v", a, b)
	}
	// A boot time that ran ahead (the machine was suspended) counts, one that is behind does not.
	slept := Timer{start: time.Now(), boot: bootTime() - time.Hour}
	if e := slept.Elapsed(); bootTime() != 0 && (e < time.Hour || e > time.Hour+time.Minute) {
		t.Fatalf("%v", e)
	}
	behind := Timer{start: time.Now().Add(-time.Hour), boot: bootTime()}
	if e := behind.Elapsed(); e < time.Hour || e > time.Hour+time.Minute {
		t.Fatalf("%v", e)
	}
}
