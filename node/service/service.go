// Package service does what the API asks for: it implements api.Backend, by the state of this node and its leadership.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/ratelimit"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/insight"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/node/names"
	"github.com/carillon-scheduler/carillon/node/scrub"
	"github.com/carillon-scheduler/carillon/node/vault"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/notify"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
	"github.com/carillon-scheduler/carillon/store"
)

// Options are what a node is, and what its service stands on.
type Options struct {
	NodeID  string
	Version string
	Address string // how others reach it
	Started time.Time
	Skips   []datadir.SkippedEntry // entries of the log that it passes over
	DataDir string
	CopyDir string // where a copy of the state is made, on the file system of the data directory

	Group   uint32 // whose service it is
	Store   *store.Store
	Raft    Raft
	Tracker *forward.Tracker
	Members *membership.Members
	Clock   stamp.Clock
	Logger  *slog.Logger
	Notify  *notify.Settings
	Disk    func() wire.DiskSpace // the room that the data directory has
	// Scrub compares the states of the group's replicas; nil: it is not done.
	Scrub    *scrub.Replica
	MinFree  func(total uint64) uint64                         // how much of it must be left for jobs to be created
	Statfs   func(path string) (free, total uint64, err error) // as the file system says now
	Client   func() *http.Client                               // to other nodes
	Stopping func() bool
	Pace     faultpoint.Pace
	Refused  func(reason api.Refusal, who string) // told of what is refused because it is too much
	Secure   bool                                 // requests have an identity
	CAHash   func() keys.Hash                     // of the cluster's CA; nil: it has none
	Vault    *vault.Vault                         // of the secrets
	Calendar func(namespace, name string) []byte  // see view.Source
	Control  *Service                             // of the control group; nil: this is it, or there is one group
	// OtherUses are the uses of calendars and secrets by jobs of other groups; nil: this is not the control group.
	OtherUses func(context.Context, names.UsesOf) ([]names.Use, error)
	Names     *names.Keeper // nil: all names are of this group, the only one that has jobs
	DevKill   func()        // kills a node of a cluster to play with; nil: it is none
	// JoinTokens are the join token of an id, by each cluster key that counts, the one in use first; nil: the cluster
	// is plain. There are none while this node has no keys.
	JoinTokens func(id string) []keys.Token
}

// Raft is what the service asks of raft.
type Raft interface {
	LeaderWithID() (raft.ServerAddress, raft.ServerID)
	State() raft.RaftState
	CurrentTerm() uint64
	CommitIndex() uint64
	Stats() map[string]string
}

// Service answers the API. Its methods are spread over files by theme.
type Service struct {
	*insight.Service // lists, and what people look at
	src              *view.Source

	o         Options
	copies    *copies
	schedules scheduler.Schedules // of jobs that were created lately

	creates atomic.Pointer[batcher] // of the newest leadership

	turns  *ratelimit.Turns[string]
	caught caught
}

var _ api.Backend = (*Service)(nil)

// New makes the service of a node whose raft runs.
func New(o Options) *Service {
	b := &Service{o: o, copies: newCopies(o.Statfs)}
	turns := insight.NewTurns(o.Secure)
	if o.Control != nil { // the groups of a node share its processors
		turns = o.Control.turns
	}
	b.turns = turns
	b.src = &view.Source{Store: o.Store, Now: b.now, Leads: b.leads, Calendar: o.Calendar}
	b.Service = insight.New(insight.Options{NodeID: o.NodeID, Version: o.Version, Source: b.src, Fresh: b.fresh,
		Status: b.Status, StaleFor: func() time.Duration { return o.Tracker.StaleFor(o.Started) },
		Stopping: o.Stopping, Logger: o.Logger, Pace: o.Pace, Turns: turns,
		Refused: o.Refused})
	b.sayHold()
	return b
}

// leads is the scheduler of this node's leadership; nil if it has none.
func (b *Service) leads() *scheduler.Scheduler {
	if e := b.o.Tracker.Epoch(); e != nil {
		return e.Scheduler
	}
	return nil
}

func (b *Service) now() int64 { return b.o.Clock.Now().UnixMilli() }

