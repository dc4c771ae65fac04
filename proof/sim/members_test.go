package sim

import (
	"testing"
	"time"
)

// TestOnlyVoter: the clock of an only voter is right, in whatever order clocks are set and votes are taken. Two voters
// may differ.
func TestOnlyVoter(t *testing.T) {
	const d = 2 * time.Minute
	wrong := func(k *clock) { k.set(d) }
	made := func() (*cluster, []*server) {
		c := &cluster{t: &times{start: time.Now(), base: time.Now()}}
		for range 3 {
			c.servers = append(c.servers, &server{c: c, clock: &clock{t: c.t}})
		}
		return c, c.servers
	}

	c, s := made()
	if !c.leave(s[0]) || !c.upset(s[1], wrong) {
		t.Fatal("one of two voters could not have a wrong clock")
	}
	if c.leave(s[2]) {
		t.Error("a voter with a wrong clock was left alone")
	}
	if !c.leave(s[1]) {
		t.Error("the voter with the wrong clock could not leave")
	}
	if c.leave(s[1]) {
		t.Error("a vote was taken twice")
	}

	c, s = made()
	if !c.leave(s[0]) || !c.leave(s[1]) {
		t.Fatal("no voter with a right clock could be left alone")
	}
	if c.upset(s[2], wrong) || !s[2].clock.is(0) {
		t.Error("the clock of the only voter was set wrong")
	}
	if !c.upset(s[0], wrong) || !s[0].clock.is(d) {
		t.Error("the clock of a node without a vote could not be set wrong")
	}
}
