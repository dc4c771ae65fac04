package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// MaxCopies is how many backups a node sends at a time: each lies on its disk until it is sent.
	MaxCopies = 2
	// copyReserve is what a copy leaves free on the disk at least, whatever the limit of the node is. A disk that it
	// filled would end the node: the next write to the log would fail.
	copyReserve = 64 << 20
)

// copies bounds the copies of the state that lie about for backups.
type copies struct {
	slots  chan struct{}
	making chan struct{} // one at a time, so that what is free is not promised twice
	statfs func(path string) (free, total uint64, err error)
}

func newCopies(statfs func(path string) (free, total uint64, err error)) *copies {
	return &copies{slots: make(chan struct{}, MaxCopies), making: make(chan struct{}, 1), statfs: statfs}
}

// Backup implements api.Backend. The copy is an unnamed file: reading it keeps no transaction open, closing it frees
// it, and a crash leaves nothing.
func (b *Service) Backup(ctx context.Context) (info wire.BackupInfo, rc io.ReadCloser, err error) {
	if err := b.confirm(ctx); err != nil {
		return info, nil, err
	}
	select {
	case b.copies.slots <- struct{}{}:
	default:
		return info, nil, job.Errorf(job.CodeUnavailable, "wait for them, or ask another node",
			"%d backups of this node are already in progress", MaxCopies)
	}
	defer func() {
		if err != nil {
			<-b.copies.slots
		}
	}()
	select {
	case b.copies.making <- struct{}{}:
		defer func() { <-b.copies.making }()
	case <-ctx.Done():
		return info, nil, ctx.Err()
	}
	switch i := b.o.Store.Info(); {
	case i.ClusterID == "":
		return info, nil, job.Errorf(job.CodeNotReady, "ask a node that has joined", "this node has no state yet")
	case i.Group == 0 && i.Homes > 1 && i.Groups < i.Homes:
		return info, nil, job.Errorf(job.CodeNotReady, "try again in a moment",
			"the groups of the cluster are still being created")
	}
	size := uint64(b.o.Store.Size())
	if free, total, err := b.copies.statfs(b.o.DataDir); err == nil {
		// Below its limit the node would refuse to create jobs.
		if reserve := max(copyReserve, b.o.MinFree(total)); free < size+reserve {
			return info, nil, job.Errorf(job.CodeStorageFull, "make room in the data directory, or ask another node",
				"a copy of the state needs %s and must leave %s free, but only %s are free",
				job.Bytes(size), job.Bytes(reserve), job.Bytes(free))
		}
	}
	if b.o.Group == 0 { // it is copied before the others, and the record is about all of them
		if err := b.recordBackup(ctx); err != nil {
			return info, nil, err
		}
	}
	b.catchUp(ctx)
	age := b.age()
	h, n, rc, err := fsm.Stream(b.o.Store, b.o.CopyDir)
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return info, nil, job.Errorf(job.CodeStorageFull, "make room in the data directory, or ask another node",
			"the state cannot be copied: %v", err)
	case errors.Is(err, store.ErrClosed):
		return info, nil, job.Errorf(job.CodeNotReady, "", "this node is stopping")
	case err != nil:
		return info, nil, fmt.Errorf("copy the state for a backup: %w", err)
	}
	b.o.Logger.Info("backup started", "index", h.Index, "bytes", n, "age", age)
	info = wire.BackupInfo{ClusterID: h.ClusterID, Index: h.Index, Age: age, Size: n, Groups: h.Groups}
	return info, &copied{ReadCloser: rc, free: func() { <-b.copies.slots }}, nil
}

// catchUpLimit is how long a backup waits for what the leader had applied when it was asked for.
const (
	catchUpLimit = 2 * time.Second
	catchUpLook  = 5 * time.Millisecond
)

