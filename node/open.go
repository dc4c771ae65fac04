// Package node is a running node: it opens the data directory, runs the Raft group with its state machine, leads when
// it is elected, answers the API and works on runs; and it stops all of that in an order that loses nothing.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/dirlock"
	"github.com/carillon-scheduler/carillon/internal/duplex"
	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/node/access"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/disk"
	"github.com/carillon-scheduler/carillon/node/formation"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/listen"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/node/meters"
	"github.com/carillon-scheduler/carillon/node/names"
	"github.com/carillon-scheduler/carillon/node/raftslog"
	"github.com/carillon-scheduler/carillon/node/router"
	"github.com/carillon-scheduler/carillon/node/security"
	"github.com/carillon-scheduler/carillon/node/service"
	"github.com/carillon-scheduler/carillon/node/tracing"
	"github.com/carillon-scheduler/carillon/node/vault"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
)

// Node is a running node.
type Node struct {
	cfg     Config
	dir     *datadir.Dir
	lock    *dirlock.Lock
	mux     *transport.Mux
	port    *listen.Port
	hub     *transport.Hub
	group   *group        // the control group
	hosted  *hosting      // the others that it has a replica of
	away    *forward.Away // those that it has none of
	split   atomic.Pointer[router.Split]
	router  *router.Router
	keepers *names.Client
	meters  *meters.Meters
	service *service.Service
	handler http.Handler
	worker  *localWorker
	tracker *forward.Tracker
	forward *forward.Forwarder
	refused *access.Refusals
	disk    *disk.Watch
	traces  *tracing.Tracer
	members *membership.Members
	former  *formation.Former
	access  *access.Tokens // nil: everybody may do everything
	socket  *listen.Socket // nil: there is none
	started time.Time

	memory      *membudget.Budget // for what is in memory of requests
	security    *security.Keys
	keys        *keys.Ring    // of security; nil: the cluster is plain
	rowsChanged chan struct{} // a row of a member changed

	advertise string // how others reach it
	egress    *egress.Policy

	stopping atomic.Bool
	killed   atomic.Bool
	broken   chan error // something ended that must not

	mu     sync.Mutex
	cancel context.CancelFunc
	ran    chan struct{} // closed when Run has returned; nil before it began
	closed bool
}