var errEnded = errors.New("this leadership has ended")

const (
	// movedLimit is how often a change is computed again because the job moved under it.
	movedLimit = 10
	// keepClient and keepStamped are how long the outcome of a request is kept: as promised for a client's key, and
	// long enough for our own repetition after an ambiguous error otherwise.
	keepClient  = 24 * time.Hour
	keepStamped = 10 * time.Minute
)

// read calls fn with a view. Unless the caller is content with less, it is one that contains everything acknowledged
// before the call: the epoch began with a barrier, so the state holds what earlier leaders acknowledged; this leader
// acknowledges nothing that is not in its state; and a quorum just confirmed that there is no later leader.
func (b *Service) read(ctx context.Context, rd api.Read, fn func(*view.Reader) error) error {
	if err := b.fresh(ctx, rd); err != nil {
		return err
	}
	return b.view(fn)
}

// view looks at this node's own state.
func (b *Service) view(fn func(*view.Reader) error) error {
	return b.src.View(fn)
}

// fresh is verify unless the caller is content with less.
func (b *Service) fresh(ctx context.Context, rd api.Read) error {
	if rd.Stale {
		return nil
	}
	return b.verify(ctx)
}

// verify makes sure that this node leads, with a quorum.
func (b *Service) verify(ctx context.Context) error {
	e, err := b.o.Tracker.Leading()
	if err != nil {
		return err
	}
	if mutant.On(mutant.TrustReads) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, forward.LeaderWait)
	defer cancel()
	if e.Proposer.VerifyLeader(ctx) != nil {
		return forward.ErrNoLeader()
	}
	return nil
}

func requestID(rq api.Request) string { return wire.RequestID(rq.Owner, rq.Key, rq.Client) }

func requestOf(rq api.Request, now int64) fsm.Request {
	keep := keepStamped
	if rq.Client {
		keep = keepClient
	}
	return fsm.Request{ID: requestID(rq), Fingerprint: rq.Fingerprint, Expires: now + keep.Milliseconds()}
}

// attempt is what a change is computed from.
type attempt struct {
	*forward.Epoch
	now  int64
	head fsm.Head
	req  fsm.Request
}

// change proposes what build makes. The command is built again when the job moved under it. What the end of the
// leadership prevented is for the forwarder to repeat: the request id gives a second one, after an ambiguous error,
// the outcome of the first.
func (b *Service) change(ctx context.Context, rq api.Request,
	build func(attempt) (fsm.Command, error)) (fsm.Outcome, error) {
	deadline := time.Now().Add(forward.LeaderWait)
	for moved := 0; ; {
		e, now, err := b.stamp(ctx)
		if err != nil {
			return fsm.Outcome{}, err
		}
		a := attempt{Epoch: e, now: now, head: e.HeadFor(ctx, now), req: requestOf(rq, now)}
		cmd, refusal := build(a)
		if refusal != nil {
			if !rq.Repeat {
				return fsm.Outcome{}, refusal
			}
			// The earlier try may have succeeded and be the reason for the refusal: the job that it deleted is gone.
			cmd = &fsm.Lookup{Head: a.head, Request: a.req}
		}
		o, err := propose(ctx, e, cmd)
		switch {
		case job.CodeOf(err) == job.CodeNotReady && time.Now().Before(deadline) && wait.For(ctx, takeoverPause):
			// The feature level is about to be raised.
		case err != nil:
			return fsm.Outcome{}, err
		case refusal != nil && !o.Replay:
			return fsm.Outcome{}, refusal
		case o.Code == fsm.CodeStale: // the entry came into another term
			return fsm.Outcome{}, forward.ErrNoLeader()
		case o.Code != fsm.CodeMoved:
			if o.Replay && !rq.Repeat {
				api.MarkReplay(ctx)
			}
			return o, nil
		case moved >= movedLimit:
			return fsm.Outcome{}, job.Errorf(job.CodeUnavailable, "try again",
				"the job keeps changing during the edit; nothing was changed")
		default:
			moved++
		}
	}
}

