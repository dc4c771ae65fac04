package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

// slack is how long an occurrence may be due in a cluster at rest without a decision.
const slack = 2 * time.Second

// settle waits until the cluster has recovered from everything and has no backlog.
func (c *cluster) settle() bool {
	c.net.SetLatency(0)
	close(c.rec.calm)
	hb := c.o.raft.Heartbeat
	time.Sleep(2*c.o.ttl + 30*time.Second + 10*hb)
	if c.o.profile == "storm" && !c.openQueues() {
		return false
	}
	return c.eventually(30*time.Minute+200*hb, "everything has recovered and is decided",
		func(ctx context.Context) error {
			i := c.leader()
			if i < 0 {
				return errors.New("no leader")
			}
			for _, cl := range c.clients {
				if err := cl.Ready(ctx); err != nil {
					return err
				}
			}
			s, err := c.clients[i].Status(ctx)
			if err != nil {
				return err
			}
			registered := 0
			for _, w := range s.Workers {
				byQueue := slices.ContainsFunc(c.queueWorkers, func(p *queueWorker) bool { return p.name == w.Worker })
				if !byQueue { // those have a session only while they poll or have something in hand
					registered++
				}
			}
			if n := len(c.servers) + len(c.workers); registered < n {
				return fmt.Errorf("%d of %d workers are registered", registered, n)
			}
			if err := c.grown(ctx); err != nil {
				return err
			}
			return c.overdue(c.servers[i])
		})
}

// overdue says what has been due for longer than slack.
func (c *cluster) overdue(s *server) error {
	l := s.current()
	if l == nil {
		return errors.New("the leader is gone")
	}
	until := c.t.now().Add(-slack).UnixMilli()
	for _, st := range l.n.States() {
		if err := overdueIn(st, until); err != nil {
			return err
		}
	}
	return nil
}

func overdueIn(st *store.Store, until int64) error {
	return st.View(func(v *store.View) error {
		for lane := range job.Lane(job.Lanes) {
			var found *store.DueEntry
			if err := v.ScanDue(store.DueKey{Lane: lane}, until,
				func(e store.DueEntry) bool { found = &e; return false }); err != nil {
				return err
			}
			if found != nil {
				return fmt.Errorf("%s has been due since %s", found.Run(), job.Instant(found.Ready))
			}
		}
		return nil
	})
}

// final reads everything that the cluster says at one moment, through its API, and what the recorder saw up to it.
func (c *cluster) final() (in checker.Input, ok bool) {
	for range 200 {
		time.Sleep(337 * time.Millisecond)
		i := c.leader()
		if i < 0 {
			continue
		}
		l := c.servers[i].current()
		if l == nil {
			continue
		}
		states := l.n.States()
		before, at := counters(states), c.t.instant()
		f, err := c.read(c.clients[i])
		if err != nil {
			c.event("read: %v", err)
			continue
		}
		in = c.seen()
		if !maps.Equal(counters(states), before) || c.t.instant() != at {
			continue
		}
		in.Final, in.TTL, in.Latency = f, c.o.ttl, c.o.latency
		in.Recovery, in.Voters = c.o.recovery, len(c.servers)
		in.Final.At, in.Final.Slack = at, slack
		for _, f := range in.Faults {
			if f.Kind == checker.FaultClock {
				in.ClockError = 6 * time.Second // what a leader believes without asking
			}
		}
		return in, true
	}
	c.problem("the state does not stand still for a moment")
	return in, false
}

// seen is what the recorder knows at this moment.
func (c *cluster) seen() (in checker.Input) {
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	for _, e := range c.rec.effects {
		in.Effects = append(in.Effects, *e)
	}
	for _, f := range c.rec.faults {
		in.Faults = append(in.Faults, *f)
	}
	in.Handed = slices.Clone(c.rec.handed)
	in.Notified = append([]checker.Notified{}, c.rec.told...)
	in.Reads = slices.Clone(c.rec.reads)
	in.Restored = c.rec.restored
	in.States = slices.Clone(c.rec.states)
	in.Calls = slices.Clone(c.rec.calls)
	in.Tags, in.Namespaces = map[string]map[string]string{}, map[string]string{}
	for _, s := range c.servers {
		in.Tags[s.id] = nodeTags
	}
	for _, w := range c.workers {
		in.Tags[w.name] = w.tags
		in.Namespaces[w.name] = w.space
	}
	for _, p := range c.queueWorkers {
		in.Tags[p.name] = remoteTags
		in.QueueWorkers = append(in.QueueWorkers, p.name)
		in.Namespaces[p.name] = cmp.Or(p.space, job.DefaultNamespace)
	}
	return in
}

