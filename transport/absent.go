package transport

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// maxAbsence bounds how long entries wait for a peer, and with it for how long
// a replication goes on whose leadership ended or whose peer was removed: raft
// tells it between requests only.
const maxAbsence = time.Minute

// absent are the peers that cannot be dialled.
//
// After each append that failed, raft pauses twice as long as before, up to ten
// seconds, whatever ended meanwhile. A peer that was down for half a minute is
// back for seconds before it gets the first entry, and all that time its
// heartbeats are answered. Heartbeats have a pause of their own, of half a
// heartbeat timeout at most. So entries for a peer that could not be dialled
// wait here until a heartbeat gets through: no failure is counted meanwhile,
// and the entries follow the first heartbeat at once.
type absent struct {
	mu    sync.Mutex
	back  map[raft.ServerID]chan struct{} // closed when the peer is reached
	ended bool                            // nothing waits any more
}

// wait returns when a peer is not absent, or has been for too long.
func (a *absent) wait(id raft.ServerID, most time.Duration) {
	a.mu.Lock()
	back := a.back[id]
	a.mu.Unlock()
	if back == nil {
		return
	}
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-back:
	case <-t.C:
	}
}

// missed notes that a peer could not be dialled.
func (a *absent) missed(id raft.ServerID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended || a.back[id] != nil {
		return
	}
	if a.back == nil {
		a.back = make(map[raft.ServerID]chan struct{})
	}
	a.back[id] = make(chan struct{})
}

// reached notes that a peer was reached.
func (a *absent) reached(id raft.ServerID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if back := a.back[id]; back != nil {
		delete(a.back, id)
		close(back)
	}
}

func (a *absent) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	for _, back := range a.back {
		close(back)
	}
	a.back = nil
}

// AppendEntries is a heartbeat, or how a leader sends entries to a peer that
// does not keep up.
func (t *RaftTransport) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) error {
	if !isHeartbeat(req) {
		t.absent.wait(id, maxAbsence)
	}
	if err := t.mayAsk(); err != nil {
		return err
	}
	err := t.NetworkTransport.AppendEntries(id, to, req, resp)
	// A connection that broke off says nothing, the next one may hold; and a peer that refuses is there.
	if notDialled(err) {
		t.absent.missed(id)
	} else {
		t.absent.reached(id)
	}
	return err
}

// StopWaiting ends the waiting for absent peers. It comes before raft's
// Shutdown, which closes the transport only after the last request.
func (t *RaftTransport) StopWaiting() {
	t.absent.end()
	t.stopWaiting.Do(func() { close(t.waiting) })
}

// isHeartbeat tells heartbeats from entries as the receiving transport does.
func isHeartbeat(req *raft.AppendEntriesRequest) bool {
	return req.PrevLogEntry == 0 && req.PrevLogTerm == 0 && len(req.Entries) == 0 && req.LeaderCommitIndex == 0
}

func notDialled(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}
