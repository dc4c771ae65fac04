package names

import (
	"context"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// What jobs refer to is in the control group, and the jobs are in others, which are asked before it is deleted.

// UsesOf says whose uses are asked for.
type UsesOf struct {
	Calendar  bool   `json:"calendar,omitempty"` // otherwise secrets, all of them
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Use is which jobs refer to something.
type Use struct {
	Of    store.SecretKey `json:"of"`   // a calendar is named in the same way
	Jobs  []string        `json:"jobs"` // the first ones
	Count int             `json:"count"`
}

// AddUses adds what another group says, and keeps the first names.
func AddUses(to, more []Use, shown int) []Use {
	at := map[store.SecretKey]int{}
	for i, u := range to {
		at[u.Of] = i
	}
	for _, u := range more {
		i, ok := at[u.Of]
		if !ok {
			i = len(to)
			at[u.Of], to = i, append(to, Use{Of: u.Of})
		}
		to[i].Count += u.Count
		to[i].Jobs = append(to[i].Jobs, u.Jobs[:min(len(u.Jobs), shown-len(to[i].Jobs))]...)
	}
	return to
}

// Uses asks all groups who uses something.
func (c *Client) Uses(ctx context.Context, groups []uint32, of UsesOf, shown int) (out []Use, err error) {
	for _, g := range groups {
		var a Answer
		if err := c.Call(ctx, g, &Ask{Uses: &of}, &a); err != nil {
			return nil, job.Errorf(job.CodeUnavailable, "try again when it has a leader",
				"group %d does not answer which of its jobs use it: %v", g, err)
		}
		out = AddUses(out, a.Uses, shown)
	}
	return out, nil
}

// Activate has the leader of a group know how many groups take new jobs, if as many of its replicas vote. With 0 it is
// asked only whether they do.
func (c *Client) Activate(ctx context.Context, group, groups uint32, voters int) error {
	return c.Call(ctx, group, &Ask{Activate: groups, Voters: voters}, new(Answer))
}
