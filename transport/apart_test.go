package transport

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// A server that is not ready holds requests up, either way; one that takes no part answers none and makes none.
func TestApart(t *testing.T) {
	a, b := startNode(t, "a", "127.0.0.1:0", nil), startNode(t, "b", "127.0.0.1:0", nil)
	ready := make(chan struct{})
	var why atomic.Pointer[error]
	apart := func() error {
		if err := why.Load(); err != nil {
			return *err
		}
		return nil
	}
	far := NewRaftTransport(b.layer, hclog.NewNullLogger(), RequestLimits{Ready: ready, Apart: apart})
	defer far.Close()
	near := NewRaftTransport(a.layer, hclog.NewNullLogger(), RequestLimits{Ready: ready, Apart: apart})
	defer near.Close()
	to := b.addr()
	asks := map[string]func() error{
		"vote": func() error {
			return near.RequestVote("b", to, &raft.RequestVoteRequest{Term: 7}, &raft.RequestVoteResponse{})
		},
		"pre-vote": func() error {
			return near.RequestPreVote("b", to, &raft.RequestPreVoteRequest{Term: 7}, &raft.RequestPreVoteResponse{})
		},
		"entries": func() error {
			return near.AppendEntries("b", to, &raft.AppendEntriesRequest{Term: 7}, &raft.AppendEntriesResponse{})
		},
		"stand": func() error { return near.TimeoutNow("b", to, &raft.TimeoutNowRequest{}, &raft.TimeoutNowResponse{}) },
		"pipeline": func() error {
			p, err := near.AppendEntriesPipeline("b", to)
			if err == nil {
				p.Close()
			}
			return err
		},
	}
	no := errors.New("it is from before the recovery")
	voted := make(chan error, 1)
	go func() { voted <- asks["vote"]() }()
	why.Store(&no)
	close(ready)
	if err := <-voted; !errors.Is(err, no) {
		t.Errorf("the vote that was held up: %v", err)
	}
	for name, ask := range asks {
		if err := ask(); !errors.Is(err, no) {
			t.Errorf("%s: %v", name, err)
		}
	}
	why.Store(nil)
	go func() { voted <- asks["vote"]() }()
	rpc := <-far.Consumer()
	rpc.Respond(&raft.RequestVoteResponse{Term: 7, Granted: true}, nil)
	if err := <-voted; err != nil {
		t.Error(err)
	}

	// One that was let through by its sender is refused by who takes no part.
	other := NewRaftTransport(startNode(t, "c", "127.0.0.1:0", nil).layer, hclog.NewNullLogger(), RequestLimits{})
	defer other.Close()
	why.Store(&no)
	if err := other.RequestVote("b", to, &raft.RequestVoteRequest{Term: 8}, &raft.RequestVoteResponse{}); err == nil ||
		!strings.Contains(err.Error(), no.Error()) {
		t.Errorf("%v", err)
	}
}
