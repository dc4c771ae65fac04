package datadir

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// maxNameProblems keeps the report readable.
const maxNameProblems = 200

// nameCheck holds the names of groups against each other. What one group has of itself is checked there already: that a
// job with a name of another home has a reservation, and that a home gives no name away that its own job has.
type nameCheck struct {
	views    map[uint32]*store.View
	problems []string
}

// checkNames verifies that names are unique over the groups of a directory, and that every reservation is for a job
// that has it or for something that its keeper settles. Groups stopped at different entries of their logs: what one of
// them has not heard of yet is no problem where its numbers tell that.
func (d *Dir) checkNames(groups []uint32) (problems []string, err error) {
	if len(groups) < 2 {
		return nil, nil
	}
	c := &nameCheck{views: map[uint32]*store.View{}}
	var look func(rest []uint32) error
	look = func(rest []uint32) error {
		if len(rest) == 0 {
			return c.look(groups)
		}
		st, err := store.Open(d.groupFile(rest[0], stateName), store.Options{ReadOnly: true})
		if err != nil {
			return inGroup(rest[0], err)
		}
		defer st.Close()
		return st.View(func(v *store.View) error {
			if v.Info.Group == rest[0] { // otherwise it has not begun
				c.views[rest[0]] = v
			}
			return look(rest[1:])
		})
	}
	err = look(groups)
	return c.problems, err
}

func (c *nameCheck) look(groups []uint32) error {
	for _, group := range groups {
		v := c.views[group]
		if v == nil {
			continue
		}
		var failed error
		each := func(check func() error) bool {
			failed = check()
			return failed == nil && len(c.problems) < maxNameProblems
		}
		err := v.EachHeld(func(h store.Held) bool { return each(func() error { return c.held(group, &h) }) })
		if err == nil && failed == nil {
			err = v.EachReservation(func(r store.Reservation) bool {
				return each(func() error { return c.reserved(group, &r) })
			})
		}
		if err == nil {
			err = failed
		}
		if err != nil {
			return inGroup(group, err)
		}
	}
	return nil
}

func (c *nameCheck) bad(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...)+"; or this node had not caught up with one of the "+
		"two groups when it stopped: start it, let it catch up, stop it, and check again")
}

// held looks at the home of a name that a job has by a reservation.
func (c *nameCheck) held(group uint32, h *store.Held) error {
	home := c.views[h.Home]
	if home == nil || h.Number > home.LastReserved() { // it is elsewhere, or behind
		return nil
	}
	r, there, err := home.Reservation(h.NameRef)
	if err != nil || there && r.Number == h.Number && r.Group == group && (r.Job == 0 || r.Job == h.Job) {
		return err
	}
	what := fmt.Sprintf("the name %q", h.Name)
	if h.Kind == job.NameRequest {
		what = fmt.Sprintf("the request key %q", h.Name)
	}
	switch id, named := home.Named(h.Namespace, h.Name); {
	case named && h.Kind == job.NameJob:
		c.bad("job %s of group %d and job %s of group %d both have %s", h.Job, group, id, h.Home, what)
	case there && r.Job != 0:
		c.bad("job %s of group %d has %s, which group %d keeps for job %s of group %d", h.Job, group, what, h.Home,
			r.Job, r.Group)
	case there:
		c.bad("job %s of group %d has %s, which group %d keeps for another of group %d", h.Job, group, what, h.Home,
			r.Group)
	default:
		c.bad("job %s of group %d has %s, which its home, group %d, does not keep for it", h.Job, group, what, h.Home)
	}
	return nil
}

// reserved looks at the group that a home keeps a name for. What is pending is settled by the home's keeper.
func (c *nameCheck) reserved(home uint32, r *store.Reservation) error {
	if r.Kind == job.NameQueue {
		if r.Group != home {
			c.bad("queue %q has its home in group %d and is pinned to group %d", r.Name, home, r.Group)
		}
		return nil
	}
	in := c.views[r.Group]
	if r.Pending() || in == nil || uint64(r.Job) > in.C.NextJob { // the group is elsewhere, or behind
		return nil
	}
	if h, there, err := in.Held(home, r.Number); err != nil || there && h.Job == r.Job {
		return err
	}
	if in.NumberOver(home, r.Number) { // its home is told to release it, or has and is behind
		return nil
	}
	c.bad("group %d keeps the name %q for job %s of group %d, which does not have it", home, r.Name, r.Job, r.Group)
	return nil
}
