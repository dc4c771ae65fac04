package names

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	testGroups = 3
	testHomes  = 2 // a cluster that grew
	testStart  = 1_700_000_000_000
	testNext   = testStart + 1<<40
)

// member is the only replica of a group, with its keeper.
type member struct {
	t     testing.TB
	group uint32
	st    *store.Store
	keep  *Keeper

	mu     sync.Mutex
	f      *fsm.FSM
	index  uint64
	now    int64
	silent bool // it does not lead
}

func (m *member) Stamp() (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now, nil
}

func (m *member) Propose(_ context.Context, cmd fsm.Command) (*fsm.Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.propose(cmd)
}

func (m *member) propose(cmd fsm.Command) (*fsm.Reply, error) {
	data, err := fsm.Encode(cmd)
	if err != nil {
		return nil, err
	}
	m.index++
	reply, ok := m.f.ApplyBatch([]*raft.Log{{Index: m.index, Term: 1, Type: raft.LogCommand, Data: data}})[0].(*fsm.Reply)
	if !ok {
		return nil, fmt.Errorf("%T was not applied", cmd)
	}
	return reply, nil
}

// one applies a command about one thing that build makes of what is there then.
func (m *member) one(build func(fsm.Head) fsm.Command) fsm.Outcome {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	cmd := build(fsm.Head{Now: m.now, Term: 1})
	if cmd == nil {
		return fsm.Outcome{Code: fsm.CodeNotFound}
	}
	reply, err := m.propose(cmd)
	if err != nil || len(reply.Items) != 1 {
		m.t.Errorf("%T: %v", cmd, err)
		return fsm.Outcome{}
	}
	return reply.Items[0]
}

func (m *member) lead() (leadership, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.silent {
		return leadership{}, forward.ErrNoLeader()
	}
	return leadership{m, 1}, nil
}

func (m *member) silence(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = on
}

func (m *member) view(fn func(*store.View) error) {
	m.t.Helper()
	if err := m.st.View(fn); err != nil {
		m.t.Fatal(err)
	}
}

// cluster is three groups, with jobs that live away from the homes of their names.
type cluster struct {
	testing.TB
	by   []*member
	rng  *rand.Rand
	call func(group uint32, q *Ask, a *Answer) error // how a call goes

	late []func() // what was sent and has not come yet
	calm bool     // nothing is lost or late any more
}

func newCluster(t testing.TB, seed uint64) *cluster {
	c := &cluster{TB: t, rng: rand.New(rand.NewPCG(seed, 1))}
	c.call = c.do
	for n := range uint32(testGroups) {
		st, err := store.Open(filepath.Join(t.TempDir(), fmt.Sprintf("%d.db", n+1)),
			store.Options{NoSync: true, MmapSize: 1 << 26})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		m := &member{t: t, group: n + 1, st: st, f: fsm.New(st, fsm.Options{}), now: testStart}
		m.keep = New(Options{Store: st, Logger: slog.New(slog.DiscardHandler),
			Call: func(ctx context.Context, group uint32, q *Ask, a *Answer) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return c.call(group, q, a)
			}})
		m.keep.lead = m.lead
		m.one(func(h fsm.Head) fsm.Command {
			return &fsm.Init{Head: h, ClusterID: "c", Group: n + 1, GroupID: fmt.Sprint("g", n+1), Homes: testHomes,
				Groups: testGroups}
		})
		c.by = append(c.by, m)
	}
	return c
}

func (c *cluster) of(group uint32) *member { return c.by[group-1] }

func (c *cluster) chance(percent int) bool { return c.rng.IntN(100) < percent }

func (c *cluster) some() *member { return c.by[c.rng.IntN(testGroups)] }

// do has a call arrive, by way of its form between nodes.
func (c *cluster) do(group uint32, q *Ask, a *Answer) error {
	var ask Ask
	var answer Answer
	travel(c, q, &ask)
	if err := c.of(group).keep.Do(context.Background(), &ask, &answer); err != nil {
		return err
	}
	travel(c, &answer, a)
	return nil
}

// travel is what is left of a message on its way.
func travel(t testing.TB, from, to any) {
	data, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		t.Error(err)
	}
}

var errLost = errors.New("lost")

// faulty loses, delays and repeats calls.
func (c *cluster) faulty(group uint32, q *Ask, a *Answer) error {
	switch n := c.rng.IntN(100); {
	case c.calm || n < 60:
	case n < 70: // on its way there
		return errLost
	case n < 80: // its answer
		_ = c.do(group, q, new(Answer))
		return errLost
	case n < 90: // it comes after its caller gave up
		c.late = append(c.late, func() { _ = c.do(group, q, new(Answer)) })
		return errLost
	default:
		c.late = append(c.late, func() { _ = c.do(group, q, new(Answer)) })
	}
	return c.do(group, q, a)
}

func named(name string) job.NameRef {
	return job.NameRef{Kind: job.NameJob, Namespace: job.DefaultNamespace, Name: name}
}

func keyed(key string) job.NameRef {
	return job.NameRef{Kind: job.NameRequest, Namespace: job.DefaultNamespace, Name: key}
}

