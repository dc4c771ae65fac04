package node

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/store"
)

// backlogLimit is where counting the backlog stops.
const backlogLimit = 10_000

// Status implements api.Backend. It answers with and without a leader: that is when it is asked.
func (b *backend) Status(ctx context.Context, rd api.Read) (client.Status, error) {
	n, g := b.n, b.g
	now := g.now()
	_, leader := g.raft.LeaderWithID()
	s := client.Status{
		Node: n.cfg.NodeID, Version: n.cfg.Version, State: membership.StateName(g.raft.State()), Leader: string(leader), Term: g.raft.CurrentTerm(),
		Now: job.Instant(now), StartedAt: job.At(n.started), Raft: raftStats(g),
		Members: []client.Member{}, Workers: []client.WorkerStatus{}, Disk: n.ownDisk(), Skipped: skipped(n.dir.Skips),
	}
	switch err := b.Ready(); {
	case err == nil:
		s.Ready = true
	case job.CodeOf(err) == job.CodeNoLeader:
		if s.NotReady = "there is no leader right now"; leader == "" {
			if why := n.members.WhyNoLeader(ctx); why != "" {
				s.NotReady = "no leader: " + why
			}
		}
	default:
		s.NotReady = err.Error()
	}
	for _, m := range n.members.Servers() {
		addr := string(m.Address)
		if string(m.ID) == n.cfg.NodeID {
			addr = string(n.trans.LocalAddr()) // where it is now, not where it was when it joined
		}
		mb := client.Member{ID: string(m.ID), Address: addr, Suffrage: suffrage(m.Suffrage), Leader: m.ID == leader}
		n.members.Describe(&mb, g.store.Counters().Index)
		s.Members = append(s.Members, mb)
	}
	slices.SortFunc(s.Members, func(a, b client.Member) int { return strings.Compare(a.ID, b.ID) })
	if e := g.tracker.Epoch(); e != nil {
		for _, w := range e.Scheduler.Workers() {
			s.Workers = append(s.Workers, client.WorkerStatus{Worker: w.Worker, Types: w.Types, Tags: w.Tags, Slots: w.Slots, Busy: w.Busy, LastHeard: job.At(w.LastHeard), Where: w.Where, Waiting: w.Waiting})
		}
	}
	err := b.view(func(r *reader) error {
		s.ClusterID, s.Level, s.Jobs, s.DeadLetters = r.Info.ClusterID, r.Info.Level, r.C.Jobs, r.C.Dead
		s.Hold = holdStatus(r.Info.Hold)
		s.History = client.HistoryStatus{First: r.C.HistFloor + 1, Last: r.C.HistSeq}
		if r.C.HistSeq == 0 {
			s.History.First = 0
		}
		var err error
		s.Backlog, s.NextDueAt, err = dueWork(r.View, now)
		return err
	})
	s.BacklogMore = s.Backlog >= backlogLimit
	s.OpenRuns = g.store.OpenRunCount()
	if err == nil {
		s.Notifications, err = b.notifications()
	}
	s.Troubles = b.troubles(ctx, &s)
	if p, other := n.tracker.Elsewhere(); other && !rd.Stale {
		b.askLeader(ctx, p, &s)
	}
	return s, err
}

// statusTimeout bounds how long a node asks the leader for what only that knows.
const statusTimeout = time.Second

// askLeader adds to a follower's status what the leader knows of members, workers and troubles, if it answers soon.
func (b *backend) askLeader(ctx context.Context, p forward.Leader, s *client.Status) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	c := client.New(p.Addr, client.WithHTTPClient(b.n.forward.Client()), client.WithAttempts(1), client.WithStale())
	far, err := c.Status(ctx)
	switch {
	case err != nil:
		s.Troubles = append(s.Troubles, silent(p, err))
	case far.State == "leader":
		s.Members, s.Workers, s.Troubles = far.Members, far.Workers, merge(far.Troubles, s.Troubles)
	}
}

// dueWork counts what is due and not claimed, and finds the time of what comes next.
func dueWork(v *store.View, now int64) (backlog int64, next job.Instant, err error) {
	at := int64(math.MaxInt64)
	for lane := job.Lane(0); lane < job.Lanes; lane++ {
		err := v.ScanDue(store.DueKey{Lane: lane}, now, func(e store.DueEntry) bool {
			if e.Kind != store.KindCleanup {
				backlog++
			}
			return backlog < backlogLimit
		})
		if err != nil {
			return 0, 0, err
		}
		if t, ok := v.NextDue(lane, now); ok {
			at = min(at, t)
		}
	}
	if at == math.MaxInt64 {
		at = 0
	}
	return backlog, job.Instant(at), nil
}

func suffrage(s raft.ServerSuffrage) string {
	if s == raft.Voter {
		return "voter"
	}
	return "nonvoter"
}

// raftStats is raft's own view, without what is shown elsewhere.
func raftStats(g *group) map[string]string {
	stats := maps.Clone(g.raft.Stats())
	delete(stats, "latest_configuration")
	return stats
}

// Live implements api.Backend: a process that is up and whose parts run should not be restarted, leader or not.
func (b *backend) Live() error {
	if b.g.raft.State() == raft.Shutdown && !b.n.stopping.Load() {
		return errors.New("raft has stopped")
	}
	return nil
}

// Ready implements api.Backend: it fails when this node should get no traffic. On the leader it watches the scheduling loop itself
// (pitfalls 37).
func (b *backend) Ready() error {
	if err := b.working(); err != nil {
		return err
	}
	if h := b.g.store.Info().Hold; h.On {
		return errHold(h)
	}
	return nil
}

// working is Ready without regard to a hold.
func (b *backend) working() error {
	if b.n.stopping.Load() {
		return job.Errorf(job.CodeNotReady, "", "this node is stopping")
	}
	if e := b.g.tracker.Epoch(); e != nil {
		if h := b.n.members.OwnHold(e); h != nil {
			return h.Err()
		}
		return e.Scheduler.Ready()
	}
	if err := b.n.members.Ready(); err != nil {
		return err
	}
	if _, id := b.g.raft.LeaderWithID(); id != "" && string(id) != b.n.cfg.NodeID {
		if h := b.n.members.Hold(); h != nil {
			return h.Err() // every node says so: requests land anywhere
		}
		return nil
	}
	return forward.ErrNoQuorum(b.n.members.Missing())
}

// ClockReset implements api.Backend. The stamp is the clock as it is: a leader that holds because of its clock must be able to do this.
func (b *backend) ClockReset(ctx context.Context, rq api.Request) error {
	e, err := b.n.tracker.Leading()
	if err != nil {
		return err
	}
	now := e.Scheduler.ResetStamp()
	b.g.log.Warn("clock reset: the mark is lowered to this node's clock", "now", job.Instant(now).String())
	o, err := propose(ctx, e, &fsm.ClockReset{Head: e.Head(now), Request: requestOf(rq, now)})
	if err != nil {
		return err
	}
	return outcomeError(o, "")
}
