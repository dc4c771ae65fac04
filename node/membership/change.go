package membership

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

// This file is how the leader changes who the members are. How it looks after them is in settle.go.

func (m *Members) rowOf(rq wire.JoinRequest) store.Node {
	return store.Node{ID: rq.NodeID, Instance: rq.InstanceID, Address: rq.Address, Version: rq.Version, Level: rq.Level,
		Slots: rq.Slots, Tags: rq.Tags}
}

// differs says whether a row is not what a node says of itself.
func differs(have, want store.Node) bool {
	return have.Instance != want.Instance || have.Address != want.Address || have.Version != want.Version ||
		have.Level != want.Level || have.Slots != want.Slots || !maps.Equal(have.Tags, want.Tags) ||
		have.Key == "" && want.Key != ""
}

// head is the stamp of a command about members. It is the scheduler's if that trusts its clock; otherwise it does not
// move the mark.
func (m *Members) head(e *forward.Epoch) fsm.Head {
	now, err := e.Scheduler.Stamp()
	if err != nil {
		now = m.o.Store.Counters().Mark
	}
	return e.Head(now)
}

// propose enters a command about one member. A leader with a clock that it does not trust may do this.
func (m *Members) propose(ctx context.Context, e *forward.Epoch, cmd fsm.Command) (fsm.Outcome, error) {
	f := e.Proposer.Propose(cmd)
	type answer struct {
		reply *fsm.Reply
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		r, err := f.Wait()
		done <- answer{r, err}
	}()
	select {
	case a := <-done:
		if a.err != nil {
			return fsm.Outcome{}, forward.Explain(a.err)
		}
		return a.reply.Items[0], nil
	case <-ctx.Done():
		return fsm.Outcome{}, job.Errorf(job.CodeOutcomeUnknown, "repeat it", "it may or may not have been done: %v",
			ctx.Err())
	}
}

// asked is the head of a command that a request asks for: it is recorded with its caller.
func (m *Members) asked(ctx context.Context, e *forward.Epoch) fsm.Head {
	h := m.head(e)
	if h.By = forward.CallerOf(ctx); h.By != nil {
		by, _ := api.CallerOf(ctx)
		h.By.Request = by.Request
	}
	return h
}

// noteKept is how long it is known that a request was recorded: long enough for it to be repeated by the node that had
// it from its caller.
const noteKept = 10 * time.Minute

// recordFirst records what a request asks for that is done to raft's configuration only, before it is done.
func (m *Members) recordFirst(ctx context.Context, e *forward.Epoch, action, id string) error {
	h := m.asked(ctx, e)
	if h.By == nil {
		return nil
	}
	if mutant.On(mutant.NoFinalStamp) { // this stamp would do for the one that is left out
		h.Now = m.o.Store.Counters().Mark
	}
	cmd := &fsm.Note{Head: h, Action: action, ID: id}
	if key := h.By.Request; key != "" {
		cmd.Request = fsm.Request{ID: "note:" + action + ":" + id + ":" + h.By.Token + ":" + key,
			Expires: h.Now + noteKept.Milliseconds()}
	}
	o, err := m.propose(ctx, e, cmd)
	if err == nil && o.Code != fsm.CodeOK {
		err = job.Errorf(job.CodeUnavailable, "try again", "it could not be recorded, so nothing was changed (%d)",
			o.Code)
	}
	return err
}

// putRow writes a row, of a new member with the join token that it came with.
func (m *Members) putRow(ctx context.Context, e *forward.Epoch, h fsm.Head, row store.Node, token string) error {
	o, err := m.propose(ctx, e, &fsm.PutNode{Head: h, Node: row, Join: token})
	if err != nil {
		return err
	}
	switch o.Code {
	case fsm.CodeOK:
		return nil
	case fsm.CodeRefused:
		return job.Errorf(job.CodeState, "", "%s", o.Text)
	}
	return job.Errorf(job.CodeUnavailable, "try again",
		"the state has changed meanwhile; nothing was changed (%d)", o.Code)
}

// reconfigure changes raft's configuration. Raft could be told which one was looked at, but does not tell its index; so
// this relies on the lock, and on settle for what another leader did in between.
func (m *Members) reconfigure(ctx context.Context, do func(r *raft.Raft) raft.Future) error {
	err := m.await(ctx, func(r *raft.Raft) error { return do(r).Error() })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress),
		errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrRaftShutdown):
		return forward.ErrNoLeader()
	}
	return job.Errorf(job.CodeOutcomeUnknown, "check `carillon cluster members`, and repeat it if it was not done",
		"the membership may or may not have changed: %v", err)
}

