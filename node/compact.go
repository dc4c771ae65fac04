package node

import (
	"context"
	"sync/atomic"
	"time"
)

// Raft decides by the number of entries when to compact its log and how much of it to keep behind a snapshot. Ours differ by a factor of
// a thousand: a bulk create is a quarter of a megabyte, a stamp is a few bytes. So bytes are counted as well (pitfalls 8).

// appended counts what went into the log since the process began.
type appended struct {
	entries, bytes atomic.Uint64
}

const (
	compactEvery = 500 * time.Millisecond
	// minTrailing is what is kept behind a snapshot in any case: a follower that is a moment behind should not need a whole copy.
	minTrailing = 128
)

// compact bounds the log in bytes until ctx ends.
func (g *group) compact(ctx context.Context) {
	tick := time.NewTicker(g.cfg.Machine.paced(compactEvery))
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
		e, b := g.logs.appended.entries.Load(), g.logs.appended.bytes.Load()
		if e == seenEntries {
			continue
		}
		// Recent entries count most: a load of new jobs is over at some time.
		recent := float64(b-seenBytes) / float64(e-seenEntries)
		weight := min(1, float64(e-seenEntries)/1024)
		if average == 0 {
			weight = 1 // nothing is known yet but this
		}
		average += (recent - average) * max(weight, 0.05)
		seenEntries, seenBytes = e, b
		g.setTrailing(average)
		if b-bytes < g.cfg.Raft.CompactBytes || e == entries {
			continue
		}
		// "Nothing new" and "a configuration entry is on its way" are fine: the next turn tries again.
		if err := g.raft.Snapshot().Error(); err != nil {
			g.log.Debug("the log was not compacted", "error", err)
			continue
		}
		entries, bytes = e, b
	}
}

// setTrailing tells raft how many entries of an average size to keep behind a snapshot.
func (g *group) setTrailing(average float64) {
	want := g.cfg.Raft.TrailingLogs
	if average >= 1 {
		want = min(want, max(minTrailing, uint64(float64(g.cfg.Raft.CompactBytes)/average)))
	}
	rc := g.raft.ReloadableConfig()
	if have := rc.TrailingLogs; want > have*3/4 && want < have*5/4 && want != g.cfg.Raft.TrailingLogs || want == have {
		return
	}
	rc.TrailingLogs = want
	if err := g.raft.ReloadConfig(rc); err != nil {
		g.log.Warn("the number of entries to keep could not be set", "error", err)
	}
}
