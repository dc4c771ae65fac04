package service

import (
	"context"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/store"
)

// With several groups calendars and secrets are in the control group, of which every node has a replica. It may lag
// behind what a client was told a moment ago: a job is refused for what is not there only after it has caught up.

// caught says of when the replica of the control group is at least.
type caught struct {
	mu sync.Mutex
	up time.Time
}

// again is what check says of a job, asked once more if what a job refers to may be newer than this node's replica of
// the control group. since is when the job came.
func (b *Service) again(ctx context.Context, since time.Time, check func() error) error {
	err := check()
	control := b.o.Control
	if err == nil || control == nil {
		return err
	}
	b.caught.mu.Lock()
	if b.caught.up.Before(since) {
		now := time.Now()
		control.catchUp(ctx) // in vain without a leader: then what is here is all that can be known
		b.caught.up = now
	}
	b.caught.mu.Unlock()
	return check()
}

// secretRow is a secret of the cluster.
func (b *Service) secretRow(k store.SecretKey) (*store.Secret, bool) {
	if b.o.Control != nil {
		return b.o.Control.o.Store.Secret(k)
	}
	return b.o.Store.Secret(k)
}
