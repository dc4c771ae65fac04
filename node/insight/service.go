package insight

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/ratelimit"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// Options are what a Service stands on.
type Options struct {
	NodeID, Version string
	Source          *view.Source
	// Fresh makes sure that this node leads, with a quorum, unless the caller is content with less.
	Fresh    func(ctx context.Context, rd api.Read) error
	Status   func(ctx context.Context, rd api.Read) (wire.Status, error)
	StaleFor func() time.Duration // how old this node's state may be
	Stopping func() bool
	Logger   *slog.Logger
	Pace     faultpoint.Pace                      // of what is counted for people; tests alone slow it down
	Refused  func(reason api.Refusal, who string) // is told of reads that may not even wait; nil: nothing is
	// Turns bounds the reads that compute much, by token, over all groups of a node.
	Turns *ratelimit.Turns[string]
}

// readsWaiting is how many expensive reads of one token wait for their turn at a node.
const readsWaiting = 64

// NewTurns bounds how many expensive reads a node computes at once: as many as half of its processors, at least two;
// half of them of one token, if there are tokens.
func NewTurns(secure bool) *ratelimit.Turns[string] {
	all := max(2, runtime.GOMAXPROCS(0)/2)
	each := all
	if secure {
		each = all / 2
	}
	return ratelimit.NewTurns[string](all, each, readsWaiting)
}

// Service answers the reading part of api.Backend. Its methods are spread over files by theme.
type Service struct {
	o    Options
	feed statsFeed
	// schedules of jobs that were looked at lately
	schedules scheduler.Schedules
	viewers   viewers
}

// New makes the Service of a node.
func New(o Options) *Service {
	b := &Service{o: o, feed: statsFeed{rings: &Rings{}}, viewers: viewers{came: make(chan struct{}, 1)}}
	b.feed.rings.Begin(0)
	return b
}

// patience bounds how long a request looks for what it is asked for, once it has looked at a fair number: then it
// answers with what it has, and a cursor. A person waits for it, and the machine may be busy.
type patience struct {
	began time.Time
	least int
}

// patient begins to look.
func patient(least int) patience { return patience{time.Now(), least} }

// over says that it has looked for long enough.
func (p patience) over(looked int) bool { return looked >= p.least && time.Since(p.began) > lookTime }

const lookTime = 500 * time.Millisecond

func (b *Service) now() int64 { return b.o.Source.Now() }

// view looks at this node's own state.
func (b *Service) view(fn func(*view.Reader) error) error { return b.o.Source.View(fn) }

// Turn makes sure that the answer will be as fresh as the caller wants it, and waits until this node has time for a
// read that computes much: as many as callers ask for at once would take its memory and its processors. To encode the
// answer costs more than to compute it, and belongs to the turn.
func (b *Service) Turn(ctx context.Context, rd api.Read) (end func(), err error) {
	if err := b.o.Fresh(ctx, rd); err != nil {
		return nil, err
	}
	token, name := "", ""
	if id := api.IdentityOf(ctx); id != nil {
		token, name = id.Token, id.Name
	}
	api.EndTurn(ctx)
	end, err = b.o.Turns.Take(ctx, token)
	if err == nil {
		return api.KeepTurn(ctx, end), nil
	}
	if errors.Is(err, ratelimit.ErrCrowded) {
		if b.o.Refused != nil {
			b.o.Refused(api.RefusedExpensive, name)
		}
		return nil, job.Errorf(job.CodeTooManyRequests, "wait for some to end, or ask for less at once",
			"%d reads of this caller are already waiting at this node", readsWaiting)
	}
	return nil, err
}

// read is view for a caller who may want a fresh answer.
func (b *Service) read(ctx context.Context, rd api.Read, fn func(*view.Reader) error) error {
	if err := b.o.Fresh(ctx, rd); err != nil {
		return err
	}
	return b.view(fn)
}
