package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/duplex"
	"github.com/carillon-scheduler/carillon/node/formation"
	"github.com/carillon-scheduler/carillon/node/listen"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/node/names"
	"github.com/carillon-scheduler/carillon/node/raftslog"
	"github.com/carillon-scheduler/carillon/node/service"
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

	var serving, following, working sync.WaitGroup
	serving.Go(func() {
		if err := n.mux.Serve(); err != nil {
			n.fail(fmt.Errorf("listener: %w", err))
		}
	})
	// With HTTP/2 one connection could have many requests under way, and strangers are bounded by their connections.
	http1 := new(http.Protocols)
	http1.SetHTTP1(true)
	srv := &http.Server{
		Handler: duplex.Heard(n.handler), ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: raftslog.New(n.cfg.Logger).StandardLogger(nil),
		ConnContext: n.connContext, Protocols: http1,
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
	following.Go(func() { n.disk.Run(followCtx) })
	following.Go(func() { n.members.Run(followCtx) })
	n.group.run()
	n.hosted.start()
	following.Go(func() { n.followGroups(followCtx) })
	if n.access != nil {
		following.Go(func() { n.access.Run(followCtx) })
	}
	following.Go(func() { n.recheck(followCtx) })
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
	groups := n.hosted.close() // no more of them are begun
	n.away.Leave()
	n.eachOf(groups, func(g *group) { g.putDown(failure == nil && !n.killed.Load(), !n.killed.Load()) })
	n.stopHTTP(srv, local)
	endFollow()
	following.Wait()
	n.eachOf(groups, (*group).unfollow)
	err := n.release()
	serving.Wait()
	n.cfg.Logger.Info("stopped")
	return errors.Join(failure, err)
}

// internalEndpoints are what nodes ask each other, besides the API.
func (n *Node) internalEndpoints() []api.Endpoint {
	m := n.members
	return []api.Endpoint{
		{Path: membership.PeerPath, Role: api.Node, Body: membership.MaxMessage, Serve: n.servePeer},
		{Path: membership.KeysPath, Role: api.Node, Body: membership.MaxMessage, Serve: m.ServeKeys},
		{Path: membership.CertificatePath, Role: api.Node, Body: membership.MaxMessage, Serve: m.ServeCertificate},
		{Path: membership.SelfPath, Role: api.Node, Body: membership.MaxMessage, Serve: m.ServeSelf},
		{Path: membership.ReplicaGonePath, Role: api.Node, Body: membership.MaxMessage, Serve: m.ServeReplicaGone},
		{Path: names.Path, Role: api.Node, Body: names.MaxMessage, Serve: names.Serve(n.keeperOf)},
		{Path: membership.AnnouncePath, Role: api.Node, Body: membership.MaxMessage, Serve: m.ServeAnnounce},
		{Path: formation.Path, Role: api.Node, Body: membership.MaxMessage, Serve: n.former.Serve},
	}
}

// dispatch answers other nodes and browsers, and has everything else answered by the node that can.
func (n *Node) dispatch(internal map[string]http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve := internal[r.URL.Path]
		ctx, end := n.memory.Begin(r.Context(), api.ShareOf(r.Context(), n.cfg.Secure, serve != nil))
		defer end()
		if r = r.WithContext(ctx); serve != nil {
			serve(w, r)
			return
		}
		if web.Serves(r) {
			web.Serve(w, r)
			return
		}
		n.route(w, r)
	})
}

// Addr is the address listened on.
func (n *Node) Addr() string { return n.mux.Addr().String() }

// Handler serves the node's HTTP port.
func (n *Node) Handler() http.Handler { return n.handler }

// Ready says whether the node does its part in its cluster, and if not, why. A cluster on hold is answered for as well:
// it takes requests.
func (n *Node) Ready() error { return cmp.Or(n.inAllGroups((*service.Service).Working), n.takesJobs()) }

// Runs says whether jobs run here, and if not, why: Ready, and the cluster is not on hold.
func (n *Node) Runs() error { return cmp.Or(n.inAllGroups((*service.Service).Ready), n.takesJobs()) }

// Live says whether the node's parts run: a process of which one has ended should be restarted.
func (n *Node) Live() error { return n.inAllGroups((*service.Service).Live) }

// State is the node's state, for those who compare replicas. It ends with the node.
func (n *Node) State() *store.Store { return n.group.store }

// States are those of all groups that this node has a replica of, by number.
func (n *Node) States() map[uint32]*store.Store {
	out := map[uint32]*store.Store{}
	for _, g := range n.groups() {
		out[g.of.Group] = g.store
	}
	return out
}

// LeadsGroup says whether it has taken up that of a group.
func (n *Node) LeadsGroup(number uint32) bool {
	g := n.hostedGroup(number)
	return g != nil && g.tracker.Epoch() != nil
}

// Leads says whether this node has taken up a leadership.
func (n *Node) Leads() bool { return n.tracker.Epoch() != nil }
