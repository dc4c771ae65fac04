package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/disk"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/meters"
	"github.com/carillon-scheduler/carillon/node/names"
	"github.com/carillon-scheduler/carillon/node/raftslog"
	"github.com/carillon-scheduler/carillon/node/router"
	"github.com/carillon-scheduler/carillon/node/service"
)

// Each group of a node has a service and an API of its own, and a way to its leader. In a cluster with several groups
// the router stands above them.

// serve gives a group whose raft runs what answers its requests, and says what its leader does.
func (n *Node) serve(g *group) {
	g.names = names.New(names.Options{Store: g.store, Tracker: g.tracker, Call: n.keepers.Call, Logger: g.log,
		Pace: n.cfg.Machine.Pace, Voters: g.members.Voters,
		Uses: func(ctx context.Context, of names.UsesOf) ([]names.Use, error) { return g.service.Uses(ctx, of) }})
	g.service = service.New(n.serviceOptions(g))
	g.forward = forward.New(forward.Options{
		Self: n.cfg.NodeID, Group: g.of.Group, Tracker: g.tracker, Dial: n.dialer, Logger: g.log, Began: n.started,
		ErrorLog: raftslog.New(g.log).StandardLogger(nil),
		Local:    api.New(n.apiOf(g)),
	})
	g.meters.Attach(meters.GroupState{Store: g.store, Raft: g.raft, Members: g.members, Tracker: g.tracker,
		Backlog: g.service.Backlog, Now: g.now})
	g.parts = []func(*forward.Epoch) func(context.Context){
		g.service.Lead,
		func(e *forward.Epoch) func(context.Context) { return newOutbox(g, e).Run },
		g.members.Lead, g.names.Lead, n.traces.Lead(g.store), g.scrub.Lead,
	}
	if g.control != nil {
		g.parts = append(g.parts, g.service.FollowRelease(g.control.store))
	} else {
		g.parts = append(g.parts, func(e *forward.Epoch) func(context.Context) {
			return g.members.PlaceGroups(e, n.groupIsLed)
		}, func(e *forward.Epoch) func(context.Context) { return g.members.GrowGroups(e, n.keepers.Activate) })
	}
}

// API is what the node's API stands on, and how it is served. What is forwarded does not come by here.
func (n *Node) API() (api.Backend, api.Options) { return n.apiOf(n.group) }

// apiOf is the same for a group.
func (n *Node) apiOf(g *group) (api.Backend, api.Options) {
	c := &n.cfg
	return groupBackend{g.service, n}, api.Options{
		Logger: c.Logger, Version: c.Version, NodeID: c.NodeID, Refused: n.refused.Add,
		Metrics: n.meters.Handler(), JobMetrics: meters.Jobs(http.HandlerFunc(n.route)), DebugPprof: c.DebugPprof,
		Workers: g.service.Workers(), Cluster: n.members,
		Leader: g.tracker.Addr, Hosts: n.names(),
		Secure: c.Secure, Groups: n.jobGroups,
		SessionKeys: func() ([][]byte, error) { return n.security.SessionKeys(n.group.store.Info().ClusterID) },
	}
}

// groupBackend is the service of a group, and answers for the whole node whether that is ready.
type groupBackend struct {
	*service.Service
	n *Node
}

func (b groupBackend) Ready() error { return b.n.Runs() }

// takesJobs is why no job can be created yet: this node does not know the groups of its cluster, or none of these takes
// jobs. A cluster that begins with several groups has to begin each first.
func (n *Node) takesJobs() error {
	s := n.split.Load()
	if s != nil && n.group.store.Info().ClusterID != "" && (!s.Several() || s.Groups > 0) {
		return nil
	}
	return job.Errorf(job.CodeNotReady, "wait a moment; `carillon status` shows what is waited for",
		"the groups of the cluster take no jobs yet")
}

// inAllGroups asks the services of all groups that this node has a replica of. The error names those that fail.
func (n *Node) inAllGroups(ask func(*service.Service) error) error {
	groups := n.groups()
	if len(groups) == 1 {
		return ask(n.service)
	}
	var all *job.Error    // with the code and the remedy of the first
	var messages []string // in the order of the groups
	in := map[string][]uint32{}
	for _, g := range groups {
		err := ask(g.service)
		if err == nil || n.partIn(g.of.Group) == nil { // it comes or goes, and the node does its work without it
			continue
		}
		known, ok := errors.AsType[*job.Error](err)
		if !ok {
			known = job.Errorf(job.CodeNotReady, "", "%v", err)
		}
		all = cmp.Or(all, known)
		if in[known.Message] == nil {
			messages = append(messages, known.Message)
		}
		in[known.Message] = append(in[known.Message], g.of.Group)
	}
	if all == nil {
		return nil
	}
	for i, text := range messages {
		messages[i] = job.GroupNames(in[text]...) + ": " + text
	}
	return job.Errorf(all.Code, all.Remedy, "%s", strings.Join(messages, "; "))
}

