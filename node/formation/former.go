package formation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
)

// Path is where nodes ask each other what they know of the cluster that they are to form.
const Path = "/internal/v1/formation"

// Members is what formation needs of the node's membership.
type Members interface {
	Introduce() store.Node
	Cluster() lineage.Cluster
	Identity() datadir.ClusterIdentity
	// SaveIdentity changes what the data directory says about the cluster. When that is on the disk, and before others
	// may hear of it, then is called; nil: nothing.
	SaveIdentity(change func(*datadir.ClusterIdentity), then func() error) error
	Ask(ctx context.Context, addrs []string) error             // asks to be taken in
	Get(ctx context.Context, addr, path string, out any) error // asks another node
	// Alone says that the cluster has no other node, as raft's configuration has it: rows come one by one.
	Alone() bool
	Waits(text, remedy string)    // says why this node is not part of a cluster yet
	StandStill(err *job.Error)    // ends this node's part in its cluster
	Mentions(text, remedy string) // says what else is wrong; "": nothing
}

// Options say what a node is to form a cluster with.
type Options struct {
	List      []string // of --cluster; empty: it was started without
	Advertise string
	Vouched   bool // nodes have certificates
	Members   Members
	// NewCluster makes the id of a cluster that this node founds, and the token that it begins with.
	NewCluster func() (id string, admin store.Token, err error)
	Bootstrap  func([]raft.Server) error // begins raft's log
	Pace       func(time.Duration) time.Duration
	Logger     *slog.Logger
}

// Former forms the cluster of a node, and watches what the other addresses of its list belong to.
type Former struct {
	o    Options
	list []string

	mu   sync.Mutex
	said string // what it logged last
}

// New is for a node that is not served yet. One that belongs to a cluster already may have any list: it only helps it
// to find the others.
func New(o Options) (*Former, error) {
	f := &Former{o: o, list: Sorted(o.List)}
	if o.Members.Cluster().ID != "" {
		return f, nil
	}
	return f, CheckSelf(o.List, o.Advertise)
}

// CheckList refuses a list that cannot be one of nodes.
func CheckList(list []string) error {
	sorted := Sorted(list)
	for i, a := range sorted {
		if err := datadir.CheckAddress(a); err != nil {
			return job.Invalid("--cluster", "use HOST:PORT of every node, such as a:7400,b:7400,c:7400", "%s: %v", a,
				err)
		}
		if i > 0 && sorted[i-1] == a {
			return job.Invalid("--cluster", "list each node once", "%s is in the list twice", a)
		}
	}
	return nil
}

// CheckSelf refuses the list of a new node that does not have it.
func CheckSelf(list []string, advertise string) error {
	sorted, own := Sorted(list), Normal(advertise)
	if len(list) == 0 || slices.Contains(sorted, own) {
		return nil
	}
	return job.Invalid("--cluster", "add "+own+" to the list on all nodes, or set this node's --advertise to its "+
		"address in the list", "this node is not in the list: others reach it at %s, and the list is %s", own,
		strings.Join(sorted, ","))
}

// Others is a list without one of its nodes.
func Others(list []string, advertise string) []string {
	return slices.DeleteFunc(Sorted(list), func(a string) bool { return a == Normal(advertise) })
}

// State is what this node says of itself.
func (f *Former) State() State {
	m := f.o.Members
	s := State{Node: m.Introduce(), List: f.list}
	c := m.Cluster()
	s.ClusterID, s.Epoch, s.Recovery = c.ID, c.Epoch, c.Recovery
	if p := m.Identity().Formation; p != nil {
		s.Ballot, s.Members, s.Admin = p.Ballot, p.Members, p.Admin
		if len(s.List) == 0 {
			s.List = p.List
		}
	}
	return s
}

// Serve answers other nodes.
func (f *Former) Serve(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(f.State()) //nolint:errcheck // the asker hung up
}

const (
	askEvery    = 250 * time.Millisecond
	refusedWait = 2 * time.Second // after a refusal, for which somebody has to do something
	watchEvery  = 5 * time.Second
	askTimeout  = time.Second
)

// ask asks all other nodes of the list, side by side.
func (f *Former) ask(ctx context.Context) map[string]Answer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	out := map[string]Answer{}
	for _, addr := range Others(f.list, f.o.Advertise) {
		all.Go(func() {
			var a Answer
			a.Err = f.o.Members.Get(ctx, addr, Path, &a.State)
			if a.Err == nil && a.State.Node.Instance == "" {
				a.Err = fmt.Errorf("no Carillon node that knows --cluster answers there")
			}
			mu.Lock()
			defer mu.Unlock()
			out[addr] = a
		})
	}
	all.Wait()
	return out
}

