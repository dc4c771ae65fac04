package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/duplex"
	"github.com/carillon-scheduler/carillon/node/listen"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/node/raftslog"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/web"
)

// fail ends Run: a part ended that must not.
func (n *Node) fail(err error) {
	select {
	case n.broken <- err:
	default:
	}
}

const (
	httpDrain         = 5 * time.Second
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// maxStreams is how many requests one connection of HTTP/2 may have under way. Each costs what a connection of
	// HTTP/1.1 does, and connections are what strangers are bounded by.
	maxStreams = 64
)

// Run serves until ctx ends or something breaks, and then stops in the order that loses nothing: worker (it drains),
// leadership (it is handed over), HTTP, raft, listener, files.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.mu.Lock()
	if n.closed || n.ran != nil {
		n.mu.Unlock()
		return errors.New("node: Run was called before, or after Close")
	}
	n.cancel, n.ran = cancel, make(chan struct{})
	n.mu.Unlock()
	defer close(n.ran)

	var serving, following, leading, working sync.WaitGroup
	serving.Go(func() {
		if err := n.mux.Serve(); err != nil {
			n.fail(fmt.Errorf("listener: %w", err))
		}
	})
	srv := &http.Server{
		Handler: duplex.Heard(n.handler), ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: raftslog.New(n.cfg.Logger).StandardLogger(nil),
		ConnContext: n.connContext, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
	serving.Go(func() {
		if err := srv.Serve(n.mux.HTTP()); !errors.Is(err, http.ErrServerClosed) {
			n.fail(fmt.Errorf("http: %w", err))
		}
	})
	local := listen.LocalServer(srv)
	if n.socket != nil {
		serving.Go(func() {
			if err := local.Serve(n.socket); !errors.Is(err, http.ErrServerClosed) {
				n.fail(fmt.Errorf("admin socket: %w", err))
			}
		})
	}
	followCtx, endFollow := context.WithCancel(context.Background())
	defer endFollow()
	following.Go(func() { n.tracker.Run(followCtx) })
	following.Go(func() { n.service.Follow(followCtx) })
	following.Go(func() { n.disk.Run(followCtx) })
	following.Go(func() { n.members.Run(followCtx) })
	following.Go(func() { n.members.Succeed(followCtx) })
	if n.access != nil {
		following.Go(func() { n.access.Run(followCtx) })
	}
	following.Go(func() { n.recheck(followCtx) })
	leadCtx, endLead := context.WithCancel(context.Background())
	defer endLead()
	leading.Go(func() { n.group.lead.run(leadCtx) })
	leading.Go(func() { n.group.compactor().Run(leadCtx) })
	workCtx, endWork := context.WithCancel(context.Background())
	defer endWork()
	working.Go(func() { n.worker.run(workCtx) })

	var failure error
	select {
	case <-ctx.Done():
	case failure = <-n.broken:
		n.cfg.Logger.Error("stopping", "error", failure)
	}

	n.stopping.Store(true)
	n.cfg.Logger.Info("stopping", "attempts_in_progress", n.worker.busy())
	// The port is served until the end: this node may lead, and the workers of others report to it; and requests that
	// come meanwhile are forwarded once another node leads.
	endWork()
	working.Wait()
	if e := n.tracker.Epoch(); e != nil && failure == nil && !n.killed.Load() {
		n.members.StampBeforeTransfer(context.Background(), e)
	}
	n.tracker.Yield()
	endLead()
	leading.Wait() // nothing is proposed any more
	if !n.killed.Load() {
		n.yield()
	}
	n.tracker.Leave()
	n.stopHTTP(srv, local)
	endFollow()
	following.Wait()
	err := n.release()
	serving.Wait()
	n.cfg.Logger.Info("stopped")
	return errors.Join(failure, err)
}

// internalEndpoints are what nodes ask each other, besides the API.
func internalEndpoints(m *membership.Members) []api.Endpoint {
	return []api.Endpoint{
		{Path: membership.PeerPath, Role: api.Node, Serve: m.ServePeer},
		{Path: membership.KeysPath, Role: api.Node, Serve: m.ServeKeys},
		{Path: membership.CertificatePath, Role: api.Node, Serve: m.ServeCertificate},
		{Path: membership.SelfPath, Role: api.Node, Serve: m.ServeSelf},
	}
}

// dispatch answers other nodes and browsers, and has everything else answered by the node that can.
func (n *Node) dispatch(internal map[string]http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if serve := internal[r.URL.Path]; serve != nil {
			serve(w, r)
			return
		}
		if web.Serves(r) {
			web.Serve(w, r)
			return
		}
		n.forward.ServeHTTP(w, r)
	})
}

// Addr is the address listened on.
func (n *Node) Addr() string { return n.mux.Addr().String() }

// Handler serves the node's HTTP port.
func (n *Node) Handler() http.Handler { return n.handler }

// Ready says whether the node does its part in its cluster, and if not, why. A cluster on hold is answered for as well:
// it takes requests.
func (n *Node) Ready() error { return n.service.Working() }

// State is the node's state, for those who compare replicas. It ends with the node.
func (n *Node) State() *store.Store { return n.group.store }

// Leads says whether this node has taken up a leadership.
func (n *Node) Leads() bool { return n.tracker.Epoch() != nil }
