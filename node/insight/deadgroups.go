package insight

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// maxDeadGroups bounds how many groups are told apart. What comes after that is left out, and counted.
	maxDeadGroups = 1000
	// groupNames is how many of a group's jobs are named, groupJobs how many are counted.
	groupNames = 5
	groupJobs  = 10_000
	// GroupRows is how many letters one view looks at: to find the shape of an error takes some microseconds.
	GroupRows = 128
	// leastLetters is how many are looked at in any case, however long that takes.
	leastLetters = 2_000
)

// deadGroup is a group while it is counted.
type deadGroup struct {
	wire.DeadGroup
	jobs map[job.ID]struct{}
}

// groupOf is the key of the group that a dead letter belongs to, and the shape of its error.
func groupOf(r *view.Reader, d *store.Dead) (key, shape string) {
	shape = Shape(d.Error)
	return GroupKey(r.Namespace(d.Row.Class), d.Reason, shape), shape
}

// InGroup says that a dead letter is of a group; empty: of any.
func InGroup(r *view.Reader, d *store.Dead, group string) bool {
	if group == "" {
		return true
	}
	key, _ := groupOf(r, d)
	return key == group
}

// DeadGroups implements api.Backend. It looks at a bounded number of letters, newest first; the groups of the next page
// may be those of this one, with more letters.
func (b *Service) DeadGroups(ctx context.Context, q wire.DeadQuery, rd api.Read) (wire.DeadGroupPage, error) {
	page := wire.DeadGroupPage{Groups: []wire.DeadGroup{}}
	below, err := view.DeadCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	var id job.ID
	done, err := b.Turn(ctx, rd)
	if err != nil {
		return page, err
	}
	defer done()
	err = b.view(func(r *view.Reader) (err error) {
		if rd.Space.All {
			page.Total = r.C.Dead
		}
		id, err = r.FindDead(q.Job, rd.Space)
		return err
	})
	if err != nil {
		return page, err
	}
	groups := map[string]*deadGroup{}
	end := false
	wait := patient(leastLetters)
	for looked := 0; looked < view.MaxRows && !end && !wait.over(looked); {
		if err := ctx.Err(); err != nil {
			return page, err
		}
		end = true
		err := b.view(func(r *view.Reader) error {
			var inner error
			n := 0
			err := r.EachDead(below, func(seq uint64, d store.Dead) bool {
				if n == GroupRows {
					end = false
					return false
				}
				n++
				below = seq
				if view.Counts(rd.Space, r.Namespace(d.Row.Class)) {
					page.Scanned++
				}
				if r.Selects(&d, id, rd.Space) {
					var added bool
					if added, inner = addToGroup(r, groups, seq, &d); !added {
						page.LeftOut++
					}
				}
				return inner == nil
			})
			looked += n
			return cmp.Or(err, inner)
		})
		if err != nil {
			return page, err
		}
	}
	if !end {
		page.NextCursor = strconv.FormatUint(below, 10)
	}
	for _, g := range groups {
		g.Jobs = len(g.jobs)
		page.Groups = append(page.Groups, g.DeadGroup)
	}
	slices.SortFunc(page.Groups, func(x, y wire.DeadGroup) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(y.Last, x.Last), cmp.Compare(x.Key, y.Key))
	})
	shown := min(len(page.Groups), q.Limit)
	for _, g := range page.Groups[shown:] {
		page.LeftOut += g.Count
	}
	page.Groups = page.Groups[:shown]
	return page, nil
}

// addToGroup counts a dead letter, unless there are too many groups. The first one that is met is the newest, and the
// sample.
func addToGroup(r *view.Reader, groups map[string]*deadGroup, seq uint64, d *store.Dead) (bool, error) {
	key, shape := groupOf(r, d)
	g := groups[key]
	if g == nil {
		if len(groups) >= maxDeadGroups {
			return false, nil
		}
		sample, err := r.Letter(seq, d)
		if err != nil {
			return false, err
		}
		g = &deadGroup{jobs: map[job.ID]struct{}{}, DeadGroup: wire.DeadGroup{Key: key, Namespace: sample.Namespace,
			Error: shape, Reason: d.Reason, First: job.Instant(d.DiedAt), Last: job.Instant(d.DiedAt), Sample: sample,
			JobNames: []string{}}}
		groups[key] = g
	}
	g.Count++
	g.First, g.Last = min(g.First, job.Instant(d.DiedAt)), max(g.Last, job.Instant(d.DiedAt))
	if _, known := g.jobs[d.Run.Job]; known || len(g.jobs) >= groupJobs {
		return true, nil
	}
	g.jobs[d.Run.Job] = struct{}{}
	if len(g.JobNames) < groupNames {
		name := d.Run.Job.String()
		def, err := r.Def(d.Run.Job)
		if err != nil {
			return false, err
		}
		if def != nil {
			name = cmp.Or(def.Spec.Name, name)
		}
		g.JobNames = append(g.JobNames, name)
	}
	return true, nil
}