// changeNamed is change with an error for an outcome that changed nothing; ref is how the caller named the thing.
func (b *Service) changeNamed(ctx context.Context, rq api.Request, ref string,
	build func(attempt) (fsm.Command, error)) (fsm.Outcome, error) {
	o, err := b.change(ctx, rq, build)
	if err == nil {
		err = outcomeError(o, ref)
	}
	return o, err
}

// propose enters a command about one thing.
func propose(ctx context.Context, e *forward.Epoch, cmd fsm.Command) (fsm.Outcome, error) {
	reply, err := e.Scheduler.Propose(ctx, cmd)
	if err != nil {
		return fsm.Outcome{}, err
	}
	if len(reply.Items) != 1 {
		return fsm.Outcome{}, fmt.Errorf("node: %T had %d outcomes", cmd, len(reply.Items))
	}
	return reply.Items[0], nil
}

// stamp is the current leadership and a time to put into a command.
func (b *Service) stamp(ctx context.Context) (e *forward.Epoch, now int64, err error) {
	if e, err = b.o.Tracker.Leading(); err != nil {
		return nil, 0, err
	}
	err = b.whenServing(ctx, e, func() (err error) {
		now, err = e.Scheduler.Stamp()
		return err
	})
	return e, now, err
}

// takeoverPause is how long a call waits before it asks a leader again that is taking over.
const takeoverPause = 10 * time.Millisecond

// whenServing asks a leader that is just taking over again until it has: nothing was done before. One that has held for
// longer does not trust its clock, and the caller should know.
func (b *Service) whenServing(ctx context.Context, e *forward.Epoch, ask func() error) error {
	for {
		err := ask()
		if job.CodeOf(err) != job.CodeNotReady || time.Since(e.Began) > forward.LeaderWait {
			return err
		}
		select {
		case <-time.After(takeoverPause):
		case <-b.o.Tracker.Leaving():
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// replay answers a request whose outcome is stored, before anything about it is checked again: the job that it deleted
// is gone, and the version that it named is old.
func (b *Service) replay(ctx context.Context, rq api.Request) (fsm.Outcome, bool, error) {
	if !rq.Client && !rq.Repeat {
		return fsm.Outcome{}, false, nil
	}
	if err := b.verify(ctx); err != nil {
		return fsm.Outcome{}, false, err
	}
	known := false
	err := b.view(func(r *view.Reader) error {
		known = r.Request(requestID(rq)) != nil
		return nil
	})
	if err != nil || !known {
		return fsm.Outcome{}, false, err
	}
	o, err := b.change(ctx, rq, func(a attempt) (fsm.Command, error) {
		return &fsm.Lookup{Head: a.head, Request: a.req}, nil
	})
	if err != nil {
		return o, false, err
	}
	if o.Code == fsm.CodeKeyReused {
		return o, false, names.KeyReused()
	}
	return o, o.Replay, nil
}

// outcomeError is what an outcome that changed nothing means; ref is how the caller named the thing.
func outcomeError(o fsm.Outcome, ref string) error {
	switch o.Code {
	case fsm.CodeOK, fsm.CodeQueued, fsm.CodeClaimed, fsm.CodeSkipped:
		return nil
	case fsm.CodeNotFound:
		return view.NoJob(ref)
	case fsm.CodeDuplicate, fsm.CodeExists:
		return names.Taken(o.Job)
	case fsm.CodePending:
		return names.Pending(ref)
	case fsm.CodeConflict:
		return job.Errorf(job.CodeVersionConflict, "read the job again and repeat the change",
			"the job is now at version %d", o.Version)
	case fsm.CodeKeyReused:
		return names.KeyReused()
	case fsm.CodeRefused:
		remedy := ""
		if o.Text == fsm.TextHold {
			remedy = view.HoldRemedy
		}
		return job.Errorf(job.CodeState, remedy, "%s", o.Text)
	}
	return job.Errorf(job.CodeUnavailable, "try again",
		"the state has changed meanwhile; nothing was changed (%d)", o.Code)
}

// show is the job after a change, as this node's state has it.
func (b *Service) show(id job.ID) (job.Job, error) {
	var j job.Job
	err := b.view(func(r *view.Reader) (err error) {
		j, err = r.Job(id)
		return err
	})
	return j, err
}
