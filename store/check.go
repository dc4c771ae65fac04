package store

import (
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/job"
)

// Stats are what a check counted.
type Stats struct {
	Counters Counters
	Info     Info
	Jobs     int
	Due      int
	Parked   int
	OpenRuns int
	History  int
	Dead     int
	Nodes    int // without those that were removed
}

// CheckFile verifies the invariants of a state file, read-only. The problems are in words for a person.
func CheckFile(path string) (problems []string, stats Stats, err error) {
	s, err := Open(path, Options{ReadOnly: true})
	if err != nil {
		return nil, stats, err
	}
	defer s.Close()
	return s.Check()
}

// Check verifies the invariants of the state, and that the index in memory says what the file says.
func (s *Store) Check() (problems []string, stats Stats, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return nil, stats, ErrClosed
	}
	defer func() {
		if r := recover(); r != nil { // bbolt panics on pages that make no sense
			err = Damaged(s.path, r)
		}
	}()
	err = s.db.View(func(tx *bolt.Tx) error {
		idx, err := buildIndex(tx, s.opts.RecentNames)
		if err != nil {
			return err
		}
		c := checker{reads: newReads(tx, idx), count: s.count, active: map[job.ID]uint32{},
			waiting: map[job.ID]uint32{}, serial: map[job.ID]uint32{},
			dead: map[job.ID]uint32{}, cleanups: map[job.ID]bool{}, fences: map[uint64]job.RunKey{}}
		c.stats.Counters, c.stats.Info = s.count, s.info
		for _, step := range []func() error{c.meta, c.due, c.parked, c.runs, c.deadLetters, c.jobs, c.notes, c.history,
			c.requests, c.nodes, c.checkQueues, c.checkNotices, c.audits, c.groups, c.reservations} {
			if err := step(); err != nil {
				return err
			}
		}
		c.index(s.idx)
		problems, stats = c.problems, c.stats
		return nil
	})
	return problems, stats, err
}

// checker looks states up through an index that it built from the file itself; ten million of them would not fit into a
// map.
type checker struct {
	reads
	count    Counters
	stats    Stats
	problems []string

	active   map[job.ID]uint32
	waiting  map[job.ID]uint32
	serial   map[job.ID]uint32 // those of the waiting that catch up
	dead     map[job.ID]uint32
	cleanups map[job.ID]bool
	fences   map[uint64]job.RunKey
}

// maxProblems keeps the report readable.
const maxProblems = 200

func (c *checker) bad(format string, args ...any) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

// stateOf is a job's state, if it has one that can be read.
func (c *checker) stateOf(id job.ID) (State, Place, bool) {
	p, ok := c.idx.get(id).place()
	if !ok {
		return State{}, p, false
	}
	s, err := c.stateAt(id, p)
	return s, p, err == nil
}

// each goes over a bucket whose keys are numbers.
func (c *checker) each(bucket []byte, what string, fn func(n uint64, v []byte)) error {
	return c.tx.Bucket(bucket).ForEach(func(k, v []byte) error {
		if len(k) != 8 {
			c.bad("a %s has a key of %d bytes", what, len(k))
			return nil
		}
		fn(parseU64(k), v)
		return nil
	})
}

func (c *checker) meta() error {
	count, _, err := readMeta(c.tx)
	if err != nil {
		return err
	}
	if count != c.count {
		c.bad("the counters in memory are %+v, in the file %+v", c.count, count)
	}
	if count.HistFloor > count.HistSeq {
		c.bad("history is trimmed up to %d and ends at %d", count.HistFloor, count.HistSeq)
	}
	return nil
}

func (c *checker) due() error {
	return c.tx.Bucket(bucketDue).ForEach(func(k, v []byte) error {
		d, err := parseDueKey(k)
		if err != nil {
			return err
		}
		c.stats.Due++
		if d.Lane >= job.Lanes {
			c.bad("%s is due in lane %d", d.Job, d.Lane)
		}
		switch d.Kind {
		case KindOccurrence:
			c.dueOccurrence(d, v)
		case KindRetry, KindExtra:
			row, ok, err := c.Run(d.Run())
			if err != nil {
				c.bad("%s cannot be read", d.Run())
			} else if due, has := row.Due(d.Run()); !ok || !has || due != d {
				c.bad("%s is due but no open run says so", d.Run())
			} else if len(v) != 4 || parseU32(v) != row.Class {
				c.bad("%s: its due entry is of another class", d.Run())
			}
		case KindCleanup:
			c.cleanups[d.Job] = true
		default:
			c.bad("a due entry of %s has kind %d", d.Job, d.Kind)
		}
		return nil
	})
}