// await asks raft for something that cannot be given up, and waits for the answer for as long as ctx allows.
func (m *Members) await(ctx context.Context, ask func(*raft.Raft) error) error {
	if !m.o.Flight.Enter() {
		return raft.ErrRaftShutdown
	}
	done := make(chan error, 1)
	go func() {
		defer m.o.Flight.Leave()
		done <- ask(m.raft.Load())
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Barrier enters an entry that changes nothing, and waits until it is committed.
func (m *Members) Barrier(ctx context.Context) error {
	return m.await(ctx, func(r *raft.Raft) error { return r.Barrier(m.o.ApplyTimeout).Error() })
}

// add makes a server a non-voter. It must not be there yet: raft would leave a voter one and give it the new address.
func (m *Members) add(ctx context.Context, id raft.ServerID, addr string) error {
	return m.reconfigure(ctx, func(r *raft.Raft) raft.Future {
		return r.AddNonvoter(id, raft.ServerAddress(addr), 0, m.o.ApplyTimeout)
	})
}

func (m *Members) demote(ctx context.Context, s raft.Server) error {
	return m.reconfigure(ctx, func(r *raft.Raft) raft.Future {
		return r.DemoteVoter(s.ID, 0, m.o.ApplyTimeout)
	})
}

// drop marks a member's row and takes its server out.
func (m *Members) drop(ctx context.Context, e *forward.Epoch, id string) error {
	if r, ok := m.Row(id); ok && !r.Removed {
		cmd := &fsm.RemoveNode{Head: m.asked(ctx, e), ID: id, Instance: r.Instance}
		if r.Leaving {
			cmd.Head = m.head(e) // what was asked for is recorded
		}
		if _, err := m.propose(ctx, e, cmd); err != nil {
			return err
		}
	}
	s, in := FindServer(m.Configured(), id)
	if !in {
		return nil
	}
	err := m.reconfigure(ctx, func(r *raft.Raft) raft.Future { return r.RemoveServer(s.ID, 0, m.o.ApplyTimeout) })
	if err != nil {
		return job.Errorf(job.CodeOutcomeUnknown, "repeat the command to see when it is done",
			"node %s is marked as removed, and the leader will take it out as soon as it can: %v", id, err)
	}
	m.o.Logger.Info("member removed", event.MemberRemoved, "node", id)
	return nil
}

// subject is a member that something is done to, as everything is at that moment: what the others are doing was just
// asked.
type subject struct {
	e       *forward.Epoch
	server  raft.Server
	row     store.Node
	peer    peer // the leader's view; zero for the leader itself
	servers []raft.Server
}

// on does something to one member, with nothing else changing the membership meanwhile.
func (m *Members) on(ctx context.Context, id string, do func(subject) error) error {
	e, err := m.o.Tracker.Leading()
	if err != nil {
		return err
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	t := subject{e: e, servers: m.Configured()}
	var in bool
	if t.server, in = FindServer(t.servers, id); !in {
		return job.Errorf(job.CodeNotFound, "`carillon cluster members` lists them", "the cluster has no node %q", id)
	}
	t.row, _ = m.Row(id)
	m.probeAll(ctx, e)
	m.mu.Lock()
	if p := m.peers[id]; p != nil {
		t.peer = *p
	}
	m.mu.Unlock()
	return do(t)
}

// Promote implements api.Cluster.
func (m *Members) Promote(ctx context.Context, id string) error {
	return m.on(ctx, id, func(t subject) error {
		if t.server.Suffrage != raft.Voter {
			switch {
			case t.peer.problem != "":
				return job.Errorf(job.CodeState, "bring it back first", "node %s: %s", id, t.peer.problem)
			case t.peer.close.IsZero(): // a voter that is far behind holds up every commit that needs it
				return job.Errorf(job.CodeState, "wait until it has caught up", "node %s is too far behind to vote", id)
			}
		}
		if err := m.recordFirst(ctx, t.e, "member.promote", id); err != nil {
			return err
		}
		if t.server.Suffrage != raft.Voter {
			if err := m.handKeys(ctx, t.row); err != nil {
				return job.Errorf(job.CodeUnavailable, "try again", "%v", err)
			}
		}
		if err := m.setStandby(ctx, t, false); err != nil || t.server.Suffrage == raft.Voter {
			return err
		}
		return m.reconfigure(ctx, func(r *raft.Raft) raft.Future {
			return r.AddVoter(t.server.ID, t.server.Address, 0, m.o.ApplyTimeout)
		})
	})
}

// Demote implements api.Cluster. The row keeps the wish: otherwise the leader would promote it again at once.
func (m *Members) Demote(ctx context.Context, id string) error {
	return m.on(ctx, id, func(t subject) error {
		if err := m.quorumWithout(t.servers, id); err != nil {
			return err
		}
		if id == m.id() {
			return m.handOver(ctx, verbDemote)
		}
		if err := m.recordFirst(ctx, t.e, "member.demote", id); err != nil {
			return err
		}
		if err := m.setStandby(ctx, t, true); err != nil || t.server.Suffrage != raft.Voter {
			return err
		}
		return m.demote(ctx, t.server)
	})
}

// setStandby writes into a member's row whether it should stay without a vote.
func (m *Members) setStandby(ctx context.Context, t subject, standby bool) error {
	if t.row.ID == "" || t.row.Removed {
		return job.Errorf(job.CodeState, "wait until it has announced itself", "node %s has no row yet", t.server.ID)
	}
	if t.row.Standby == standby {
		return nil
	}
	t.row.Standby = standby
	return m.putRow(ctx, t.e, m.head(t.e), t.row, "")
}

// Transfer implements api.Cluster. A node with a wrong clock gets the leadership only by force: it would hold.
func (m *Members) Transfer(ctx context.Context, id string, force bool) error {
	e, err := m.o.Tracker.Leading()
	if err != nil || id == m.id() {
		return err
	}
	if id != "" {
		return m.on(ctx, id, func(t subject) error {
			switch {
			case t.server.Suffrage != raft.Voter:
				return job.Errorf(job.CodeState, "promote it first", "node %s has no vote and cannot lead", id)
			case t.peer.seen.at.IsZero() || t.peer.problem != "":
				return job.Errorf(job.CodeState, "choose another", "node %s does not answer", id)
			}
			if !force {
				if err := m.CheckClock(id); err != nil {
					return err
				}
			}
			if err := m.recordFirst(ctx, e, "cluster.transfer", id); err != nil {
				return err
			}
			m.StampBeforeTransfer(ctx, e)
			return m.transfer(ctx, id, transferTries)
		})
	}
	if err := m.lock(ctx); err != nil {
		return err
	}
	defer m.unlock()
	if len(m.Configured()) < 2 {
		return job.Errorf(job.CodeState, "let another node join first",
			"there is no other node to hand the leadership to")
	}
	m.probeAll(ctx, e)
	to := m.successor()
	if to == "" && !force {
		_, rest := m.transferTarget(UnfitClock, true)
		return job.Errorf(job.CodeState,
			"correct the clocks and bring the nodes back, or repeat it with --force (\"force\": true)",
			"the leadership stays here: %s", cmp.Or(rest, "no other node votes"))
	}
	if err := m.recordFirst(ctx, e, "cluster.transfer", to); err != nil {
		return err
	}
	m.StampBeforeTransfer(ctx, e)
	return m.transfer(ctx, to, transferTries)
}

const (
	verbRemove = "remove"
	verbDemote = "demote"
)

// askNext asks the next leader. On a secure cluster this node's certificate lets it ask for itself only.
func (m *Members) askNext(ctx context.Context, l forward.Leader, verb string) error {
	if m.o.Keys != nil {
		row, ok := m.Row(l.ID)
		if !ok {
			return forward.ErrNoLeader()
		}
		return m.internal(ctx, http.MethodPost, row, SelfPath, selfRequest{verb}, nil)
	}
	by, _ := api.CallerOf(ctx)
	var who []client.Option
	for name, value := range by.Headers(m.id()) {
		who = append(who, client.WithHeader(name, value))
	}
	if by.Request != "" {
		ctx = client.WithIdempotencyKey(ctx, by.Request)
	}
	c := m.client(l.Addr, who...)
	if verb == verbRemove {
		return c.RemoveNode(ctx, m.id())
	}
	return c.DemoteNode(ctx, m.id())
}

// handOver has the next leader do to this node what a leader cannot do to itself.
func (m *Members) handOver(ctx context.Context, verb string) error {
	by, _ := api.CallerOf(ctx)
	m.o.Logger.Info("handing over the leadership first", "for", verb, "by", by.Name)
	if e := m.o.Tracker.Epoch(); e != nil {
		m.StampBeforeTransfer(ctx, e)
	}
	if err := m.transfer(ctx, m.successor(), transferTries); err != nil {
		return err
	}
	for asked := false; ; asked = true {
		l, ok := m.o.Tracker.Wait(ctx, time.Time{}, forward.Leader.Known)
		if !ok || l.Epoch != nil {
			return forward.ErrNoLeader() // it came back to this node; who asked may ask again
		}
		switch err := m.askNext(ctx, l, verb); job.CodeOf(err) {
		case job.CodeNoLeader, job.CodeNotLeader, job.CodeNotReady, job.CodeUnavailable: // not yet, or no longer
		case job.CodeForbidden:
			if asked && verb == verbRemove { // removed by the request before, whose answer was lost
				return nil
			}
			return err
		default:
			return err
		}
		if !wait.For(ctx, 50*time.Millisecond) {
			return forward.ErrNoLeader()
		}
	}
}
