package membership

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/placement"
	"github.com/carillon-scheduler/carillon/store"
)

// A cluster gets its groups of jobs in steps, at its beginning and when it grows. DESIGN.md says what each is for.

// growing is what the leader that brings groups into use says of that.
type growing struct {
	lax atomic.Bool            // see Lax
	why atomic.Pointer[string] // what is waited for
}

// wanted is how many groups of jobs there are to be; 1: what there is is in group 0.
func wanted(info *store.Info) uint32 { return max(info.Homes, info.Want, 1) }

// having is how many groups take jobs. In a cluster that begins with several none does at first.
func having(info *store.Info) uint32 {
	if info.Homes > 1 {
		return info.Groups
	}
	return max(info.Groups, 1)
}

// Grow implements api.Cluster: it says how many groups there are to be, and the leader brings that about.
func (m *Members) Grow(ctx context.Context, groups int) (wire.Growth, error) {
	e, err := m.o.Tracker.Leading()
	if err != nil {
		return wire.Growth{}, err
	}
	remedy := "use a number from 2 to " + strconv.Itoa(job.MaxGroups)
	if groups < 1 || groups > job.MaxGroups {
		return wire.Growth{}, job.Invalid("groups", remedy, "a cluster cannot have %d groups of jobs", groups)
	}
	if info := m.o.Store.Info(); wanted(&info) == uint32(groups) {
		return m.Growth() // asked for before: who waits for it repeats the request, and that is nothing to record
	}
	o, err := m.propose(ctx, e, &fsm.GrowGroups{Head: m.asked(ctx, e), Groups: uint32(groups)})
	switch {
	case err != nil:
		return wire.Growth{}, err
	case o.Code == fsm.CodeRefused:
		return wire.Growth{}, job.Invalid("groups", "use a higher number",
			"the cluster has %d groups of jobs, and the number can never be lowered", o.Count)
	case o.Code == fsm.CodeConflict:
		return wire.Growth{}, job.Errorf(job.CodeState, "wait until that is done; `carillon status` shows it",
			"the cluster is already growing to %d groups of jobs; nothing was changed", o.Count)
	case o.Code != fsm.CodeOK:
		return wire.Growth{}, forward.ErrNoLeader() // the entry came into another term
	}
	return m.Growth()
}

// Growth is how many groups of jobs there are and are to be, and how far the new ones are.
func (m *Members) Growth() (g wire.Growth, err error) {
	info := m.o.Store.Info()
	g = wire.Growth{Groups: int(having(&info)), Want: int(wanted(&info)), New: []wire.NewGroup{}}
	if g.Done = info.Known >= wanted(&info) || g.Want == 1; g.Done {
		return g, nil
	}
	rows, err := m.GroupRows()
	for number := info.Groups + 1; number <= wanted(&info); number++ {
		n := wire.NewGroup{ID: number, State: "waiting", Replicas: []string{}}
		if i := slices.IndexFunc(rows, func(r store.GroupRow) bool { return r.Number == number }); i >= 0 {
			if n.State = "beginning"; rows[i].State == store.GroupActive {
				n.State = "begun"
			}
			for _, r := range rows[i].Replicas {
				n.Replicas = append(n.Replicas, r.Node)
			}
		}
		g.New = append(g.New, n)
	}
	if why := m.growing.why.Load(); why != nil {
		g.Waiting = *why
	}
	return g, err
}

// Growing is the same while it is under way, or nil. It is under way in a cluster that begins with several groups, too.
func (m *Members) Growing() *wire.Growth {
	if m.o.Of != nil {
		return nil
	}
	g, err := m.Growth()
	if err != nil || g.Done {
		return nil
	}
	return &g
}

// Lax says that this leadership has not had any group take new jobs that a node may not have heard of: nodes that have
// not are answered as before.
func (m *Members) Lax() bool { return m.growing.lax.Load() }