// Run gets a node that belongs to no cluster into one: that which its list forms, or that which others of it belong to.
func (f *Former) Run(ctx context.Context) error {
	if len(f.list) == 1 {
		f.o.Logger.Warn("--cluster lists only this node: if its data directory is lost, nothing keeps it from " +
			"forming another cluster")
	}
	f.o.Members.Waits("no node was asked yet", "wait a moment")
	for {
		if f.o.Members.Cluster().ID != "" {
			return nil
		}
		pause, err := f.step(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if !wait.For(ctx, f.o.Pace(pause)) {
			return ctx.Err()
		}
	}
}

// step looks once at the others and does what follows from it. The pause is that before the next.
func (f *Former) step(ctx context.Context) (pause time.Duration, err error) {
	d := Decide(Input{Self: f.State(), Address: Normal(f.o.Advertise), List: f.list, Answers: f.ask(ctx),
		Vouched: f.o.Vouched})
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if d.Promise != nil {
		if err := f.promise(*d.Promise); err != nil {
			return 0, err
		}
		pause = -1
	}
	switch d.Do {
	case Found:
		return 0, f.found(d)
	case Adopt:
		return 0, f.adopt(d.From)
	case Join:
		return f.join(ctx, d.Addrs), nil
	case Refuse:
		pause = refusedWait
	default:
		if pause == 0 {
			pause = askEvery
		}
	}
	f.wait(d)
	return pause, nil
}

// wait says why the node is not part of a cluster yet, and logs it where it changed.
func (f *Former) wait(d Decision) {
	f.o.Members.Waits(d.Text, d.Remedy)
	if !f.news(d.Text) {
		return
	}
	if d.Do == Refuse {
		f.o.Logger.Error(d.Text, event.FormationRefused, "remedy", d.Remedy)
		return
	}
	f.o.Logger.Info(d.Text, event.Forming, "remedy", d.Remedy)
}

func (f *Former) news(text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.said
	f.said = text
	return text != was
}

// promise writes a promise down. Others hear of it afterwards.
func (f *Former) promise(b datadir.Ballot) error {
	return f.o.Members.SaveIdentity(func(c *datadir.ClusterIdentity) {
		c.Formation = &datadir.Formation{List: f.list, Ballot: b}
	}, nil)
}

// found begins the cluster. With the record on the disk it is founded, whatever happens next: the next start goes on
// from there.
func (f *Former) found(d Decision) error {
	id, admin, err := f.o.NewCluster()
	if err != nil {
		return err
	}
	ballot := f.State().Ballot
	return f.begin(lineage.Cluster{ID: id}, datadir.Formation{List: f.list, Ballot: ballot, Members: d.Members,
		Admin: admin}, "founder")
}

// adopt belongs to a cluster that another node founded with this one.
func (f *Former) adopt(from State) error {
	return f.begin(from.cluster(), datadir.Formation{List: f.list, Ballot: from.Ballot,
		Members: from.Members, Admin: from.Admin}, "member")
}

func (f *Former) begin(of lineage.Cluster, r datadir.Formation, as string) error {
	err := f.o.Members.SaveIdentity(func(c *datadir.ClusterIdentity) {
		c.ClusterID, c.Epoch, c.Recovery, c.Formation = of.ID, of.Epoch, of.Recovery, &r
	}, func() error { return f.o.Bootstrap(Servers(r.Members)) })
	if err != nil {
		return fmt.Errorf("form the cluster: %w", err)
	}
	f.o.Members.Waits("", "")
	f.o.Logger.Info("formed a cluster", event.Formed, "cluster", of.ID, "nodes", len(r.Members), "as", as)
	return nil
}

// Servers are raft's first configuration of a cluster: the same on each of its nodes.
func Servers(members []store.Node) (out []raft.Server) {
	for _, m := range members {
		out = append(out, raft.Server{Suffrage: raft.Voter, ID: replica.ID(m.ID, replica.First),
			Address: raft.ServerAddress(m.Address)})
	}
	return out
}

// join asks the cluster that others of the list belong to. A refusal may end: an operator removes the member that this
// node was before its directory was lost.
func (f *Former) join(ctx context.Context, addrs []string) time.Duration {
	err := f.o.Members.Ask(ctx, addrs)
	if err == nil || ctx.Err() != nil {
		return 0
	}
	why, remedy := err.Error(), "see the log of that cluster's leader"
	if known, ok := errors.AsType[*job.Error](err); ok {
		why, remedy = known.Message, cmp.Or(known.Remedy, remedy)
	}
	f.wait(Decision{Do: Refuse, Remedy: remedy,
		Text: "the cluster of " + strings.Join(addrs, " and ") + " does not accept this node: " + why})
	return refusedWait
}

// Look compares the cluster of this node with what the other addresses of its list belong to. A node that is all that
// there is of its cluster stands still if they belong to another: it was begun by mistake, or they were. One with
// further members goes on, or an address in a unit file that became that of another cluster would stop it, and says so.
func (f *Former) Look(ctx context.Context) {
	own := f.o.Members.Cluster().ID
	if own == "" || len(f.list) == 0 {
		return
	}
	alone := f.o.Members.Alone()
	answers := f.ask(ctx)
	for _, addr := range f.list {
		a, asked := answers[addr]
		if !asked || a.Err != nil || a.State.ClusterID == "" || a.State.ClusterID == own {
			continue
		}
		text := fmt.Sprintf("node %s at %s is in the list of --cluster, but belongs to cluster %s, and this node to "+
			"cluster %s",
			a.State.Node.ID, addr, a.State.ClusterID, own)
		if alone {
			text += ", of which it is the only node: it does nothing"
			remedy := "if that cluster is the right one, empty this node's data directory, which discards what is " +
				"in it, and start it again; if this one is, correct --cluster"
			if f.news(text) {
				f.o.Logger.Error(text, event.OtherCluster, "remedy", remedy)
			}
			f.o.Members.StandStill(job.Errorf(job.CodeNotReady, remedy, "%s", text))
			return
		}
		remedy := "correct --cluster on the nodes of this cluster; if that node should be part of it, empty its data " +
			"directory and start it again"
		if f.news(text) {
			f.o.Logger.Error(text, event.OtherCluster, "remedy", remedy)
		}
		f.o.Members.Mentions(text, remedy)
		return
	}
	f.news("")
	f.o.Members.Mentions("", "")
}

// Watch looks from time to time.
func (f *Former) Watch(ctx context.Context) {
	for len(f.list) > 1 && wait.For(ctx, f.o.Pace(watchEvery)) {
		f.Look(ctx)
	}
}