func (c *checker) dueOccurrence(d DueKey, v []byte) {
	s, err := DecodeState(v)
	if err != nil {
		c.bad("%s: its state (due) cannot be read", d.Job)
		return
	}
	if d.At <= s.LastNominal {
		c.bad("%s: its next occurrence %d is not after the last one, %d", d.Job, d.At, s.LastNominal)
	}
	if s.Paused || s.Quarantined {
		c.bad("%s is paused or in quarantine, and due", d.Job)
	}
	if d.Lane != s.Lane || d.Ready < d.At || d.Origin != job.OriginSchedule {
		c.bad("%s: its due entry does not fit its state", d.Job)
	}
}

func (c *checker) parked() error {
	return c.each(bucketParked, "parked state", func(n uint64, v []byte) {
		c.stats.Parked++
		if _, err := DecodeState(v); err != nil {
			c.bad("%s: its state (parked) cannot be read", job.ID(n))
		}
	})
}

func (c *checker) runs() error {
	return c.tx.Bucket(bucketRuns).ForEach(func(k, v []byte) error {
		rk, err := parseRunKey(k)
		if err != nil {
			return err
		}
		c.stats.OpenRuns++
		row, err := decodeRow(v)
		if err != nil {
			c.bad("%s cannot be read", rk)
			return nil
		}
		s, _, exists := c.stateOf(rk.Job)
		c.runStatus(rk, &row, &s)
		if row.Fence > c.count.Fence {
			c.bad("%s has fence %d, the highest given out is %d", rk, row.Fence, c.count.Fence)
		}
		if row.Class == 0 || int(row.Class) >= len(c.idx.classes) || row.Lane >= job.Lanes {
			c.bad("%s has the unknown class %d or lane %d", rk, row.Class, row.Lane)
		}
		switch {
		case !exists && row.Status != job.RunCanceling:
			c.bad("%s is open but its job is gone", rk)
		case exists && rk.Origin == job.OriginManual && rk.At > s.LastManual,
			exists && rk.Origin == job.OriginSchedule && rk.At > s.LastNominal:
			c.bad("%s is open but its job does not know that time yet", rk)
		}
		return nil
	})
}

func (c *checker) runStatus(rk job.RunKey, row *Row, s *State) {
	if row.Held != job.RunNone &&
		(row.Status != job.RunWaiting || row.Held != job.RunPending && row.Held != job.RunRetrying) {
		c.bad("%s is %s and held as %s", rk, row.Status, row.Held)
	}
	switch row.Status {
	case job.RunWaiting:
		if row.Held == job.RunNone {
			c.waiting[rk.Job]++
			if row.Serial {
				c.serial[rk.Job]++
			}
			if rk.Origin == job.OriginManual && !row.Serial && s.Paused && !s.Quarantined && s.Active == 0 {
				c.bad("%s waits behind nothing: a pause does not hold runs by hand", rk)
			}
			return
		}
		c.active[rk.Job]++
		if !s.Paused && !s.Quarantined {
			c.bad("%s is held but its job is not paused", rk)
		}
	case job.RunPending, job.RunRetrying:
		c.active[rk.Job]++
		due, _ := row.Due(rk)
		if c.tx.Bucket(bucketDue).Get(c.dueKey(due)) == nil {
			c.bad("%s is %s but not in the due index", rk, row.Status)
		}
	case job.RunClaimed, job.RunCanceling:
		c.active[rk.Job]++
		if other, twice := c.fences[row.Fence]; twice {
			c.bad("%s and %s have the same fence", rk, other)
		}
		c.fences[row.Fence] = rk
		if row.Worker == "" || row.Fence == 0 || row.Attempt == 0 {
			c.bad("%s is claimed by no worker", rk)
		}
	default:
		c.bad("%s is open with status %d", rk, row.Status)
	}
}

func (c *checker) deadLetters() error {
	err := c.each(bucketDead, "dead letter", func(seq uint64, v []byte) {
		c.stats.Dead++
		d, err := decodeDead(v)
		if err != nil {
			c.bad("dead letter %d cannot be read", seq)
			return
		}
		if seq > c.count.HistSeq || d.Row.Fence > c.count.Fence {
			c.bad("dead letter %d (%s) has a number or a fence that was never given out", seq, d.Run)
		}
		c.dead[d.Run.Job]++
	})
	if c.count.Dead != uint64(c.stats.Dead) {
		c.bad("the counter says %d dead letters, there are %d", c.count.Dead, c.stats.Dead)
	}
	return err
}

