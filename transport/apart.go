package transport

import (
	"time"

	"github.com/hashicorp/raft"
)

// A server that takes no part neither votes nor leads nor follows: raft runs, and hears and reaches nobody.

// ready waits until requests may pass. It says false if the transport, or the connection that ends with gone, is closed
// first.
func (t *RaftTransport) ready(gone <-chan struct{}) bool {
	if t.limits.Ready == nil {
		return true
	}
	select {
	case <-t.limits.Ready:
		return true
	case <-gone:
	case <-t.done:
	}
	return false
}

// apart is why this server takes no part.
func (t *RaftTransport) apart() error {
	if t.limits.Apart == nil {
		return nil
	}
	return t.limits.Apart()
}

// mayAsk is why a request to another server is not made.
func (t *RaftTransport) mayAsk() error {
	if !t.ready(t.waiting) {
		return raft.ErrTransportShutdown
	}
	return t.apart()
}

// RequestVote asks for a vote.
func (t *RaftTransport) RequestVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse) error {
	if err := t.mayAsk(); err != nil {
		return err
	}
	return t.NetworkTransport.RequestVote(id, to, req, resp)
}

// RequestPreVote asks whether a vote would be given.
func (t *RaftTransport) RequestPreVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse) error {
	if err := t.mayAsk(); err != nil {
		return err
	}
	return t.NetworkTransport.RequestPreVote(id, to, req, resp)
}

// TimeoutNow asks a server to stand for election.
func (t *RaftTransport) TimeoutNow(id raft.ServerID, to raft.ServerAddress, req *raft.TimeoutNowRequest,
	resp *raft.TimeoutNowResponse) error {
	if err := t.mayAsk(); err != nil {
		return err
	}
	return t.NetworkTransport.TimeoutNow(id, to, req, resp)
}

// Greet shakes hands with the server at an address and hangs up: each hears who the other is.
func (t *RaftTransport) Greet(addr string, timeout time.Duration) {
	if c, err := t.layer.Dial(raft.ServerAddress(addr), timeout); err == nil {
		_ = c.Close()
	}
}
