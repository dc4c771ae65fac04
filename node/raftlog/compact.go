package raftlog

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// appended counts what went into the log since the process began.
type appended struct {
	entries, bytes atomic.Uint64
}

func (a *appended) count(entries []*raft.Log) {
	size := 0
	for _, e := range entries {
		size += len(e.Data)
	}
	a.bytes.Add(uint64(size))
	a.entries.Add(uint64(len(entries)))
}

// CompactEvery is how often the size of the log is looked at.
const CompactEvery = 500 * time.Millisecond

// minTrailing is what is kept behind a snapshot in any case: a follower that is a moment behind should not need a whole
// copy.
const minTrailing = 128

// Compactor bounds the log in bytes. Raft decides by the number of entries when to compact its log and how much of it
// to keep behind a snapshot, and entries differ by a factor of a thousand: a bulk create is a quarter of a megabyte, a
// stamp is a few bytes.
type Compactor struct {
	Raft     *raft.Raft
	Log      *Log
	Bytes    uint64 // compact after this many, and keep about as many behind a snapshot
	Trailing uint64 // the number of entries to keep at most
	Every    time.Duration
	Logger   *slog.Logger
}

// Run compacts until ctx ends.
func (c *Compactor) Run(ctx context.Context) {
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	var entries, bytes uint64 // at the last snapshot that was taken here
	var seenEntries, seenBytes uint64
	average := 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		e, b := c.Log.appended.entries.Load(), c.Log.appended.bytes.Load()
		if e == seenEntries {
			continue
		}
		// Recent entries count most: a load of new jobs is over at some time.
		recent := float64(b-seenBytes) / float64(e-seenEntries)
		weight := min(1, float64(e-seenEntries)/1024)
		if average == 0 {
			weight = 1 // nothing else is known yet
		}
		average += (recent - average) * max(weight, 0.05)
		seenEntries, seenBytes = e, b
		c.setTrailing(average)
		if b-bytes < c.Bytes || e == entries {
			continue
		}
		// "Nothing new" and "a configuration entry is on its way" are fine: the next turn tries again.
		if err := c.Raft.Snapshot().Error(); err != nil {
			c.Logger.Debug("log not compacted", "error", err)
			continue
		}
		entries, bytes = e, b
	}
}

// setTrailing tells raft how many entries of an average size to keep behind a snapshot.
func (c *Compactor) setTrailing(average float64) {
	want := c.Trailing
	if average >= 1 {
		want = min(want, max(minTrailing, uint64(float64(c.Bytes)/average)))
	}
	rc := c.Raft.ReloadableConfig()
	if have := rc.TrailingLogs; want > have*3/4 && want < have*5/4 && want != c.Trailing || want == have {
		return
	}
	rc.TrailingLogs = want
	if err := c.Raft.ReloadConfig(rc); err != nil {
		c.Logger.Warn("trailing log entries not set", "error", err)
	}
}
