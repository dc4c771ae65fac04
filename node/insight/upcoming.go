package insight

import (
	"cmp"
	"container/heap"
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// dueRead is how many entries of each lane of the due index are read at a time, dueLook how many in all.
	dueRead = 128
	dueLook = 50_000
	// nextSteps bounds how many occurrences are computed for one page, with those that calendars forbid.
	nextSteps = 50_000
)

// Upcoming implements api.Backend. The due index has the next occurrence of each job, in order; those that follow are
// computed when it is their turn. So a page costs what is on it, however many jobs there are.
func (b *Service) Upcoming(ctx context.Context, q wire.UpcomingQuery, rd api.Read) (wire.UpcomingPage, error) {
	page := wire.UpcomingPage{Occurrences: []wire.Upcoming{}}
	u := &upcoming{b: b, q: q, space: rd.Space,
		after: place{ready: cmp.Or(int64(q.From), b.now()) - 1, id: math.MaxUint64}}
	if q.Cursor != "" {
		if err := u.after.parse(q.Cursor); err != nil {
			return page, err
		}
	}
	for lane := range u.lanes {
		u.lanes[lane].key.Lane = job.Lane(lane)
	}
	done, err := b.Turn(ctx, rd)
	if err != nil {
		return page, err
	}
	defer done()
	err = b.view(func(r *view.Reader) error {
		if q.Job == "" {
			return nil
		}
		id, err := r.Find(q.Job, rd.Space)
		if err != nil {
			return err
		}
		h, err := r.Held(id)
		if err != nil {
			return err
		}
		u.lanes = [job.Lanes]dueLane{}
		for lane := range u.lanes {
			u.lanes[lane].end = true
		}
		if h.Place.Parked {
			return nil
		}
		n, err := u.item(r, id, h.Place.At, h.Place.Ready, h.State.Runs)
		if err == nil && n != nil {
			u.computed = append(u.computed, n)
		}
		return err
	})
	if err != nil {
		return page, err
	}
	for len(page.Occurrences) < q.Limit {
		n, err := u.next(ctx)
		if err != nil {
			return page, err
		}
		if n == nil {
			return page, nil
		}
		page.Occurrences = append(page.Occurrences, *n)
	}
	page.NextCursor = u.after.String()
	return page, nil
}

// place is one in the order of occurrences: by the time at which they may start, then by job.
type place struct {
	ready int64
	id    job.ID
}

func (p place) String() string { return strconv.FormatInt(p.ready, 36) + "." + p.id.String() }

func (p *place) parse(cursor string) (err error) {
	at, ref, _ := strings.Cut(cursor, ".")
	if p.ready, err = strconv.ParseInt(at, 36, 64); err == nil {
		p.id, err = job.ParseID(ref)
	}
	return view.CheckCursor(err)
}

func (p place) before(o place) bool { return p.ready < o.ready || p.ready == o.ready && p.id < o.id }

// nextUp is the next occurrence of a job, and what those after it are computed from.
type nextUp struct {
	place
	at        int64
	spec      *job.Spec
	sched     *schedule.Schedule
	forbidden []*schedule.Blackout
	runs      uint32
}

// nextHeap has the first of them on top.
type nextHeap []*nextUp

func (h nextHeap) Len() int           { return len(h) }
func (h nextHeap) Less(i, j int) bool { return h[i].before(h[j].place) }
func (h nextHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *nextHeap) Push(x any)        { *h = append(*h, x.(*nextUp)) }
func (h *nextHeap) Pop() any {
	old := *h
	n := old[len(old)-1]
	*h = old[:len(old)-1]
	return n
}

// dueLane is how far a lane of the due index was read.
type dueLane struct {
	key  store.DueKey // the last entry that was read
	read bool         // there is one
	end  bool
	last place // of that entry: what comes is behind it
}

// upcoming goes through the occurrences to come.
type upcoming struct {
	b        *Service
	q        wire.UpcomingQuery
	space    api.Space
	after    place // of the last one that was given
	lanes    [job.Lanes]dueLane
	computed nextHeap
	looked   int
	steps    int
}

