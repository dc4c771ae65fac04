package node

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// A goroutine of an old leadership can do nothing.
func TestAnEndedLeadershipProposesNothing(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	e := n.prop()
	e.End()
	before := n.group.raft.LastIndex()
	if _, err := e.Propose(&fsm.Stamp{}).Wait(); !errors.Is(err, scheduler.ErrNotApplied) {
		t.Error(err)
	}
	if err := e.VerifyLeader(context.Background()); err == nil {
		t.Error("it believes that it leads")
	}
	if after := n.group.raft.LastIndex(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

// The order of one goroutine's calls is the order in the log.
func TestOrderOfProposals(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	e := n.tracker.Epoch()
	var futures []scheduler.Future
	const count = 300
	for i := range count {
		futures = append(futures, e.Proposer.Propose(&fsm.Calendar{Head: fsm.Head{Now: n.group.now(), Term: e.Term},
			Name: "c", Data: []byte{1, byte(i), byte(i >> 8)}}))
	}
	for _, f := range futures {
		if _, err := f.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	last := -1
	for i := uint64(1); i <= n.group.raft.LastIndex(); i++ {
		var l raft.Log
		if err := n.group.logs.GetLog(i, &l); err != nil {
			t.Fatal(err)
		}
		if l.Type != raft.LogCommand {
			continue
		}
		cmd, err := fsm.Decode(l.Data)
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := cmd.(*fsm.Calendar); ok {
			if got := int(c.Data[1]) | int(c.Data[2])<<8; got != last+1 {
				t.Fatalf("%d follows %d", got, last)
			}
			last++
		}
	}
	if last != count-1 {
		t.Errorf("%d of %d are in the log", last+1, count)
	}
}

func TestVerifyLeaderIsShared(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	p := n.prop()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 20 {
				if err := p.VerifyLeader(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.VerifyLeader(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
