package forward

import (
	"context"
	"net/http"
	"sync"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/job"
)

// Away are the ways to the leaders of groups that this node has no replica of, of each that was asked for.
type Away struct {
	o       AwayOptions
	tracker TrackerOptions
	forward Options

	mu   sync.Mutex
	by   map[uint32]awayGroup
	left bool
}

// AwayOptions say where such groups are.
type AwayOptions struct {
	LeaderOf func(ctx context.Context, group uint32) (id, addr string) // as the nodes that have a replica say
	Having   func(group uint32) []string                               // the addresses of those
}

type awayGroup struct {
	tracker *Tracker
	forward *Forwarder
}

// NewAway makes ways that are all made as t and f say.
func NewAway(o AwayOptions, t TrackerOptions, f Options) *Away {
	f.Local = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // a body that could not be kept
		api.WriteError(w, job.Errorf(job.CodeTooLarge, "send less", "the body is too large, or broke off"))
	})
	return &Away{o: o, tracker: t, forward: f, by: map[uint32]awayGroup{}}
}

// Tracker follows who leads a group, while that is asked for.
func (a *Away) Tracker(group uint32) *Tracker { return a.group(group).tracker }

// Forwarder brings requests to a group's leader.
func (a *Away) Forwarder(group uint32) *Forwarder { return a.group(group).forward }

func (a *Away) group(number uint32) awayGroup {
	a.mu.Lock()
	defer a.mu.Unlock()
	g, known := a.by[number]
	if known {
		return g
	}
	g.tracker = NewDistant(a.tracker, func(ctx context.Context) (string, string) { return a.o.LeaderOf(ctx, number) })
	f := a.forward
	f.Group, f.Tracker, f.Having = number, g.tracker, func() []string { return a.o.Having(number) }
	g.forward = New(f)
	if a.left {
		g.tracker.Leave()
	}
	a.by[number] = g
	return g
}

// Leave says that this node stops, and gives up idle connections.
func (a *Away) Leave() {
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