// next is the next occurrence; nil if there is none.
func (u *upcoming) next(ctx context.Context) (*wire.Upcoming, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if u.behind() {
			if err := u.read(); err != nil {
				return nil, err
			}
			continue
		}
		if len(u.computed) == 0 {
			return nil, nil
		}
		if u.steps++; u.steps > nextSteps {
			return nil, tooFar()
		}
		n := u.computed[0]
		at, give := *n, u.after.before(n.place) && !n.skipped()
		if n.advance(u.after) {
			heap.Fix(&u.computed, 0)
		} else {
			heap.Pop(&u.computed)
		}
		if give {
			u.after = at.place
			return at.show(), nil
		}
	}
}

func tooFar() error {
	return job.Invalid("from", "ask for a time that is nearer, or use GET /api/v1/upcoming:load",
		"too much is due before it")
}

// behind says that a lane may have something before what is known.
func (u *upcoming) behind() bool {
	for i := range u.lanes {
		if l := &u.lanes[i]; !l.end && (len(u.computed) == 0 || !u.computed[0].before(l.last)) {
			return true
		}
	}
	return false
}

// read takes some more entries of the lanes that are behind.
func (u *upcoming) read() error {
	if u.looked > dueLook {
		return tooFar()
	}
	return u.b.view(func(r *view.Reader) error {
		for i := range u.lanes {
			l := &u.lanes[i]
			if l.end || len(u.computed) > 0 && u.computed[0].before(l.last) {
				continue
			}
			l.end = true
			n := 0
			var inner error
			err := r.ScanDue(l.key, math.MaxInt64, func(e store.DueEntry) bool {
				if l.read && e.DueKey == l.key {
					return true
				}
				if n++; n > dueRead {
					l.end = false
					return false
				}
				l.key, l.read, l.last = e.DueKey, true, place{e.Ready, e.Job}
				if e.Kind != store.KindOccurrence || !u.space.Lists(r.Namespace(e.Class)) {
					return true
				}
				var x *nextUp
				if x, inner = u.item(r, e.Job, e.At, e.Ready, e.State.Runs); x != nil {
					heap.Push(&u.computed, x)
				}
				return inner == nil
			})
			u.looked += n
			if err := cmp.Or(err, inner); err != nil {
				return err
			}
		}
		return nil
	})
}

// item is what a job does next, from after the last one that was given on; nil if it is not asked for.
func (u *upcoming) item(r *view.Reader, id job.ID, at, ready int64, runs uint32) (*nextUp, error) {
	def, err := r.Def(id)
	if err != nil || def == nil {
		return nil, err
	}
	spec := &def.Spec
	if !hasTags(spec, u.q.Tags) {
		return nil, nil
	}
	n := &nextUp{place: place{ready, id}, at: at, spec: spec, runs: runs}
	if n.sched, err = u.b.schedules.Compile(spec, id); err != nil {
		return nil, nil //nolint:nilerr // it will be in quarantine
	}
	if n.forbidden, err = r.Blackouts(spec.Namespace, spec.Calendars); err != nil {
		return nil, err
	}
	if !u.after.before(n.place) && !n.advance(u.after) {
		return nil, nil
	}
	return n, nil
}

// advance goes on to the job's next occurrence, past those that are not behind a place if nothing counts them, and past
// what is skipped.
func (n *nextUp) advance(after place) bool {
	from := n.at
	if n.spec.MaxRuns == 0 {
		from = max(from, after.ready-n.sched.Delay().Milliseconds()-1)
	}
	for _, b := range n.forbidden {
		if t := b.Until(time.UnixMilli(n.at)); t.UnixMilli()-1 > from {
			from = t.UnixMilli() - 1
		}
	}
	if !n.skipped() {
		n.runs++
	}
	w := scheduler.NextAfter(n.spec, n.sched, n.runs, from)
	if w.At == 0 {
		return false
	}
	n.at, n.ready = w.At, w.Ready
	return true
}

// skipped says that the occurrence will not run.
func (n *nextUp) skipped() bool {
	at := time.UnixMilli(n.at)
	return view.Forbids(n.forbidden, at) || n.sched.Skipped(at)
}

func (n *nextUp) show() *wire.Upcoming {
	out := &wire.Upcoming{JobID: n.id, Name: n.spec.Name, Namespace: n.spec.Namespace, ScheduledAt: job.Instant(n.at),
		StartAt: job.Instant(n.ready), Type: n.spec.Type}
	class := job.ParseClass(n.spec.Class())
	if key, ok := class.QueueKey(); ok {
		out.Queue = key.Name
	}
	return out
}
