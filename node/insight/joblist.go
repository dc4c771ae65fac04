package insight

import (
	"context"
	"encoding/base64"
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
	// leastJobs is how many it looks at in any case, however long that takes.
	leastJobs = 2_000
)

// ListJobs implements api.Backend: by name if a part of the name is given, by id otherwise. A page that had to look at
// too many jobs is short and has a cursor.
func (b *Service) ListJobs(ctx context.Context, q wire.JobQuery, rd api.Read) (wire.JobPage, error) {
	page := wire.JobPage{Jobs: []job.Job{}}
	w, err := newJobWalk(q, rd.Space)
	if err != nil {
		return page, err
	}
	done, err := b.Turn(ctx, rd)
	if err != nil {
		return page, err
	}
	defer done()
	wait, room := patient(leastJobs), view.NewRoom(q.Limit)
	for w.cost < listLimit && !w.end && !room.Full() && !wait.over(w.cost) {
		if err := ctx.Err(); err != nil {
			return page, err
		}
		err := b.view(func(r *view.Reader) error {
			if q.Filters() && rd.Space.All {
				page.Total = r.C.Jobs
			}
			ids, err := w.next(r)
			if err != nil {
				return err
			}
			for i, id := range ids {
				j, ok, err := w.job(r, id)
				if err != nil {
					return err
				}
				if !ok {
					continue
				}
				page.Jobs = append(page.Jobs, j)
				room.Take(len(j.Payload))
				if room.Full() && i < len(ids)-1 {
					w.at, w.end = jobCursor{id: id, name: j.Name, key: store.NameKey(j.Namespace, j.Name)}, false
					return nil
				}
			}
			return nil
		})
		if err != nil {
			return page, err
		}
	}
	if q.Filters() {
		if page.Scanned = w.seen; page.Total != 0 { // of the last views it is known only how many they might look at
			page.Scanned = min(w.seen, int(page.Total))
		}
	}
	if !w.end {
		page.NextCursor = w.order.cursor(w.at)
	}
	return page, nil
}

// jobOrder is the order of a list of jobs, and what its cursors begin with.
type jobOrder byte

const (
	byID   jobOrder = 'j'
	byName jobOrder = 'n' // of one namespace, with a prefix
	byText jobOrder = 's' // by namespace and name, for a search
)

// jobCursor is where a list of jobs goes on: behind this job.
type jobCursor struct {
	id   job.ID
	name string
	key  string // store.NameKey
}

func (o jobOrder) cursor(c jobCursor) string {
	switch o {
	case byName:
		return string(o) + base64.RawURLEncoding.EncodeToString([]byte(c.name))
	case byText:
		return string(o) + base64.RawURLEncoding.EncodeToString([]byte(c.key))
	}
	return c.id.String()
}

func (o jobOrder) parse(cursor string) (c jobCursor, err error) {
	if cursor == "" {
		return c, nil
	}
	if cursor[0] != byte(o) {
		return c, view.BadCursor()
	}
	if o == byID {
		c.id, err = job.ParseID(cursor)
		return c, view.CheckCursor(err)
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor[1:])
	c.name, c.key = string(text), string(text)
	return c, view.CheckCursor(err)
}

// jobWalk goes through the jobs that a query may be about.
type jobWalk struct {
	q     wire.JobQuery
	space api.Space
	text  string // in lower case
	order jobOrder
	at    jobCursor
	end   bool
	cost  int // of what was looked at, in definitions that were decoded
	seen  int // how many jobs were looked at
}

func newJobWalk(q wire.JobQuery, sc api.Space) (w *jobWalk, err error) {
	w = &jobWalk{q: q, space: sc, text: strings.ToLower(q.Text), order: byID}
	switch {
	case q.Text != "":
		w.order = byText
	case q.Prefix != "" && sc.Namespace != job.AllNamespaces:
		w.order = byName
	}
	w.at, err = w.order.parse(q.Cursor)
	return w, err
}

const (
	// spaceScan is how many definitions one view looks at for a namespace; those without its name in them cost
	// scanShare of the others.
	spaceScan = 1024
	scanShare = 16
	// textScan is how many names one view looks at, and textShare what they cost.
	textScan  = 4096
	textShare = 10
)

// next takes some jobs behind the cursor.
func (w *jobWalk) next(r *view.Reader) (ids []job.ID, err error) {
	space := w.space.Name()
	switch {
	case w.order == byText:
		seen := 0
		w.at.key, w.end, err = r.SearchNames(space, w.at.key, textScan, func(name string, id job.ID) bool {
			seen++
			if strings.HasPrefix(name, w.q.Prefix) && strings.Contains(strings.ToLower(name), w.text) {
				ids = append(ids, id)
			}
			return len(ids) < viewJobs
		})
		w.seen, w.cost = w.seen+seen, w.cost+len(ids)+seen/textShare+1
	case w.order == byName:
		w.end = true
		err = r.EachName(space, w.q.Prefix, w.at.name, func(name string, id job.ID) bool {
			if len(ids) == viewJobs {
				w.end = false
				return false
			}
			ids, w.at = append(ids, id), jobCursor{id: id, name: name}
			return true
		})
		w.seen, w.cost = w.seen+len(ids), w.cost+len(ids)
	case space != job.AllNamespaces && space != job.DefaultNamespace:
		var looked int
		room := view.NewRoom(spaceScan)
		w.at.id, looked, w.end, err = r.JobsWith(space, w.at.id, spaceScan, func(id job.ID, d store.Definition) bool {
			w.cost++
			if d.Spec.Namespace == space {
				room.Take(len(d.Spec.Payload))
				r.Keep(id, &d)
				ids = append(ids, id)
			}
			return !room.Full()
		})
		w.cost += looked/scanShare + 1
		if w.seen += len(ids); w.space.All { // how many there are elsewhere is not for others
			w.seen += looked - len(ids)
		}
	default:
		w.end = true
		room := view.NewRoom(viewJobs) // they are decoded all at once
		err = r.EachJob(w.at.id, func(id job.ID, d store.Definition) bool {
			if room.Full() {
				w.end = false
				return false
			}
			room.Take(len(d.Spec.Payload))
			r.Keep(id, &d)
			ids, w.at = append(ids, id), jobCursor{id: id}
			if view.Counts(w.space, d.Spec.Namespace) {
				w.seen++
			}
			return true
		})
		w.cost += len(ids)
	}
	return ids, err
}

// job is a job that next has found, if it is one that is asked for.
func (w *jobWalk) job(r *view.Reader, id job.ID) (j job.Job, ok bool, err error) {
	if ok, err = matches(r, id, w.q, w.space); err != nil || !ok {
		return j, false, err
	}
	if j, err = r.Job(id); err != nil {
		return j, false, err
	}
	return j, (w.q.Status == "" || j.Status == w.q.Status) && (!w.q.Failing || j.Fails()), nil
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
	return hasTags(&def.Spec, q.Tags), nil
}

// hasTags says that a job has all of some tags.
func hasTags(spec *job.Spec, want map[string]string) bool {
	for k, v := range want {
		if have, ok := spec.Tags[k]; !ok || have != v {
			return false
		}
	}
	return true
}