// Open opens the data directory and the port and starts raft. Nothing is served before Run. An error names what is
// wrong and what to do about it, and a directory that was refused is as it was.
func Open(cfg Config) (_ *Node, err error) {
	cfg.defaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, started: time.Now(), broken: make(chan error, 4), rowsChanged: make(chan struct{}, 1),
		hosted: newHosting(), memory: membudget.New(cfg.Machine.Memory)}
	defer func() {
		if err != nil {
			n.release()
		}
	}()
	if err := datadir.CheckFileSystem(cfg.DataDir, cfg.Machine.FileSystemOf, cfg.AllowNetworkFS); err != nil {
		return nil, err
	}
	if n.dir, err = datadir.Open(cfg.DataDir, cfg.NodeID, cfg.Version); err != nil {
		return nil, err
	}
	if n.dir.Fresh && !cfg.Bootstrap && len(cfg.Join) == 0 && len(cfg.Cluster) == 0 {
		return nil, errNoCluster(n.dir.Path)
	}
	if err := n.dir.Whole(); err != nil {
		return nil, err
	}
	n.lock, err = n.dir.Lock(datadir.LockOptions{
		FileSystem: cfg.Machine.FileSystemOf, Wait: cfg.Store.LockTimeout, Beat: cmp.Or(cfg.Machine.LockBeat,
			cfg.Machine.Pace.Of(dirlock.Beat)), Fatal: cfg.Fatal,
	})
	if err != nil {
		return nil, err
	}
	if err := cfg.rejoin(n.dir); err != nil {
		return nil, err
	}
	n.cfg = cfg
	if err := n.dir.Tidy(); err != nil {
		return nil, err
	}
	ln, err := cfg.Machine.ListenOn(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w: choose another --listen", cfg.Listen, err)
	}
	n.advertise = cmp.Or(cfg.Advertise, listen.DefaultAdvertise(ln.Addr().String()))
	if n.dir.Fresh {
		err = formation.CheckSelf(cfg.Cluster, n.advertise)
	}
	if err == nil {
		n.security, err = security.Open(n.securityOptions())
	}
	if err != nil {
		ln.Close()
		return nil, err
	}
	if n.keys = n.security.Ring(); n.keys != nil && n.keys.Authority() == nil {
		n.cfg.Join = append(n.cfg.Join, formation.Others(cfg.Cluster, n.advertise)...) // that is all it can do
	}
	n.port = listen.Bound(ln, listen.PortOptions{Max: cfg.MaxConnections, Logger: n.cfg.Logger,
		Servers: func() []raft.Server { return n.members.Servers() }, Unread: cfg.Machine.Unread,
		NotRead: func(by netip.Addr) { n.meters.Limited(api.RefusedUnread, by.String()) }})
	n.mux = transport.NewMux(n.port, transport.Options{OnError: n.connError, Keys: n.keys, Public: n.security.Public(),
		Handshakes: transport.HandshakeLimits{Member: n.port.Member}})
	if n.keys != nil && n.dir.Fresh && n.keys.Authority() != nil {
		n.dir.CA = n.keys.CAHash().String()
	}
	if err := n.dir.Claim(); err != nil {
		return nil, err
	}
	n.meters = meters.New(cfg.Logger, cfg.Version)
	n.traces = tracing.New(cfg.Traces, cfg.NodeID, cfg.Version, cfg.Clock.Now, cfg.Logger)
	n.meters.Register(n.traces)
	n.refused = &access.Refusals{Log: n.cfg.Logger, Count: n.meters.Refused}
	n.group, err = openGroup(&n.cfg, n.dir, datadir.Replica{Number: replica.First}, n.meters)
	if err != nil {
		return nil, err
	}
	if err := n.checkGroups(); err != nil {
		return nil, err
	}
	if err := n.security.CheckMode(n.group.store.Info()); err != nil {
		return nil, err
	}
	if err := n.security.Begun(n.group.store.Info()); err != nil {
		return nil, err
	}
	if n.egress, err = n.newEgress(); err != nil {
		return nil, err
	}
	n.cfg.Notify.Egress = n.egress
	if cfg.Secure && cfg.Bootstrap && n.group.store.Info().ClusterID == "" {
		if n.group.admin, err = n.security.FirstAdmin(cfg.Machine.TokenStep); err != nil {
			return nil, err
		}
	}
	n.group.vault = vault.New(n.group.store, n.keys)
	n.group.store.Listen(n.rowsMayHaveChanged)
	n.lookAtSplit()
	n.disk = n.newDiskWatch()
	n.prepare(n.group)
	n.tracker, n.members = n.group.tracker, n.group.members
	n.away = n.newAway()
	if err := n.forms(); err != nil {
		return nil, err
	}
	if err := n.members.CheckJoin(context.Background()); err != nil {
		return nil, err
	}
	n.hub = transport.NewHub(n.mux.Raft(), transport.HubOptions{OnError: n.hubError})
	if err := n.startGroup(n.group); err != nil {
		return nil, err
	}
	n.keepers = n.newKeepers()
	n.serve(n.group)
	n.service, n.forward = n.group.service, n.group.forward
	n.meters.Attach(meters.State{Disk: n.disk, Port: n.port, Insecure: cfg.Insecure})
	if err := n.openHosted(); err != nil {
		return nil, err
	}
	n.router = n.newRouter()
	// here: what is forwarded no longer says where it came from
	dispatch := n.dispatch(api.ByPath(n.internalEndpoints()))
	members := n.security.MembersOnly(n.authorized(dispatch), n.members.Belongs)
	n.handler = n.port.Unread.Handler(duplex.Finish(n.meters.Timed(api.Guard(members, cfg.Secure, n.names()...))))
	if n.worker, err = newLocalWorker(n); err != nil {
		return nil, err
	}
	if !cfg.Machine.NoSocket {
		n.socket = listen.OpenSocket(n.dir.File(AdminSocket), n.cfg.Logger)
	}
	return n, nil
}