// catchUp waits until this node has what the leader had when it asked: a follower hears of a commit a moment later than
// its client does, and a backup should have everything that was acknowledged before. Without a leader, or with one that
// is far ahead, the backup says how old it is.
func (b *Service) catchUp(ctx context.Context) {
	p, other := b.o.Tracker.Elsewhere()
	if !other {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpLimit)
	defer cancel()
	leader, err := b.o.Members.Probe(ctx, p.Addr)
	if err != nil {
		return
	}
	look := time.NewTicker(catchUpLook)
	defer look.Stop()
	for b.o.Store.Counters().Index < leader.Applied {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// copied gives its slot back when it is closed.
type copied struct {
	io.ReadCloser
	once sync.Once
	free func()
}

func (c *copied) Close() error {
	defer c.once.Do(c.free)
	return c.ReadCloser.Close()
}

// age is how old this node's state is against the leader's, as far as it knows. One that hears the leader and has not
// yet applied what it heard is as old as the last stamp that it applied.
func (b *Service) age() time.Duration {
	age := b.o.Tracker.StaleFor(b.o.Started)
	c := b.o.Store.Counters()
	if b.o.Tracker.Epoch() == nil && b.o.Raft.CommitIndex() > c.Index+membership.PromoteLag {
		age = max(age, time.Duration(b.now()-c.Mark)*time.Millisecond)
	}
	return age
}

// errHold is why nothing runs in a restored cluster.
func errHold(h store.Hold) error {
	if h.Releasing {
		return job.Errorf(job.CodeNotReady, "wait a moment",
			"the cluster is being released: the open runs of the backup are being recorded as lost")
	}
	return job.Errorf(job.CodeNotReady, view.HoldRemedy, "%s", fsm.TextHold)
}

// sayHold says at the start why nothing is going to run.
func (b *Service) sayHold() {
	if h := b.o.Store.Info().Hold; h.On {
		b.o.Logger.Warn("cluster on hold: it was restored from a backup; nothing runs until it is released",
			event.Restored, "restored_at", job.Instant(h.Since).String(),
			"from_cluster", h.Cluster, "from_index", h.Index, "remedy", view.HoldRemedy)
	}
}

func holdStatus(h store.Hold) *wire.HoldStatus {
	if !h.On {
		return nil
	}
	s := &wire.HoldStatus{Since: job.Instant(h.Since), FromCluster: h.Cluster, FromIndex: h.Index,
		Releasing: h.Releasing, Remedy: view.HoldRemedy}
	if h.Releasing {
		s.Remedy = "wait a moment"
	}
	return s
}

// releaseWait is how long a release waits for the open runs of the backup to be closed; they go on being closed without
// it.
const releaseWait = 5 * time.Second

// Release implements api.Backend. A group of jobs is not released by itself: it follows the control group.
func (b *Service) Release(ctx context.Context, rq api.Request) (wire.ReleaseResult, error) {
	var r wire.ReleaseResult
	if b.o.Group == 0 {
		o, err := b.changeNamed(ctx, rq, "", func(a attempt) (fsm.Command, error) {
			return &fsm.Release{Head: a.head, Request: a.req}, nil
		})
		if err != nil {
			return r, err
		}
		if r.Released = o.Count > 0; r.Released {
			b.o.Logger.Warn("cluster released: an operator confirmed that the cluster of the backup is gone",
				event.Released, "at", job.Instant(b.o.Store.Info().Released).String())
		}
	}
	for end := time.Now().Add(releaseWait); b.o.Store.Info().Hold.On && time.Now().Before(end); {
		if !wait.For(ctx, 20*time.Millisecond) {
			break
		}
	}
	info := b.o.Store.Info()
	r.Releasing, r.At = info.Hold.On, job.Instant(info.Released)
	if b.o.Group != 0 && info.Hold.On && !info.Hold.Releasing {
		r.Releasing, r.Waiting = false, []uint32{b.o.Group}
	}
	return r, nil
}

// releaseAgain is when a group that could not be released is tried again.
const releaseAgain = time.Second

// FollowRelease is the part of the leader of a group of jobs that ends its hold when that of the control group is over.
// It needs no request: a release that was cut off goes on here, and a group that had no leader is released by its next.
func (b *Service) FollowRelease(control *store.Store) func(*forward.Epoch) func(context.Context) {
	return func(e *forward.Epoch) func(context.Context) {
		return func(ctx context.Context) {
			wake := make(chan struct{}, 1)
			defer control.Listen(func(*store.Changes) { wait.Wake(wake) })()
			for b.o.Store.Info().Hold.On {
				if err := b.releaseAfter(ctx, e, control.Info()); err != nil && ctx.Err() == nil {
					b.o.Logger.Warn("group not released; trying again", "error", err)
				}
				if wait.Within(ctx, wake, b.o.Pace.Of(releaseAgain)); ctx.Err() != nil {
					return
				}
			}
			<-ctx.Done()
		}
	}
}

// releaseAfter releases the group if the control group was. A state of that which is not of this cluster is one that
// this node has not got yet.
func (b *Service) releaseAfter(ctx context.Context, e *forward.Epoch, control store.Info) error {
	info := b.o.Store.Info()
	if info.ClusterID != control.ClusterID || info.Hold.Releasing || control.Hold.On && !control.Hold.Releasing {
		return nil
	}
	now, err := e.Scheduler.Stamp()
	if err != nil {
		return err
	}
	_, err = propose(ctx, e, &fsm.Release{Head: e.Head(now), At: control.Released})
	return err
}