func (c *checker) jobs() error {
	named, states := 0, 0
	err := c.each(bucketJobs, "definition", func(n uint64, v []byte) {
		id := job.ID(n)
		c.stats.Jobs++
		if n > c.count.NextJob {
			c.bad("%s has a number above the highest given out", id)
		}
		s, p, ok := c.stateOf(id)
		if !ok {
			c.bad("%s has no state", id)
			return
		}
		states++
		def, err := DecodeDefinition(v)
		if err != nil {
			c.bad("%s: its definition cannot be read", id)
			return
		}
		if def.Spec.Name != "" {
			named++
			key := scoped(def.Spec.Namespace, def.Spec.Name)
			if other, ok := c.named(key); !ok || other != id {
				c.bad("%s is named %q but the name does not lead to it", id, def.Spec.Name)
			}
			if _, there := c.settledName(key); there != c.idx.names.sweep.has(key, id) {
				c.bad("%s is named %q, and the name is not where names of jobs as old are kept", id, def.Spec.Name)
			}
		}
		c.job(id, &s, p, &def.Spec)
		c.atHome(id, &def.Spec)
	})
	if n := c.tx.Bucket(bucketNames).Stats().KeyN + c.idx.names.recent.Len(); n != named {
		c.bad("there are %d names and %d named jobs", n, named)
	}
	if n := c.idx.jobs(); n != states {
		c.bad("there are %d states and %d jobs that have one", n, states)
	}
	if c.count.Jobs != uint64(c.stats.Jobs) {
		c.bad("the counter says %d jobs, there are %d", c.count.Jobs, c.stats.Jobs)
	}
	return err
}

// job holds a job's state against its definition and its runs.
func (c *checker) job(id job.ID, s *State, p Place, spec *job.Spec) {
	lane, _ := job.LaneOf(spec.Priority)
	if s.Class == 0 || int(s.Class) >= len(c.idx.classes) || c.idx.classes[s.Class] != spec.Class() {
		c.bad("%s has the class %d, which is not that of its definition", id, s.Class)
	}
	if s.Lane != lane || s.Overlap != OverlapOf(spec.Overlap) || s.OneOff != spec.OneOff() ||
		s.Manual != spec.Manual() ||
		s.AtMostOnce != (spec.Delivery == job.DeliverAtMostOnce) || s.Notify != NotifyOnOf(spec.Notify) {
		c.bad("%s: its state does not fit its definition", id)
	}
	if s.Failing && s.Notify == 0 {
		c.bad("%s is failing and has no notify", id)
	}
	if s.Active != c.active[id] || s.Waiting != c.waiting[id] {
		c.bad("%s counts %d active and %d waiting runs, there are %d and %d",
			id, s.Active, s.Waiting, c.active[id], c.waiting[id])
	}
	if s.Dead != c.dead[id] {
		c.bad("%s counts %d dead letters, there are %d", id, s.Dead, c.dead[id])
	}
	stopped := s.Paused || s.Quarantined
	if due := !p.Parked && s.Overlap != OverlapAllow &&
		p.Ready <= max(c.count.Mark, s.LastAt, s.LastManual); !stopped && !due && s.Waiting > 0 && s.Active == 0 &&
		(p.Parked || s.Overlap == OverlapAllow || s.Took == 0 || s.Waiting != c.serial[id]) {
		c.bad("%s has runs that wait behind nothing", id)
	}
	if !stopped && (s.ParkedAt != 0 || s.ParkedReady != 0) {
		c.bad("%s is not paused and has an occurrence that waits for that", id)
	}
	if !s.Paused && s.PausedAt != 0 {
		c.bad("%s is not paused and says since when", id)
	}
	ready := p.Ready
	if stopped {
		ready = s.ParkedReady
	}
	if n := s.Pauses; n != (Pauses{}) && (ready == 0 || n[0].To < ready || s.OneOff) {
		c.bad("%s keeps a pause that no occurrence is to pass", id)
	}
	if s.OneOff && !stopped && s.Active == 0 && s.Waiting == 0 && p.Parked && !c.cleanups[id] {
		c.bad("%s is a finished one-off that nothing will ever remove", id)
	}
	if s.HistHead != 0 {
		rec, ok, err := c.Record(s.HistHead)
		if err != nil || !ok || rec.Job != id {
			c.bad("%s: its newest history record %d is gone", id, s.HistHead)
		}
	}
}