// GrowGroups is the part of the control group's leader that has groups take jobs which are there. activate has the
// leader of a group know how many there are to be, or with 0 say whether it is ready.
func (m *Members) GrowGroups(e *forward.Epoch,
	activate func(ctx context.Context, group, groups uint32, voters int) error) func(context.Context) {
	return func(ctx context.Context) {
		defer m.growing.lax.Store(false)
		defer m.growing.why.Store(nil)
		s := stepper{m: m, e: e, activate: activate}
		m.steps(ctx, func() bool {
			more, why := s.step(ctx)
			m.growing.why.Store(&why)
			return more
		})
	}
}

// stepper brings groups into use.
type stepper struct {
	m        *Members
	e        *forward.Epoch
	activate func(ctx context.Context, group, groups uint32, voters int) error
	told     uint64 // an entry by which the nodes that have applied it know of the last step; 0: none is known
}

// step makes one step, each of which may be repeated by this leader or the next. It says whether there is another one
// to make now, or what is waited for.
func (s *stepper) step(ctx context.Context) (more bool, why string) {
	m := s.m
	info := m.o.Store.Info()
	want := wanted(&info)
	if want == 1 || info.Known >= want {
		return false, ""
	}
	if info.Groups >= want {
		if why = s.unheard(); why != "" {
			return false, why
		}
		return s.propose(&fsm.ActivateGroups{Head: m.head(s.e), Groups: want, Known: true})
	}
	rows, err := m.GroupRows()
	if err != nil {
		return false, err.Error()
	}
	for number := uint32(1); number <= want; number++ {
		i := slices.IndexFunc(rows, func(r store.GroupRow) bool { return r.Number == number })
		if i < 0 || rows[i].State != store.GroupActive {
			return false, fmt.Sprintf("group %d has not begun yet", number)
		}
	}
	if info.Listed < want {
		if err := s.all(ctx, rows, info.Groups, 0); err != nil {
			return false, err.Error()
		}
		m.growing.lax.Store(true) // before a node could have heard of it
		return s.propose(&fsm.ActivateGroups{Head: m.head(s.e), Groups: want, List: true})
	}
	if why = s.unheard(); why != "" && !mutant.On(mutant.GrowEarly) {
		return false, why
	}
	m.growing.lax.Store(false)
	if !mutant.On(mutant.GrowEarly) {
		if err := s.all(ctx, rows, info.Groups, want); err != nil {
			return false, err.Error()
		}
	}
	if more, why = s.propose(&fsm.ActivateGroups{Head: m.head(s.e), Groups: want}); more {
		m.o.Logger.Info("groups of jobs take new jobs", "groups", want)
	}
	return more, why
}

// propose commits a step.
func (s *stepper) propose(cmd fsm.Command) (done bool, why string) {
	s.told = 0
	if err := notWritten(s.e.Proposer.Propose(cmd).Wait()); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// unheard is which node does not know of the last step that is in the state; "": all that answer do.
func (s *stepper) unheard() string {
	if s.told == 0 {
		s.told = s.m.o.Store.Counters().Index
	}
	if id := s.m.unaware(s.told); id != "" {
		return fmt.Sprintf("node %s has not heard of the new groups yet", id)
	}
	return ""
}

// all asks the leaders of all groups. Of a new one as many replicas are to vote as there are voters for it to have; of
// those that take jobs already it is not asked.
func (s *stepper) all(ctx context.Context, rows []store.GroupRow, taking, groups uint32) error {
	for _, row := range rows {
		voters := 1
		if row.Number > taking {
			voters = min(s.m.Voters(), cmp.Or(row.Size, placement.MaxReplicas))
		}
		if err := s.activate(ctx, row.Number, groups, voters); err != nil {
			return err
		}
	}
	return nil
}

// Voters is how many members of the group vote.
func (m *Members) Voters() (n int) {
	for _, s := range m.Configured() {
		if s.Suffrage == raft.Voter {
			n++
		}
	}
	return n
}

// unaware is a node that answers and has not applied an entry; "": there is none. One that does not answer is not
// waited for: what it asks by what it knows is refused when it is back.
func (m *Members) unaware(index uint64) string {
	servers := m.Configured()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range servers {
		id := replica.Node(s.ID)
		if p := m.peers[id]; id != m.id() && (p == nil || p.problem == "" && p.seen.Applied < index) {
			return id
		}
	}
	return ""
}
