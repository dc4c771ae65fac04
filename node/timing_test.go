package node

import (
	"errors"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/job"
)

func timed(multiplier int, edit func(*Config)) Config {
	c := Config{NodeID: "n1", DataDir: "d", Raft: RaftConfig{Multiplier: multiplier}}
	if edit != nil {
		edit(&c)
	}
	c.defaults()
	return c
}

// What raft demands of its timeouts, and what our leases demand of them, holds for every multiplier.
func TestTimeoutsFitTogether(t *testing.T) {
	for m := range MaxMultiplier + 1 {
		c := timed(m, nil)
		if err := c.validate(); err != nil {
			t.Fatalf("multiplier %d: %v", m, err)
		}
		rc := c.raftConfig(replica.First, c.Logger, nil)
		if err := raft.ValidateConfig(rc); err != nil {
			t.Errorf("multiplier %d: %v", m, err)
		}
		r := c.Raft
		if want := heartbeatTimeout * time.Duration(max(m, 1)); r.Heartbeat != want {
			t.Errorf("multiplier %d: heartbeat timeout %s, want %s", m, r.Heartbeat, want)
		}
		if r.LeaderLease > r.Heartbeat || r.Election < r.Heartbeat || r.CommitTimeout >= r.LeaderLease {
			t.Errorf("multiplier %d: lease %s, heartbeat %s, election %s, commit %s", m, r.LeaderLease, r.Heartbeat,
				r.Election, r.CommitTimeout)
		}
		// A worker whose last heartbeat was answered a fifth of its lease ago gets to the next leader before its own
		// two thirds are over.
		if left := c.TTL*2/3 - c.TTL/5; left < 5*r.Heartbeat {
			t.Errorf("multiplier %d: %s are left of a lease of %s for an election of %s", m, left, c.TTL, 5*r.Heartbeat)
		}
		if c.TTL < minTTL {
			t.Errorf("multiplier %d: a lease of %s", m, c.TTL)
		}
	}
}

// A timeout that is set is not multiplied: tests have their own pace.
func TestSetTimeoutsAreNotMultiplied(t *testing.T) {
	c := timed(3, func(c *Config) { c.Raft.Heartbeat, c.TTL = 50*time.Millisecond, 20*time.Second })
	if r := c.Raft; r.Heartbeat != 50*time.Millisecond || r.Election != r.Heartbeat || r.LeaderLease != r.Heartbeat ||
		c.TTL != 20*time.Second {
		t.Errorf("%+v, lease %s", r, c.TTL)
	}
}

func TestTimingIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		multiplier int
		ttl        time.Duration
		field      string
	}{
		"negative":             {-1, 0, "--raft-multiplier"},
		"too long":             {MaxMultiplier + 1, 0, "--raft-multiplier"},
		"a lease of no length": {MaxMultiplier, 10 * time.Second, "--lease"},
	} {
		c := timed(tt.multiplier, func(c *Config) { c.TTL = tt.ttl })
		err := c.validate()
		var e *job.Error
		if !errors.As(err, &e) || e.Field != tt.field || e.Remedy == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := timed(1, func(c *Config) { c.TTL = time.Second }) // as ever: at least a second
	if err := c.validate(); err != nil {
		t.Error(err)
	}
}