func (c *checker) notes() error {
	return c.each(bucketNotes, "note", func(n uint64, _ []byte) {
		if s, _, ok := c.stateOf(job.ID(n)); !ok || !s.Quarantined {
			c.bad("%s is not in quarantine and has a note that says why", job.ID(n))
		}
	})
}

func (c *checker) history() error {
	return c.each(bucketHistory, "history record", func(seq uint64, v []byte) {
		c.stats.History++
		rec, err := decodeRecord(v)
		if err != nil {
			c.bad("history record %d cannot be read", seq)
			return
		}
		if seq > c.count.HistSeq || rec.Prev >= seq {
			c.bad("history record %d is out of order", seq)
		}
		s, _, ok := c.stateOf(rec.Job)
		if ok && rec.Namespace != c.idx.spaces.of(s.Class) {
			c.bad("history record %d is of the namespace %q, and its job of %q", seq, rec.Namespace,
				c.idx.spaces.of(s.Class))
		}
		if rec.Fence > c.count.Fence {
			c.bad("history record %d has a fence that was never given out", seq)
		}
		if seq <= c.count.HistFloor && s.HistHead != seq {
			c.bad("history record %d should have been trimmed", seq)
		}
		if ok && seq > s.HistHead {
			c.bad("history record %d is newer than the newest of %s, %d", seq, rec.Job, s.HistHead)
		}
		if rec.Prev > c.count.HistFloor {
			if prev, ok, err := c.Record(rec.Prev); err != nil || !ok || prev.Job != rec.Job {
				c.bad("history record %d of %s leads to %d, which is not of that job", seq, rec.Job, rec.Prev)
			}
		}
	})
}

func (c *checker) requests() error {
	n := 0
	err := c.tx.Bucket(bucketRequestExp).ForEach(func(k, _ []byte) error {
		if n++; len(k) < 9 || c.tx.Bucket(bucketRequests).Get(k[8:]) == nil {
			c.bad("the expiry of a request leads to none")
		}
		return nil
	})
	if have := c.tx.Bucket(bucketRequests).Stats().KeyN; have != n {
		c.bad("there are %d requests and %d expiries of requests", have, n)
	}
	return err
}

// index compares the one in memory with the one that was built from the file now.
func (c *checker) index(have *index) {
	c.checkTokens(have)
	c.checkSecrets(have)
	for n, ch := range c.idx.chunks {
		for i, sp := range ch.where {
			if id := job.ID(n*chunkSize + uint64(i)); have.get(id) != sp {
				c.bad("%s is not where the index says", id)
			}
		}
	}
	for n, ch := range have.chunks {
		if c.idx.chunks[n] == nil && ch.used > 0 {
			c.bad("the index has jobs around number %d that are not in the file", n*chunkSize)
		}
	}
	if have.openLen != c.idx.openLen || len(have.open) != len(c.idx.open) {
		c.bad("the index counts %d open runs of %d jobs, there are %d of %d", have.openLen, len(have.open),
			c.idx.openLen, len(c.idx.open))
	}
	for id, refs := range c.idx.open {
		if !slices.Equal(refs, have.open[id]) {
			c.bad("%s: the index has other open runs than the file", id)
		}
	}
	if !slices.Equal(have.classes, c.idx.classes) {
		c.bad("the index has other classes than the file")
	}
	c.queueIndex(have)
	if !slices.Equal(have.spaces.ofClass, c.idx.spaces.ofClass) {
		c.bad("the index has other namespaces than the file")
	}
	if !slices.Equal(have.spaces.jobs, c.idx.spaces.jobs) || have.spaces.inUse != c.idx.spaces.inUse {
		c.bad("the index counts %v jobs by namespace, there are %v", have.spaces.jobs, c.idx.spaces.jobs)
	}
	if have.names.sweep != c.idx.names.sweep || have.names.recent.Len() != c.idx.names.recent.Len() {
		c.bad("the index has %d names that are not in their bucket, there are %d",
			have.names.recent.Len(), c.idx.names.recent.Len())
	}
	c.idx.names.recent.Scan(func(name string, id job.ID) bool {
		if other, _ := have.names.recent.Get(name); other != id {
			c.bad("%s is named %q and the index leads to %s", id, name, other)
		}
		return true
	})
	if have.status != c.idx.status {
		c.bad("the index counts %d jobs by their status, there are %d", have.status, c.idx.status)
	}
	if have.inHand != c.idx.inHand {
		c.bad("the index counts %d runs that workers have, there are %d", have.inHand, c.idx.inHand)
	}
	if have.notices != c.idx.notices {
		c.bad("the index counts %d notifications to be sent, there are %d", have.notices, c.idx.notices)
	}
}
