package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/internal/wait"
)

const (
	// heardLimit is longer than an election takes: what a node that stood still led is led by others then.
	heardLimit = 2 * time.Second
	heardLook  = 20 * time.Millisecond
)

// heard returns when the other nodes have a change in their states that this node has in its: what each of them looks
// up there is then what it is after the change. It does not wait for long; if a node may not have it yet, the answer
// warns of that, and says what it means.
func (b *Service) heard(ctx context.Context, what string) {
	if missing := b.awaitApplied(ctx, b.o.Store.Counters().Index); len(missing) > 0 {
		api.Warn(ctx, fmt.Sprintf("the change is made, but may not have reached %s yet: until it has, %s",
			strings.Join(missing, ", "), what))
	}
}

// heardByGroups is heard for what the leaders of other groups look up.
func (b *Service) heardByGroups(ctx context.Context, what string) {
	if info := b.o.Store.Info(); max(info.Homes, info.Groups) > 1 {
		b.heard(ctx, "groups that are led there go by "+what)
	}
}

// awaitApplied waits, for a while, until the other nodes have applied an entry that is committed, and says which of
// them may not have.
func (b *Service) awaitApplied(ctx context.Context, index uint64) (missing []string) {
	servers := slices.DeleteFunc(b.o.Members.Servers(), func(s raft.Server) bool {
		return replica.Node(s.ID) == b.o.NodeID
	})
	if len(servers) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, heardLimit)
	defer cancel()
	var all sync.WaitGroup
	// Followers hear of a commit with the next entry; without one, with the next heartbeat. That is what they hear it
	// with if this node leads no longer.
	all.Go(func() { _ = b.o.Members.Barrier(ctx) }) //nolint:errcheck // see above
	var mu sync.Mutex
	for _, s := range servers {
		all.Go(func() {
			if !b.applies(ctx, s, index) {
				mu.Lock()
				defer mu.Unlock()
				missing = append(missing, replica.Node(s.ID))
			}
		})
	}
	all.Wait()
	slices.Sort(missing)
	return missing
}

// applies says whether a node has applied an entry before ctx ends. One that was silent before is asked only once.
func (b *Service) applies(ctx context.Context, s raft.Server, index uint64) bool {
	m := wire.Member{ID: replica.Node(s.ID)}
	b.o.Members.Describe(&m, index)
	for {
		seen, err := b.o.Members.Probe(ctx, string(s.Address))
		if err == nil && seen.NodeID == m.ID && seen.Applied >= index {
			return true
		}
		if err != nil && m.State == "unreachable" || !wait.For(ctx, heardLook) {
			return false
		}
	}
}
