package node

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/raftslog"
)

// away are the groups that this node has no replica of, and that it was asked about.
type away struct {
	mu   sync.Mutex
	by   map[uint32]awayGroup
	left bool
}

// awayGroup is the way to the leader of such a group.
type awayGroup struct {
	tracker *forward.Tracker
	forward *forward.Forwarder
}

func (a *away) group(n *Node, number uint32) awayGroup {
	a.mu.Lock()
	defer a.mu.Unlock()
	g, known := a.by[number]
	if known {
		return g
	}
	g.tracker = forward.NewDistant(forward.TrackerOptions{Self: n.cfg.NodeID,
		Interval: n.cfg.Machine.Pace.Of(time.Second)}, func(ctx context.Context) (string, string) {
		return n.members.LeaderOf(ctx, number)
	})
	g.forward = forward.New(forward.Options{
		Self: n.cfg.NodeID, Group: number, Tracker: g.tracker, Dial: n.dialer, Logger: n.cfg.Logger, Began: n.started,
		ErrorLog: raftslog.New(n.cfg.Logger).StandardLogger(nil),
		Having:   func() []string { return n.members.Having(number) },
		Local: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // a body that could not be kept
			api.WriteError(w, job.Errorf(job.CodeTooLarge, "send less", "the body is too large, or broke off"))
		}),
	})
	if a.left {
		g.tracker.Leave()
	}
	if a.by == nil {
		a.by = map[uint32]awayGroup{}
	}
	a.by[number] = g
	return g
}

// leave says that this node stops, and gives up idle connections.
func (a *away) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.by {
		if !a.left {
			g.tracker.Leave()
		}
		g.forward.Close()
	}
	a.left = true
}
