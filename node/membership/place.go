package membership

import (
	"context"
	crand "crypto/rand"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/placement"
	"github.com/carillon-scheduler/carillon/store"
)

// GroupRows are the rows of the table of groups, as this node's replica of the control group has them.
func (m *Members) GroupRows() (rows []store.GroupRow, err error) {
	err = m.o.Store.View(func(v *store.View) (err error) {
		rows, err = v.Groups()
		return err
	})
	return rows, err
}

// GroupRow is one of them.
func (m *Members) GroupRow(number uint32) (row store.GroupRow, ok bool, err error) {
	rows, err := m.GroupRows()
	if i := slices.IndexFunc(rows, func(r store.GroupRow) bool { return r.Number == number }); i >= 0 {
		return rows[i], true, err
	}
	return store.GroupRow{}, false, err
}

// PlaceGroups is the part of the control group's leader that writes the table of groups. led says that a group has a
// leader.
func (m *Members) PlaceGroups(e *forward.Epoch, led func(group uint32) bool) func(context.Context) {
	return func(ctx context.Context) {
		m.steps(ctx, func() bool {
			info := m.o.Store.Info()
			more, err := m.place(e, led, wanted(&info))
			if err != nil && ctx.Err() == nil {
				m.log("table of groups not written; trying again", "error", err)
			}
			return more && err == nil
		})
	}
}

// steps calls step until ctx ends: without a pause while that says that there is more to do, and then now and then, or,
// where there is to be one group alone, when that changes.
func (m *Members) steps(ctx context.Context, step func() (more bool)) {
	changed := make(chan struct{}, 1)
	defer m.o.Store.Listen(func(c *store.Changes) {
		if c.Groups || c.Reset {
			wait.Wake(changed)
		}
	})()
	for ctx.Err() == nil {
		if step() {
			continue
		}
		info := m.o.Store.Info()
		pause := m.o.Interval
		if wanted(&info) == 1 {
			pause = math.MaxInt64
		}
		wait.Within(ctx, changed, pause)
	}
}

// place makes one step towards the table as it should be, and says whether it did. Every step may be repeated, by this
// leader or the next.
func (m *Members) place(e *forward.Epoch, led func(group uint32) bool, groups uint32) (more bool, err error) {
	if groups == 1 {
		return false, nil
	}
	rows, err := m.GroupRows()
	if err != nil {
		return false, err
	}
	p, err := m.placing(rows)
	if err != nil {
		return false, err
	}
	for number := uint32(1); number <= groups; number++ {
		i := slices.IndexFunc(rows, func(r store.GroupRow) bool { return r.Number == number })
		if i < 0 {
			begin := p.Least()
			return true, m.putGroup(e, store.GroupRow{Number: number, ID: strings.ToLower(crand.Text()), Begin: begin,
				State: store.GroupPreparing, Replicas: []store.GroupReplica{{Node: begin, Number: replica.First,
					Instance: p.Instances[begin]}}})
		}
		row := rows[i]
		if row.State == store.GroupPreparing {
			if !led(number) {
				continue // it is not there yet
			}
			row.State = store.GroupActive
			return true, m.putGroup(e, row)
		}
		if next, ok := p.Next(row); ok {
			return true, m.putGroup(e, next)
		}
	}
	return false, nil
}

func (m *Members) putGroup(e *forward.Epoch, row store.GroupRow) error {
	reply, err := e.Proposer.Propose(&fsm.PutGroup{Head: m.head(e), Row: row, Version: row.Version}).Wait()
	return notWritten(reply, err)
}

// notWritten is why a command about groups did nothing.
func notWritten(reply *fsm.Reply, err error) error {
	if err != nil {
		return forward.Explain(err)
	}
	if o := reply.Items[0]; o.Code != fsm.CodeOK && o.Code != fsm.CodeConflict { // another step came first
		return job.Errorf(job.CodeState, "", "%s (%d)", o.Text, o.Code)
	}
	return nil
}

// placing is what is known of the nodes now.
func (m *Members) placing(rows []store.GroupRow) (*placement.Nodes, error) {
	nodes, err := m.Rows()
	if err != nil {
		return nil, err
	}
	p := &placement.Nodes{Self: m.id(), Able: map[string]bool{}, Timely: map[string]bool{},
		Instances: map[string]string{}, Load: map[string]int{}}
	servers := m.Configured()
	disk := m.o.Disk()
	for _, id := range slices.Sorted(maps.Keys(nodes)) {
		if s, in := FindServer(servers, id); !in || s.Suffrage != raft.Voter {
			if !nodes[id].Leaving { // it was given its replicas when it voted
				p.Instances[id] = nodes[id].Instance
			}
			continue
		}
		p.Voters = append(p.Voters, id)
		if nodes[id].Leaving {
			continue
		}
		p.Instances[id] = nodes[id].Instance
		low := disk.Low
		if id != m.id() {
			m.mu.Lock()
			peer := m.peers[id]
			answers := peer != nil && peer.problem == "" && !peer.seen.at.IsZero()
			low = !answers || peer.seen.Disk.Low
			m.mu.Unlock()
		}
		m.mu.Lock()
		off, known := m.distance(id)
		m.mu.Unlock()
		p.Timely[id] = known && off.Abs() <= placement.FitSkew
		p.Able[id] = !low
	}
	for _, row := range rows {
		for _, r := range row.Replicas {
			if !r.Leaving {
				p.Load[r.Node]++
			}
		}
	}
	return p, nil
}
