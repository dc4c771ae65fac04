package service

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

// backlogLimit is where counting the backlog stops.
const backlogLimit = 10_000

// Status implements api.Backend. It answers with and without a leader: that is when it is asked.
func (b *Service) Status(ctx context.Context, rd api.Read) (wire.Status, error) {
	o := &b.o
	now := b.now()
	_, leader := o.Raft.LeaderWithID()
	if o.Members.Stopped() != nil {
		leader = "" // whoever leads does not lead this node
	}
	s := wire.Status{
		Node: o.NodeID, Version: o.Version, State: membership.StateName(o.Raft.State()), Leader: replica.Node(leader),
		Term: o.Raft.CurrentTerm(), Now: job.Instant(now), StartedAt: job.At(o.Started), Raft: raftStats(o.Raft),
		Members: []wire.Member{}, Workers: []wire.WorkerStatus{}, Disk: b.disk(), Skipped: o.Skips,
	}
	switch err := b.Ready(); {
	case err == nil:
		s.Ready = true
	case job.CodeOf(err) == job.CodeNoLeader:
		if s.NotReady = "there is no leader right now"; leader == "" {
			if why := o.Members.WhyNoLeader(ctx); why != "" {
				s.NotReady = "no leader: " + why
			}
		}
	default:
		s.NotReady = err.Error()
	}
	for _, m := range o.Members.Servers() {
		addr := string(m.Address)
		if replica.Node(m.ID) == o.NodeID {
			addr = o.Address // where it is now, not where it was when it joined
		}
		mb := wire.Member{ID: replica.Node(m.ID), Address: addr, Suffrage: suffrage(m.Suffrage),
			Leader: m.ID == leader}
		o.Members.Describe(&mb, o.Store.Counters().Index)
		s.Members = append(s.Members, mb)
	}
	slices.SortFunc(s.Members, func(a, b wire.Member) int { return strings.Compare(a.ID, b.ID) })
	if e := o.Tracker.Epoch(); e != nil {
		for _, w := range e.Scheduler.Workers() {
			s.Workers = append(s.Workers, wire.WorkerStatus{Worker: w.Worker, Namespace: w.Namespace,
				Types: w.Types, Tags: w.Tags,
				Slots: w.Slots, Busy: w.Busy, LastHeard: job.At(w.LastHeard), Where: w.Where, Waiting: w.Waiting})
		}
	}
	err := b.view(func(r *view.Reader) error {
		s.ClusterID, s.Level, s.Jobs, s.DeadLetters = r.Info.ClusterID, r.Info.Level, r.C.Jobs, r.C.Dead
		s.Hold, s.CA = holdStatus(r.Info.Hold), r.Info.Security.CA
		s.History = wire.HistoryStatus{Records: r.C.HistSeq - r.C.HistFloor, First: r.C.HistFloor + 1,
			Last: r.C.HistSeq}
		if r.C.HistSeq == 0 {
			s.History.First = 0
		}
		var err error
		s.Backlog, s.NextDueAt, err = dueWork(r.View, now)
		return err
	})
	s.BacklogMore = s.Backlog >= backlogLimit
	s.OpenRuns = o.Store.OpenRunCount()
	if err == nil {
		s.Notifications, err = b.notifications()
	}
	s.Rotation, s.Growth = b.o.Members.Rotating(), b.o.Members.Growing()
	s.Troubles = b.troubles(ctx, &s)
	if p, other := o.Tracker.Elsewhere(); other && !rd.Stale {
		b.askLeader(ctx, p, &s)
	}
	s.Groups = []wire.GroupStatus{groupStatus(b.o.Group, &s)}
	return s, err
}

// groupStatus is the part of a status that is about the group itself.
func groupStatus(group uint32, s *wire.Status) wire.GroupStatus {
	g := wire.GroupStatus{ID: group, Leader: s.Leader, Term: s.Term, Members: []string{}, Jobs: s.Jobs,
		OpenRuns: s.OpenRuns, Backlog: s.Backlog, BacklogMore: s.BacklogMore, DeadLetters: s.DeadLetters}
	for _, m := range s.Members {
		g.Members = append(g.Members, m.ID)
	}
	if s.Leader == "" {
		g.Problem = s.NotReady
	}
	return g
}

// statusTimeout bounds how long a node asks the leader for what only that knows.
const statusTimeout = time.Second