// serviceOptions give the service what it stands on.
func (n *Node) serviceOptions(g *group) service.Options {
	c := &n.cfg
	o := service.Options{
		NodeID: c.NodeID, Version: c.Version, Address: n.advertise, Started: n.started, Skips: n.dir.Skips,
		DataDir: n.dir.Path, CopyDir: n.dir.File(datadir.SnapshotsDir),
		Group: g.of.Group, Store: g.store, Raft: g.raft, Tracker: g.tracker, Members: g.members, Clock: c.Clock,
		Logger: g.log, Notify: &c.Notify, Scrub: g.scrub,
		Disk: n.disk.Last, MinFree: c.MinFreeDisk.Of, Statfs: c.Machine.CopySpace, Stopping: n.stopping.Load,
		Client: func() *http.Client { return n.forward.Client() }, Secure: c.Secure, CAHash: n.tokenCA,
		Refused: n.meters.Limited, DevKill: c.DevKill, Pace: c.Machine.Pace,
	}
	if o.Statfs == nil {
		o.Statfs = disk.Statfs
	}
	if n.keys != nil {
		o.JoinTokens = n.keys.JoinTokens
	}
	o.Vault, o.Calendar, o.Names = g.vault, g.calendars(), g.names
	if g.control != nil {
		o.Control = g.control.service
	} else {
		o.OtherUses = func(ctx context.Context, of names.UsesOf) ([]names.Use, error) {
			others := slices.DeleteFunc(n.jobGroups(), func(number uint32) bool { return number == 0 })
			return n.keepers.Uses(ctx, others, of, service.UsersShown)
		}
	}
	return o
}

// newKeepers is the way to those who keep the names of groups.
func (n *Node) newKeepers() *names.Client {
	return &names.Client{NodeID: n.cfg.NodeID, Local: n.keeperOf,
		HTTP: func() *http.Client { return n.forward.Client() },
		Addr: func(number uint32) string {
			if g := n.partIn(number); g != nil {
				return g.tracker.Addr()
			}
			t := n.away.Tracker(number)
			defer t.Use()()
			return t.Addr()
		}}
}

// keeperOf keeps the names of a group; nil: this node has no replica of it.
func (n *Node) keeperOf(number uint32) *names.Keeper {
	if g := n.hostedGroup(number); g != nil {
		return g.names
	}
	return nil
}

// newRouter sends requests to the groups of the cluster.
func (n *Node) newRouter() *router.Router {
	_, o := n.API()
	return router.New(router.Options{
		Groups: n.jobGroups, Handler: n.handlerOf, API: o, Logger: n.cfg.Logger,
		Home: func(kind job.NameKind, namespace, name string) uint32 {
			return job.HomeOf(kind, namespace, name, n.split.Load().Homes)
		},
		Place: func(namespace, name, queue, key string) uint32 {
			return n.split.Load().Place(namespace, name, queue, key)
		},
	})
}

// lookAtSplit keeps what every request asks for: to read it in the state would make requests wait for commits.
func (n *Node) lookAtSplit() {
	old := n.split.Load()
	if s := old.Follow(n.group.store.Info()); s != old {
		if n.split.Store(s); old != nil {
			close(old.Changed)
		}
	}
}

// checkGroups refuses a number of groups that is not the one of the cluster, which the data directory knows. The one
// that it was begun with stays right when there are more by now: it is what starts the node every day.
func (n *Node) checkGroups() error {
	info := n.group.store.Info()
	begun := max(1, int(info.Homes))
	if want := n.cfg.Groups; want == 0 || info.ClusterID == "" || want == begun || want == int(info.Groups) {
		return nil
	}
	return job.Invalid("--groups", fmt.Sprintf("leave it out, or use %d; `carillon cluster grow-groups` gives a "+
		"cluster that runs more", begun),
		"the cluster in %s was begun with %d groups, not %d", n.dir.Path, begun,
		n.cfg.Groups)
}

// jobGroups are those that have jobs, or may have.
func (n *Node) jobGroups() []uint32 { return n.split.Load().Jobs() }

// handlerOf answers requests about a group.
func (n *Node) handlerOf(number uint32) http.Handler {
	if g := n.partIn(number); g != nil {
		return g.forward
	}
	return n.away.Forwarder(number)
}

// route has a request answered by the group that it is about.
func (n *Node) route(w http.ResponseWriter, r *http.Request) {
	s := n.split.Load()
	r, end := router.Until(r, s.Changed)
	defer end()
	if r.Header.Get(forward.HeaderForwarded) == "" {
		r.Header.Del(wire.KnownHeader)
		if !s.Several() && !namesGroup(r) {
			n.forward.ServeHTTP(w, r)
			return
		}
		r.Header.Set(wire.KnownHeader, strconv.FormatUint(uint64(s.Listed), 10))
		n.router.ServeHTTP(w, r)
		return
	}
	number, err := strconv.ParseUint(cmp.Or(r.Header.Get(wire.GroupHeader), "0"), 10, 32)
	if err != nil {
		err = job.Invalid(wire.GroupHeader, "", "that is not the number of a group")
	} else if g := n.hostedGroup(uint32(number)); g != nil && !n.members.Lax() {
		err = n.router.Outdated(r, uint32(number), g.names.Listed())
	}
	if err != nil {
		api.WriteError(w, err)
		return
	}
	n.router.Serve(w, r, n.handlerOf(uint32(number)))
}

// namesGroup says that a worker names a group, of which this node may not have heard yet.
func namesGroup(r *http.Request) bool {
	return r.URL.RawQuery != "" && api.WayOf(r.URL.Path) == api.AsAsked && r.URL.Query().Has("group")
}
