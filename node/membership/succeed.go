package membership

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/transport"
)

// ConnectionLost is told of a node of which no connection to this one is left.
func (m *Members) ConnectionLost(h transport.Hello) {
	if !m.follows(h.NodeID) {
		return
	}
	select {
	case m.lost <- h.NodeID:
	default: // one is being looked into
	}
}

// Succeed stands for election when the leader's process is gone, until ctx ends. Raft would find out by the heartbeats
// that do not come, one to three timeouts later. Connections that ended alone say nothing: raft drops some by itself.
// Nor does a port that refuses connections: a firewall may do that. A process that is gone shows both. A machine that
// died and a network that is cut refuse nothing; there raft's timeouts decide.
func (m *Members) Succeed(ctx context.Context) {
	for id := ""; ctx.Err() == nil; {
		if id == "" {
			select {
			case <-ctx.Done():
				return
			case id = <-m.lost:
			}
		}
		id = m.succeed(ctx, id)
	}
}

// succeed takes turns with the other voters, by their ids: who stands at the same time splits the votes, and who lacks
// an entry that another one has is not elected. If another leader is lost while it waits, that one is returned.
func (m *Members) succeed(ctx context.Context, leader string) (next string) {
	turn := m.turn(leader)
	if turn < 0 || !m.gone(ctx, leader) {
		return ""
	}
	for due := time.After(time.Duration(turn) * m.o.Turn); due != nil; {
		select {
		case <-ctx.Done():
			return ""
		case id := <-m.lost: // each of a leader's connections is lost by itself
			if id != leader {
				return id
			}
		case <-due:
			due = nil
		}
	}
	if m.o.Standing.TakesNoPart() == nil && m.follows(leader) && (turn == 0 || m.gone(ctx, leader)) {
		m.o.Logger.Info("leader gone: standing for election", event.Standing, "leader", leader, "turn", turn)
		m.o.Campaign(ctx)
	}
	return ""
}

// follows says that this node has no other leader than the given one.
func (m *Members) follows(leader string) bool {
	r := m.raft.Load()
	if r == nil || r.State() != raft.Follower {
		return false
	}
	_, id := r.LeaderWithID()
	return id == "" || replica.Node(id) == leader
}

// turn is this node's place among those that could succeed a leader; -1: it has no vote.
func (m *Members) turn(leader string) int {
	servers := slices.DeleteFunc(slices.Clone(m.Configured()), func(s raft.Server) bool {
		return s.Suffrage != raft.Voter || replica.Node(s.ID) == leader
	})
	slices.SortFunc(servers, func(a, b raft.Server) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return slices.IndexFunc(servers, func(s raft.Server) bool { return replica.Node(s.ID) == m.id() })
}

const (
	dials        = 4
	betweenDials = 25 * time.Millisecond
)

// gone says that nothing listens where a node is, and that no connection of it is open. A process that ends may close
// its connections a moment before its port.
func (m *Members) gone(ctx context.Context, id string) bool {
	for i := range dials {
		if i > 0 && !wait.For(ctx, betweenDials) {
			return false
		}
		addr := m.where(id)
		if addr == "" || !m.follows(id) {
			return false
		}
		conn, err := m.o.Dial(whoTimeout, 0)(ctx, "tcp", string(addr))
		if errors.Is(err, syscall.ECONNREFUSED) {
			return !m.o.Connected(id) // it may have made another one since
		}
		if err != nil {
			return false
		}
		_ = conn.Close()
	}
	return false
}