// askLeader makes a follower's status that of the leader, if it answers soon.
func (b *Service) askLeader(ctx context.Context, p forward.Leader, s *wire.Status) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	opts := []client.Option{client.WithHTTPClient(b.o.Client()), client.WithAttempts(1), client.WithStale()}
	if info := b.o.Store.Info(); max(info.Homes, info.Listed) > 1 { // its part in this group, and not the whole cluster
		opts = append(opts, client.WithHeader(wire.ForwardedHeader, b.o.NodeID),
			client.WithHeader(wire.GroupHeader, strconv.FormatUint(uint64(b.o.Group), 10)))
	}
	c := client.New(p.Addr, opts...)
	far, err := c.Status(ctx)
	switch {
	case err != nil:
		s.Troubles = append(s.Troubles, silent(p, err))
	case far.State == "leader":
		far.OnClock(s.Now, statusTimeout)
		adopt(s, &far)
	}
}

// adopt makes a follower's status that of the leader, but for what is about the node itself: its own state may be
// behind, and whoever asks must not have to know whom to ask.
func adopt(s, far *wire.Status) {
	s.ClusterID, s.Level, s.Hold, s.CA = far.ClusterID, far.Level, far.Hold, far.CA
	s.Jobs, s.OpenRuns, s.DeadLetters, s.History = far.Jobs, far.OpenRuns, far.DeadLetters, far.History
	s.Backlog, s.BacklogMore, s.NextDueAt = far.Backlog, far.BacklogMore, far.NextDueAt
	s.Members, s.Workers, s.Notifications = far.Members, far.Workers, far.Notifications
	s.Rotation, s.Growth = far.Rotation, far.Growth
	s.Troubles = merge(far.Troubles, s.Troubles)
	s.Insecure = s.Insecure || far.Insecure
}

// nextLook bounds how many clean-ups of a lane are passed over for what is due next.
const nextLook = 10_000

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
		if t, ok := v.NextWork(lane, now, nextLook); ok {
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
func raftStats(r Raft) map[string]string {
	stats := maps.Clone(r.Stats())
	delete(stats, "latest_configuration")
	return stats
}

// Live implements api.Backend: a process that is up and whose parts run should not be restarted, leader or not.
func (b *Service) Live() error {
	if b.o.Raft.State() == raft.Shutdown && !b.o.Stopping() {
		return errors.New("raft has stopped")
	}
	return nil
}

// Ready implements api.Backend: it fails when this node should get no traffic. On the leader it watches the scheduling
// loop itself.
func (b *Service) Ready() error {
	if err := b.Working(); err != nil {
		return err
	}
	if h := b.o.Store.Info().Hold; h.On {
		return errHold(h)
	}
	return nil
}

// disk is the room of this node's own directory, nil if that is not known.
func (b *Service) disk() *wire.DiskSpace {
	if d := b.o.Disk(); d.Total != 0 {
		return &d
	}
	return nil
}

// Working is Ready without regard to a hold.
func (b *Service) Working() error {
	if b.o.Stopping() {
		return job.Errorf(job.CodeNotReady, "", "this node is stopping")
	}
	if err := b.o.Members.Stopped(); err != nil {
		return err
	}
	if e := b.o.Tracker.Epoch(); e != nil {
		if h := b.o.Members.OwnHold(e); h != nil {
			return h.Err()
		}
		return e.Scheduler.Ready()
	}
	if err := b.o.Members.Ready(); err != nil {
		return err
	}
	if _, id := b.o.Raft.LeaderWithID(); id != "" && replica.Node(id) != b.o.NodeID {
		if h := b.o.Members.Hold(); h != nil {
			return h.Err() // every node says so: requests land anywhere
		}
		return nil
	}
	return forward.ErrNoQuorum(b.o.Members.Missing())
}

// ClockReset implements api.Backend. The stamp is the clock as it is: a leader that holds because of its clock must be
// able to do this.
func (b *Service) ClockReset(ctx context.Context, rq api.Request) error {
	e, err := b.o.Tracker.Leading()
	if err != nil {
		return err
	}
	now := e.Scheduler.ResetStamp()
	b.o.Logger.Warn("clock reset: the mark is lowered to this node's clock", "now", job.Instant(now).String())
	o, err := propose(ctx, e, &fsm.ClockReset{Head: e.HeadFor(ctx, now), Request: requestOf(rq, now)})
	if err != nil {
		return err
	}
	return outcomeError(o, "")
}

// notifications says that some could not be sent so far; nil if all is well.
func (b *Service) notifications() (*wire.NotificationStatus, error) {
	if b.o.Store.NoticeCount() == 0 {
		return nil, nil
	}
	s := &wire.NotificationStatus{Waiting: b.o.Store.NoticeCount()}
	left := 1000
	err := b.view(func(r *view.Reader) error {
		return r.EachNotice(func(n store.Notice) bool {
			if left--; n.Note != "" && (s.Since == 0 || int64(s.Since) > n.At) {
				s.Since, s.Error = job.Instant(n.At), n.Note
			}
			return left > 0
		})
	})
	if err != nil || s.Error == "" {
		return nil, err
	}
	return s, nil
}