// rejoin has a node whose directory `carillon node rebuild` emptied join its cluster, whatever it was started with.
func (c *Config) rejoin(d *datadir.Dir) (err error) {
	r := d.Rejoin
	if r == nil {
		return nil
	}
	if c.Bootstrap = false; d.ClusterID != "" {
		return nil // it has joined
	}
	c.Cluster, c.Groups, c.Join, c.Keys.From = nil, 0, r.Addresses, ""
	if r.Token != "" {
		c.Keys.Token, err = keys.ParseToken(keys.JoinToken, r.Token)
	}
	return err
}

// What a node leaves in its data directory for those who administer it.
const (
	AdminSocket    = listen.AdminSocket
	AdminTokenFile = security.AdminTokenFile
)

// securityOptions say how the node was started.
func (n *Node) securityOptions() security.Options {
	c := &n.cfg
	return security.Options{Config: c.Keys, Dir: n.dir, Bootstrap: c.Bootstrap, Joins: len(c.Join) > 0,
		Forms:     len(c.Cluster) > 0,
		Advertise: n.advertise, Now: c.Clock.Now, KeyStep: c.Machine.KeyStep, Logger: c.Logger}
}

// forms has the node form a cluster with those of --cluster. On a secure cluster only who has its keys can.
func (n *Node) forms() (err error) {
	c := &n.cfg
	n.former, err = formation.New(formation.Options{
		List: c.Cluster, Advertise: n.advertise, Vouched: n.keys != nil, Members: n.members,
		Bootstrap:  func(s []raft.Server) error { return n.group.found(s) },
		NewCluster: func() (string, store.Token, error) { return n.security.NewCluster(c.Secure, c.Machine.TokenStep) },
		Pace:       c.Machine.Pace.Of, Logger: c.Logger,
	})
	if len(c.Cluster) > 0 && len(c.Join) == 0 {
		n.members.Form(n.former)
	}
	return err
}

// newAway makes the ways to groups that this node has no replica of.
func (n *Node) newAway() *forward.Away {
	c := &n.cfg
	return forward.NewAway(forward.AwayOptions{LeaderOf: n.members.LeaderOf, Having: n.members.Having},
		forward.TrackerOptions{Self: c.NodeID, Interval: c.Machine.Pace.Of(time.Second)},
		forward.Options{Self: c.NodeID, Dial: n.dialer, Logger: c.Logger, Began: n.started,
			ErrorLog: raftslog.New(c.Logger).StandardLogger(nil)})
}

// names are those that the node may be called by.
func (n *Node) names() []string {
	return append([]string{n.advertise, n.cfg.Listen}, n.cfg.AllowedHosts...)
}

// authorized has everything that the port serves ask who calls, where the cluster is one that asks.
func (n *Node) authorized(next http.Handler) http.Handler {
	if !n.cfg.Secure {
		return next
	}
	n.access = access.New(access.Options{
		Store: n.group.store, Now: n.group.now, Leads: func() bool { return n.tracker.Epoch() != nil },
		Refused: n.refused.Add,
		Votes: func(id string) bool {
			return slices.ContainsFunc(n.members.Servers(), func(s raft.Server) bool {
				return s.Suffrage == raft.Voter && replica.Node(s.ID) == id
			})
		},
	})
	limits := api.Limits{Requests: n.cfg.MaxTokenRequests, BadTokens: n.cfg.MaxBadTokens, Joins: n.cfg.MaxJoins,
		Refused: n.meters.Limited, TokenFrom: n.mux.TokenFrom}
	return api.Authorize(next, n.access, n.cfg.NodeID, limits,
		slices.Concat(n.internalEndpoints(), pageEndpoints())...)
}