func homeOf(n job.NameRef) uint32 { return job.HomeOf(n.Kind, n.Namespace, n.Name, testHomes) }

// away is a name whose home is one group.
func away(home uint32, beginning string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint(beginning, i); homeOf(named(name)) == home {
			return name
		}
	}
}

// create is a create command of a job in a group under a grant.
func (m *member) create(req, name string, g Grant) fsm.Outcome {
	return m.one(func(h fsm.Head) fsm.Command {
		spec := job.Spec{Name: name, Type: job.TypeHTTP, Schedule: "* * * * *", Payload: []byte(`{"url":"http://x/"}`)}
		if name == "" {
			spec.Tags = map[string]string{"request": req}
		}
		spec.Normalize()
		def := store.Definition{Spec: spec, Version: 1, CreatedAt: h.Now, UpdatedAt: h.Now}
		return &fsm.Create{Head: h, Items: []fsm.CreateItem{{Job: m.st.Counters().NextJob + 1, Def: def.Append(nil),
			Next: fsm.When{At: testNext, Ready: testNext}, Home: g.Home, Reservation: g.Number,
			Request: fsm.Request{ID: req, Fingerprint: 7, Expires: testNext}}}}
	})
}

// rename is an update of a job's name under a grant.
func (m *member) rename(id job.ID, name string, g Grant) fsm.Outcome {
	return m.one(func(h fsm.Head) (cmd fsm.Command) {
		m.view(func(v *store.View) error {
			def, ok, err := v.Definition(id)
			if err != nil || !ok {
				return err
			}
			s, p, _, err := v.State(id)
			version := def.Version
			def.Spec.Name = name
			def.Version++
			cmd = &fsm.Update{Head: h, Job: uint64(id), Version: version, Def: def.Append(nil),
				Seen: fsm.Seen{Gen: s.Gen, At: p.At, Ready: p.Ready}, Next: fsm.When{At: p.At, Ready: p.Ready},
				Home: g.Home, Reservation: g.Number}
			return err
		})
		return cmd
	})
}

func (m *member) remove(id job.ID) {
	m.one(func(h fsm.Head) fsm.Command { return &fsm.Delete{Head: h, Job: uint64(id)} })
}

func (m *member) jobs() map[job.ID]job.Spec {
	all := map[job.ID]job.Spec{}
	m.view(func(v *store.View) error {
		return v.EachJob(0, func(id job.ID, d store.Definition) bool { all[id] = d.Spec; return true })
	})
	return all
}

// left is how many names are pending at a home or owed to one.
func (c *cluster) left() (n int) {
	for _, m := range c.by {
		m.view(func(v *store.View) error {
			return errors.Join(v.EachPending(func(store.Reservation) bool { n++; return true }),
				v.EachOwed(func(store.Held) bool { n++; return true }))
		})
	}
	return n
}

// pass has time go by in all groups.
func (c *cluster) pass(d time.Duration) {
	for _, m := range c.by {
		m.mu.Lock()
		m.now += d.Milliseconds()
		m.mu.Unlock()
	}
}

// unique holds that no two jobs have one name or are of one request.
func (c *cluster) unique() {
	c.Helper()
	seen := map[string]job.ID{}
	for _, m := range c.by {
		for id, spec := range m.jobs() {
			for _, k := range []string{"request " + spec.Tags["request"], "name " + spec.Name} {
				if other, twice := seen[k]; twice && !strings.HasSuffix(k, " ") {
					c.Fatalf("%q is %s and %s", k, id, other)
				}
				seen[k] = id
			}
		}
	}
}

// sound holds the homes against the jobs, when nothing is under way.
func (c *cluster) sound() {
	c.Helper()
	c.unique()
	if n := c.left(); n != 0 {
		c.Fatalf("%d names are pending or owed", n)
	}
	reserved := map[job.NameRef]store.Reservation{}
	for _, m := range c.by {
		if problems, _, err := m.st.Check(); err != nil || len(problems) > 0 {
			c.Fatalf("group %d is not sound: %v %q", m.group, err, problems)
		}
		m.view(func(v *store.View) error {
			return v.EachReservation(func(r store.Reservation) bool { reserved[r.NameRef] = r; return true })
		})
	}
	for _, m := range c.by {
		for id, spec := range m.jobs() {
			r, ok := reserved[named(spec.Name)]
			if away := spec.Name != "" && homeOf(named(spec.Name)) != m.group; ok != away || ok && r.Job != id {
				c.Fatalf("%s has the name %q, and its home says %+v", id, spec.Name, r)
			}
			delete(reserved, named(spec.Name))
			delete(reserved, keyed(spec.Tags["request"]))
		}
	}
	for _, r := range reserved {
		done := false
		c.of(r.Group).view(func(v *store.View) error {
			done = r.Kind == job.NameRequest && v.Request(r.Name) != nil // a repetition is to find what became of it
			return nil
		})
		if done {
			continue
		}
		c.Fatalf("%+v is of no job", r)
	}
}
