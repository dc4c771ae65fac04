package insight

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// viewJobs is how many jobs one view looks at: commits wait for views.
	viewJobs = 256
	// listLimit is how many jobs one request looks at. A filter that matches few gets a short page with a cursor, not a
	// long wait.
	listLimit = 20_000
)

// ListJobs implements api.Backend: by name if a prefix is given, by id otherwise, and over all namespaces.
func (b *Service) ListJobs(ctx context.Context, q wire.JobQuery, rd api.Read) (wire.JobPage, error) {
	page := wire.JobPage{Jobs: []job.Job{}}
	byName := q.Prefix != "" && rd.Space.Namespace != job.AllNamespaces
	from, err := parseJobCursor(q.Cursor, byName)
	if err != nil {
		return page, err
	}
	if err := b.o.Fresh(ctx, rd); err != nil {
		return page, err
	}
	for looked := 0; looked < listLimit; {
		if err := ctx.Err(); err != nil {
			return page, err
		}
		var ids []job.ID
		end, cost := false, 0
		err := b.view(func(r *view.Reader) error {
			var err error
			if ids, from, end, cost, err = jobsFrom(r, q, rd.Space, byName, from); err != nil {
				return err
			}
			for i, id := range ids {
				ok, err := matches(r, id, q, rd.Space)
				if err != nil {
					return err
				}
				if !ok {
					continue
				}
				j, err := r.Job(id)
				if err != nil {
					return err
				}
				if q.Status != "" && j.Status != q.Status {
					continue
				}
				page.Jobs = append(page.Jobs, j)
				if len(page.Jobs) == q.Limit {
					from, end = jobCursor{id: id, name: j.Name}, end && i == len(ids)-1
					return errPageFull
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errPageFull) {
			return page, err
		}
		if end {
			return page, nil
		}
		if err != nil {
			break
		}
		looked += cost
	}
	page.NextCursor = from.String(byName)
	return page, nil
}

var errPageFull = errors.New("page full")

// jobCursor is where a list of jobs goes on: behind this job.
type jobCursor struct {
	id   job.ID
	name string
}

func (c jobCursor) String(byName bool) string {
	if byName {
		return "n" + base64.RawURLEncoding.EncodeToString([]byte(c.name))
	}
	return c.id.String()
}

func parseJobCursor(cursor string, byName bool) (c jobCursor, err error) {
	if cursor == "" {
		return c, nil
	}
	if rest, ok := strings.CutPrefix(cursor, "n"); ok && byName {
		name, err := base64.RawURLEncoding.DecodeString(rest)
		c.name = string(name)
		return c, view.CheckCursor(err)
	}
	if !byName {
		c.id, err = job.ParseID(cursor)
		return c, view.CheckCursor(err)
	}
	return c, view.BadCursor()
}

// spaceScan is how many definitions one view looks at for a namespace; those without its name in them cost scanShare
// of the others.
const (
	spaceScan = 1024
	scanShare = 16
)

// jobsFrom takes some jobs behind a cursor; cost is how many it looked at.
func jobsFrom(r *view.Reader, q wire.JobQuery, sc api.Space, byName bool, from jobCursor) (ids []job.ID,
	next jobCursor, end bool, cost int, err error) {
	next, end = from, true
	space := sc.Name()
	if byName {
		err = r.EachName(space, q.Prefix, from.name, func(name string, id job.ID) bool {
			if len(ids) == viewJobs {
				end = false
				return false
			}
			ids, next = append(ids, id), jobCursor{id: id, name: name}
			return true
		})
		return ids, next, end, len(ids), err
	}
	if space != job.AllNamespaces && space != job.DefaultNamespace {
		next.id, end, err = r.JobsWith(space, from.id, spaceScan, func(id job.ID, d store.Definition) {
			cost++
			if d.Spec.Namespace == space {
				r.Keep(id, &d)
				ids = append(ids, id)
			}
		})
		return ids, next, end, cost + spaceScan/scanShare, err
	}
	err = r.EachJob(from.id, func(id job.ID, d store.Definition) bool {
		if len(ids) == viewJobs {
			end = false
			return false
		}
		r.Keep(id, &d)
		ids, next = append(ids, id), jobCursor{id: id}
		return true
	})
	return ids, next, end, len(ids), err
}

// matches applies the filters that a definition decides.
func matches(r *view.Reader, id job.ID, q wire.JobQuery, sc api.Space) (bool, error) {
	def, err := r.Def(id)
	if err != nil || def == nil {
		return false, err
	}
	if q.Type != "" && def.Spec.Type != q.Type || !sc.Lists(def.Spec.Namespace) ||
		!strings.HasPrefix(def.Spec.Name, q.Prefix) {
		return false, nil
	}
	for k, v := range q.Tags {
		if have, ok := def.Spec.Tags[k]; !ok || have != v {
			return false, nil
		}
	}
	return true, nil
}
