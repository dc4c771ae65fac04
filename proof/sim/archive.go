package sim

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/store"
)

// archive keeps what was ever committed and may be gone at the end: records of the history with their stamps, floors,
// jobs. The node that applies something first is asked for it, at the same instant.
type archive struct {
	seq     uint64
	records map[uint64]job.Run
	stamps  map[uint64]job.Instant
	seen    map[uint64]job.Instant
	floors  []checker.Floor
	gone    map[job.ID]job.Instant
	leaders []checker.Takeover
	outages map[checker.Outage]struct{} // every one that was ever committed; the state forgets old ones
}

func newArchive() *archive {
	return &archive{records: map[uint64]job.Run{}, stamps: map[uint64]job.Instant{}, seen: map[uint64]job.Instant{},
		gone: map[job.ID]job.Instant{}, outages: map[checker.Outage]struct{}{}}
}

// archiveOf is that of a group. The caller has the lock.
func (r *recorder) archiveOf(group uint32) *archive {
	if r.archives[group] == nil {
		r.archives[group] = newArchive()
	}
	return r.archives[group]
}

// file follows a group's store until the process that has it ends.
func (c *cluster) file(group uint32, st *store.Store, done <-chan struct{}) {
	wake := make(chan struct{}, 1)
	changed := map[job.ID]bool{}
	stop := st.Listen(func(ch *store.Changes) {
		n := st.Counters()
		c.rec.mu.Lock()
		a := c.rec.archiveOf(group)
		news := n.HistSeq > a.seq || len(ch.Jobs) > 0 || len(a.floors) == 0 && n.HistFloor > 0 ||
			len(a.floors) > 0 && n.HistFloor > a.floors[len(a.floors)-1].Seq
		for _, id := range ch.Jobs {
			changed[id] = true
		}
		c.rec.mu.Unlock()
		if news {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	})
	c.bg.Go(func() {
		defer stop()
		for {
			select {
			case <-done:
				return
			case <-wake:
			}
			c.rec.mu.Lock()
			ids := slices.Collect(maps.Keys(changed))
			clear(changed)
			from := c.rec.archiveOf(group).seq
			c.rec.mu.Unlock()
			err := st.View(func(v *store.View) error { return c.copyNews(group, v, from, ids) })
			if err != nil && !errors.Is(err, store.ErrClosed) {
				c.problem("the history cannot be read: %v", err)
			}
		}
	})
}

func (c *cluster) copyNews(group uint32, v *store.View, from uint64, ids []job.ID) error {
	now := c.t.instant()
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	a := c.rec.archiveOf(group)
	err := v.EachRecord(from, func(seq uint64, r store.Record) bool {
		if _, known := a.records[seq]; !known {
			a.records[seq], a.stamps[seq], a.seen[seq] = runOf(seq, &r), job.Instant(r.Recorded), now
		}
		a.seq = max(a.seq, seq)
		return true
	})
	last := uint64(0)
	if n := len(a.floors); n > 0 {
		last = a.floors[n-1].Seq
	}
	if f := v.C.HistFloor; f > last {
		a.floors = append(a.floors, checker.Floor{At: now, Seq: f, Last: v.C.HistSeq})
	}
	for _, id := range ids {
		if _, ok, err := v.Definition(id); err != nil {
			return err
		} else if _, known := a.gone[id]; !ok && !known {
			a.gone[id] = now
		}
	}
	return err
}

// runOf is a record as the API shows it, without what depends on the job's present definition.
func runOf(seq uint64, r *store.Record) job.Run {
	if i := r.Interval; !i.Empty() {
		return job.Run{JobID: r.Job, Namespace: r.Namespace, Status: i.Status, Reason: i.Reason,
			First: job.Instant(i.First), Last: job.Instant(i.Last), Count: i.Count, CountAtLeast: i.AtLeast,
			FinishedAt: job.Instant(r.Recorded), Seq: seq}
	}
	k := r.Run()
	run := job.Run{RunID: k.String(), JobID: r.Job, Namespace: r.Namespace, ScheduledAt: job.Instant(k.At),
		Origin: k.Origin, ClaimedAt: job.Instant(r.ClaimedAt), StartedAt: job.Instant(r.StartedAt),
		FinishedAt: job.Instant(r.EndedAt), Attempt: int(r.Attempt), Status: r.Status, Reason: r.Reason,
		Worker: r.Worker, Fence: r.Fence, Error: r.Error, Output: r.Output, Seq: seq,
		ReadyAt: job.Instant(r.Ready), JobVersion: r.Version}
	if run.FinishedAt == 0 {
		run.FinishedAt = job.Instant(r.Recorded)
	}
	return run
}

// whole makes the history of a group what was ever committed, and notes what of it is left.
func (c *cluster) whole(group uint32, f *checker.Final) {
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	a := c.rec.archiveOf(group)
	f.Recorded, f.Seen, f.Cleaned = maps.Clone(a.stamps), maps.Clone(a.seen), maps.Clone(a.gone)
	if c.o.historyAge == 0 && c.o.historyCount == 0 {
		return
	}
	f.Trimmed = &checker.Trimmed{MaxAge: c.o.historyAge, MaxCount: c.o.historyCount,
		Late: time.Duration(c.o.pace) * 2 * time.Minute, Kept: map[uint64]bool{}, Floors: slices.Clone(a.floors)}
	all := maps.Clone(a.records)
	for _, h := range f.History {
		f.Trimmed.Kept[h.Seq] = true
		all[h.Seq] = h
	}
	f.History = f.History[:0:0]
	for _, seq := range slices.Sorted(maps.Keys(all)) {
		f.History = append(f.History, all[seq])
	}
}

// leads notes the leaderships of a node.
func (c *cluster) leads(id string) func(uint32, uint64) {
	return func(group uint32, term uint64) {
		epoch := uint64(0)
		for _, s := range c.servers {
			if s.id != id {
				continue
			}
			if st := s.state(group); st != nil {
				epoch = st.Info().Epoch
			}
		}
		c.rec.mu.Lock()
		defer c.rec.mu.Unlock()
		a := c.rec.archiveOf(group)
		a.leaders = append(a.leaders, checker.Takeover{Node: id, Term: term, At: c.t.instant(), Epoch: epoch})
	}
}
