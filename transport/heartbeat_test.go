package transport

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// A leader that hears of its successor by a heartbeat writes nothing under the successor's term: that would be a second
// entry of an index and a term, and the replicas would differ for ever.
func TestHeartbeatOfASuccessor(t *testing.T) {
	m := startMemberWith(t, "n1", "127.0.0.1:0", raft.NewInmemStore(), time.Hour)
	config := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: m.addr()}}}
	if err := m.raft.BootstrapCluster(config).Error(); err != nil {
		t.Fatal(err)
	}
	m.trans.Campaign(t.Context())
	eventually(t, "it leads", func() bool { return m.raft.State() == raft.Leader })
	if err := m.raft.Apply([]byte("x"), long).Error(); err != nil {
		t.Fatal(err)
	}
	last, term := m.raft.LastIndex(), m.raft.CurrentTerm()

	other := startNode(t, "n2", "127.0.0.1:0", nil)
	tr := NewRaftTransport(other.layer, hclog.NewNullLogger(), RequestLimits{})
	defer tr.Close()
	beat := &raft.AppendEntriesRequest{Term: term + 1, RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n2"), Addr: []byte(other.addr())}}
	var answer raft.AppendEntriesResponse
	if err := tr.AppendEntries("n1", m.addr(), beat, &answer); err != nil || !answer.Success {
		t.Fatalf("%+v, %v", answer, err)
	}
	if err := m.raft.Apply([]byte("y"), long).Error(); !errors.Is(err, raft.ErrNotLeader) &&
		!errors.Is(err, raft.ErrLeadershipLost) {
		t.Errorf("who has a successor answered a proposal with %v", err)
	}
	if now := m.raft.LastIndex(); now != last {
		var e raft.Log
		if err := m.store.GetLog(now, &e); err != nil {
			t.Fatal(err)
		}
		t.Errorf("it led in term %d and wrote entry %d in term %d", term, e.Index, e.Term)
	}
}

// Heartbeats of the leader are answered also while raft's loop takes no request; one of them waits for the loop.
func TestHeartbeatsWhileRaftIsBusy(t *testing.T) {
	a, b := startNode(t, "a", "127.0.0.1:0", nil), startNode(t, "b", "127.0.0.1:0", nil)
	ta := NewRaftTransport(a.layer, hclog.NewNullLogger(), RequestLimits{})
	defer ta.Close()
	tb := NewRaftTransport(b.layer, hclog.NewNullLogger(), RequestLimits{
		Follows: func(term uint64) bool { return term == 7 }})
	defer tb.Close()
	send := func(term uint64) error {
		var answer raft.AppendEntriesResponse
		err := ta.AppendEntries("b", b.addr(), &raft.AppendEntriesRequest{Term: term, RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("a"), Addr: []byte(a.addr())}}, &answer)
		if err == nil && (!answer.Success || answer.Term != term) {
			t.Errorf("answered with %+v", answer)
		}
		return err
	}
	for range 5 {
		if err := send(7); err != nil {
			t.Fatal(err)
		}
	}
	if c := (<-tb.Consumer()).Command.(*raft.AppendEntriesRequest); c.Term != 7 {
		t.Errorf("raft sees %+v", c)
	}
	done := make(chan error)
	go func() { done <- send(8) }()
	rpc := <-tb.Consumer()
	if rpc.Command.(*raft.AppendEntriesRequest).Term == 7 { // one more may have waited
		rpc = <-tb.Consumer()
	}
	if c := rpc.Command.(*raft.AppendEntriesRequest); c.Term != 8 {
		t.Errorf("raft sees %+v", c)
	}
	select {
	case err := <-done:
		t.Errorf("a new leader was answered before raft has seen it: %v", err)
	default:
	}
	rpc.Respond(&raft.AppendEntriesResponse{Term: 8, Success: true}, nil)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