func (c *cluster) read(cl *client.Client) (f checker.Final, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	all := cl.In(job.AllNamespaces)
	for cursor := ""; ; {
		p, err := all.ListJobs(ctx, client.JobQuery{Limit: 500, Cursor: cursor})
		if err != nil {
			return f, err
		}
		f.Jobs = append(f.Jobs, p.Jobs...)
		if cursor = p.NextCursor; cursor == "" {
			break
		}
	}
	err = all.ExportHistory(ctx, nil, 0, func(r job.Run, _ json.RawMessage) error {
		f.History = append(f.History, r)
		return nil
	})
	if err != nil {
		return f, err
	}
	for _, j := range f.Jobs {
		for cursor, more := "", true; more; {
			p, err := cl.JobRuns(ctx, j.ID.String(), client.RunQuery{Limit: 200, Cursor: cursor})
			if err != nil {
				return f, err
			}
			for _, r := range p.Runs {
				switch {
				case r.Seq != 0:
				case r.RunID == "":
					f.Pending = append(f.Pending, r)
				default:
					f.Open = append(f.Open, r)
				}
			}
			cursor = p.NextCursor
			more = cursor != "" && (len(p.Runs) == 0 || p.Runs[len(p.Runs)-1].Seq == 0)
		}
	}
	for cursor := ""; ; {
		p, err := all.DeadLetters(ctx, client.DeadQuery{Limit: 500, Cursor: cursor})
		if err != nil {
			return f, err
		}
		f.Dead = append(f.Dead, p.Dead...)
		if cursor = p.NextCursor; cursor == "" {
			return f, nil
		}
	}
}

// near is how far apart replicas may be for their states to be noted: they are expensive to read.
const near = 20

// atOneIndex notes the states in which the replicas of a group are, and returns those of an index at which all of them
// were seen.
func (c *cluster) atOneIndex(group uint32, states map[uint64]map[string]string) (map[string]string, error) {
	at, of := map[string]uint64{}, map[string]*store.Store{}
	low, high := uint64(math.MaxUint64), uint64(0)
	for _, s := range c.servers {
		st := s.state(group)
		if st == nil {
			return nil, fmt.Errorf("%s is down, or has no replica of group %d", s.id, group)
		}
		of[s.id] = st
		at[s.id] = st.Counters().Index
		low, high = min(low, at[s.id]), max(high, at[s.id])
	}
	if high-low > near {
		return nil, fmt.Errorf("they are between %d and %d", low, high)
	}
	for _, s := range c.servers {
		index := at[s.id]
		if states[index] == nil {
			states[index] = map[string]string{}
		}
		if states[index][s.id] == "" {
			d, err := of[s.id].Digest()
			if err != nil {
				return nil, err
			}
			if of[s.id].Counters().Index != index {
				return nil, errors.New("it moves on")
			}
			states[index][s.id] = d
		}
		if len(states[index]) == len(c.servers) {
			return states[index], nil
		}
	}
	return nil, fmt.Errorf("they are between %d and %d", low, high)
}

// replicas compares the states of a group at one index and checks each.
//
// They need not be at that index together. Followers hear that an entry is committed with the next one, or when nothing
// was to be sent for a CommitTimeout, which is a second or more here: where something is committed every second, they
// are behind the leader for all but milliseconds.
func (c *cluster) replicas(group uint32) map[string]string {
	var digests map[string]string
	states := map[uint64]map[string]string{} // digests by index and server
	ok := c.eventually(10*time.Minute+100*c.o.raft.Heartbeat, "all replicas have applied the same",
		func(context.Context) (err error) {
			for range 50 {
				if digests, err = c.atOneIndex(group, states); err == nil {
					return nil
				}
				time.Sleep(20 * time.Millisecond)
			}
			return err
		})
	if !ok {
		return nil
	}
	first := c.servers[0]
	for _, s := range c.servers {
		if digests[s.id] != digests[first.id] {
			keys, err := first.state(group).Differs(s.state(group)) // as they are by now
			c.problem("replicas of group %d differ: %s has %s, %s has %s: %q %v", group, first.id, digests[first.id],
				s.id, digests[s.id], keys, err)
		}
		problems, _, err := s.state(group).Check()
		if err != nil {
			c.problem("check of %s, group %d: %v", s.id, group, err)
		}
		for _, p := range problems {
			c.problem("check of %s, group %d: %s", s.id, group, p)
		}
		_, unscheduled, err := scheduler.FindUnscheduled(s.state(group), 10)
		if err != nil {
			c.problem("schedules of %s, group %d: %v", s.id, group, err)
		}
		for _, u := range unscheduled {
			c.problem("check of %s, group %d: %s", s.id, group, u)
		}
	}
	return digests
}

func (c *cluster) String() string { return fmt.Sprintf("seed %d", c.seed) }