// membership says what this node is, and gives its part in a group what that stands on.
func (n *Node) membership(g *group) membership.Options {
	c := &n.cfg
	o := membership.Options{
		Config: c.Members, NodeID: c.NodeID, Instance: n.dir.Instance, Address: n.advertise, Listen: n.Addr(),
		Insecure: c.Insecure, Version: c.Version, Level: c.supports(), Slots: c.Slots, Tags: c.Tags, Join: c.Join,
		Skips: n.dir.Skips, Identity: n.dir.ClusterIdentity, Save: n.dir.SaveCluster,
		Standing: g.standing, Store: g.store, Scrub: g.scrub,
		Tracker: g.tracker, Flight: g.flight,
		ApplyTimeout: c.Raft.ApplyTimeout, Clock: c.Clock, Logger: g.log, Fail: n.fail, Dial: n.dialer,
		Raw: c.Machine.Dialer, Keys: n.keys, Token: c.Keys.Token, First: n.security.First(),
		Recheck: n.recheckSoon, Step: c.Machine.KeyStep,
		Outdated: func() ([]fsm.ResealedSecret, error) { return n.group.vault.Outdated() },
		Files:    n.filesOf,
		Pace:     c.Machine.Pace.Of, Disk: func() wire.DiskSpace { return n.disk.Last() },
		ClusterID: c.Machine.ClusterID, Where: c.Machine.Where, Trusting: c.Machine.Trusting,
		Campaign: func(ctx context.Context) { g.trans.Campaign(ctx) }, Turn: c.Raft.Heartbeat / 2,
		StandNow:  func(s raft.Server) error { return g.quorum.StandNow(s) },
		Connected: func(id string) bool { return g.trans.Connected(id) },
		Greet:     func(addr string, timeout time.Duration) { g.trans.Greet(addr, timeout) },
	}
	if g.control != nil {
		o.Skips = nil // they are of the control group
		o.Of = &membership.ReplicaOf{Group: g.of.Group, GroupID: g.of.GroupID, Number: g.of.Number,
			Control: g.control.members}
	}
	return o
}

// connect is raft's way to other nodes: over the one port, between nodes of one cluster only.
func (n *Node) connect(g *group) error {
	m := g.members
	layer, err := n.hub.Layer(g.of.Group, transport.StreamOptions{
		Advertise: n.advertise,
		Handshake: transport.Handshake{Local: m.Hello, Check: m.Check, Expect: m.Expect},
		AddressOf: m.AddressOf,
		OnRefused: m.OnRefused,
		OnLost:    m.ConnectionLost,
		OnError:   n.connError,
		Dial:      n.cfg.Machine.Dial,
		Keys:      n.keys,
	})
	if err != nil {
		return fmt.Errorf("%w: set --advertise NAME:PORT", err)
	}
	g.layer = layer
	limits := transport.RequestLimits{Term: g.term, Room: n.disk.SnapshotRoom, LeadsIn: m.LeadsIn,
		Ready: g.standing.Asked(), Apart: g.standing.Err, May: m.MayCommand}
	if n.cfg.Machine.Transport == nil { // a transport around this one sees all requests
		limits.Follows = m.Follows
	}
	g.trans = transport.NewRaftTransport(layer, raftslog.New(g.log), limits)
	return nil
}

func (n *Node) hubError(remote net.Addr, err error) {
	if r := new(transport.RefusedError); errors.As(err, &r) {
		n.members.OnRefused(r)
	}
	n.connError(remote, err)
}

// newDiskWatch watches the room of the data directory.
func (n *Node) newDiskWatch() *disk.Watch {
	c := &n.cfg
	o := disk.Options{Path: n.dir.Path, Limit: c.MinFreeDisk, Warn: c.Logger.Warn,
		Every: cmp.Or(c.Machine.DiskEvery, c.Machine.Pace.Of(disk.Every))}
	if f := c.Machine.DiskSpace; f != nil {
		o.Statfs = func(string) (uint64, uint64, error) { return f() }
	}
	return disk.New(o)
}

// newEgress makes the rules of what jobs may reach. Who can call a node that only this machine reaches can call the
// machine's other services as well, so there loopback addresses are allowed.
func (n *Node) newEgress() (*egress.Policy, error) {
	return egress.New(egress.Options{
		Config: n.cfg.Egress, Loopback: listen.OnLoopback(n.mux.Addr().String()) && listen.OnLoopback(n.advertise),
		OnDenied: func(d *egress.Denied) {
			n.meters.EgressDenied(d.Class)
			n.cfg.Logger.Warn("egress denied", "target", d.Target, "class", d.Class, "rule", d.Rule)
		},
	})
}

func (n *Node) connError(remote net.Addr, err error) {
	n.cfg.Logger.Debug("connection dropped", "remote", remote, "error", err)
}
