package membership

import (
	"context"
	crand "crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
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
		for {
			info := m.o.Store.Info()
			more, err := m.place(e, led, wanted(&info))
			if err != nil && ctx.Err() == nil {
				m.log("table of groups not written; trying again", "error", err)
			}
			if more && err == nil && ctx.Err() == nil {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(m.o.Interval):
			}
		}
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
			begin := p.least()
			return true, m.putGroup(e, store.GroupRow{Number: number, ID: strings.ToLower(crand.Text()), Begin: begin,
				State: store.GroupPreparing, Replicas: []store.GroupReplica{{Node: begin, Number: replica.First,
					Instance: p.instances[begin]}}})
		}
		row := rows[i]
		if row.State == store.GroupPreparing {
			if !led(number) {
				continue // it is not there yet
			}
			row.State = store.GroupActive
			return true, m.putGroup(e, row)
		}
		if next, ok := p.next(row); ok {
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
