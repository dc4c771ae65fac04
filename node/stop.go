package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/node/forward"
)

const (
	// yieldTimeout bounds how long a node that stops tries to hand over its leadership.
	yieldTimeout = 5 * time.Second
	yieldTries   = 3
	// newsTimeout is how long it then waits to hear who leads, so that it can forward what it still holds.
	newsTimeout = time.Second
)

// yield hands the leadership to another voter before this node stops, so that its absence need not be noticed first.
// Its epoch has ended.
func (g *group) yield() {
	if g.raft.State() != raft.Leader || g.alone() {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), yieldTimeout)
	defer cancel()
	if err := g.members.PassOn(ctx, yieldTries); err != nil {
		g.log.Warn("leadership not handed over; the others elect a leader when they miss this one",
			"error", err)
		return
	}
	if l, other := g.tracker.Wait(context.Background(), time.Now().Add(newsTimeout), forward.Leader.Elsewhere); other {
		g.log.Info("leadership handed over", "to", l.ID, "took", time.Since(began))
	}
}

// alone says whether there is no other voter.
func (g *group) alone() bool {
	for _, s := range g.members.Servers() {
		if s.Suffrage == raft.Voter && replica.Node(s.ID) != g.cfg.NodeID {
			return false
		}
	}
	return true
}

// release ends raft and gives back port and files. It works on a node that was opened in part.
func (n *Node) release() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	n.mu.Unlock()
	if n.worker != nil {
		n.worker.close()
	}
	if n.away != nil {
		n.away.Leave()
	}
	var errs []error
	groups := n.hosted.close()
	if n.group != nil {
		groups = append([]*group{n.group}, groups...)
	}
	for _, g := range groups {
		errs = append(errs, g.end(n.killed.Load()))
	}
	n.traces.Close(n.killed.Load())
	if n.hub != nil {
		errs = append(errs, n.hub.Close())
	}
	errs = append(errs, n.socket.Remove(n.killed.Load()))
	if n.mux != nil {
		errs = append(errs, ignoreClosed(n.mux.Close()))
	}
	for _, g := range groups {
		errs = append(errs, g.closeFiles())
	}
	if n.lock != nil {
		errs = append(errs, n.lock.Close())
	}
	return errors.Join(errs...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Close stops the node as the end of Run's context does, and waits.
func (n *Node) Close() error {
	n.mu.Lock()
	cancel, ran := n.cancel, n.ran
	n.mu.Unlock()
	if ran == nil {
		return n.release()
	}
	cancel()
	<-ran
	return nil
}

// Kill ends the node as kill -9 does, as far as a process can do that to a part of itself: nothing is drained,
// reported, handed over or answered. Its caller has cut the node's network and disk, so that nothing sees what is left
// of it. It waits for Run.
func (n *Node) Kill() {
	n.mu.Lock()
	cancel, ran := n.cancel, n.ran
	n.mu.Unlock()
	n.killed.Store(true)
	if ran == nil {
		n.release()
		return
	}
	n.worker.kill()
	cancel()
	<-ran
}

// stopHTTP lets requests finish for a while.
func (n *Node) stopHTTP(servers ...*http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), httpDrain)
	defer cancel()
	var stopping sync.WaitGroup
	for _, srv := range servers {
		stopping.Go(func() {
			if n.killed.Load() || srv.Shutdown(ctx) != nil {
				srv.Close()
			}
		})
	}
	stopping.Wait()
}
