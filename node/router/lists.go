package router

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/url"
	"strconv"
	"sync"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// backend answers for all groups what the API asks a backend for, by asking each of them. It has only what routes need
// that are about several groups; the others do not come here.
type backend struct {
	api.Backend
	rt *Router
}

// paged is the query of a request for another page.
func (s *state) paged(cursor string, limit int) url.Values {
	q := s.query()
	q.Set("limit", strconv.Itoa(limit))
	q.Del("cursor")
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return q
}

// page asks a group for a page of the list that a request is about.
func page[P any](ctx context.Context, rt *Router, group uint32, cursor string, limit int) (p P, err error) {
	s := stateOf(ctx)
	return p, rt.get(ctx, group, s.r.URL.EscapedPath(), s.paged(cursor, limit), &p)
}

// ListJobs lists by id, which is group after group, or by name.
func (b *backend) ListJobs(ctx context.Context, q wire.JobQuery, rd api.Read) (wire.JobPage, error) {
	totals := totals{of: map[uint32]uint64{}}
	l := list[job.Job]{
		kind: 'j',
		fetch: func(g uint32, cursor string, n int) ([]job.Job, int, string, error) {
			p, err := page[wire.JobPage](ctx, b.rt, g, cursor, n)
			totals.add(g, p.Total)
			return p.Jobs, p.Scanned, p.NextCursor, err
		},
		behind: func(j job.Job) string { return j.ID.String() },
	}
	switch {
	case q.Text != "":
		l.kind = 's'
		l.before = func(a, b job.Job) bool { return nameKey(&a) < nameKey(&b) }
		l.behind = func(j job.Job) string { return "s" + base64.RawURLEncoding.EncodeToString([]byte(nameKey(&j))) }
	case q.Prefix != "" && rd.Space.Namespace != job.AllNamespaces:
		l.kind = 'n'
		l.before = func(a, b job.Job) bool { return a.Name < b.Name }
		l.behind = func(j job.Job) string { return "n" + base64.RawURLEncoding.EncodeToString([]byte(j.Name)) }
	}
	groups := b.rt.o.Groups()
	jobs, sources, next, err := l.page(ctx, b.rt, groups, q.Limit, q.Cursor, rd.Stale)
	if err != nil {
		return wire.JobPage{}, err
	}
	out := wire.JobPage{Jobs: jobs, Scanned: scanned(sources), NextCursor: next}
	if q.Filters() && rd.Space.All {
		out.Total, err = b.total(ctx, &totals, groups, rd.Stale)
	}
	return out, err
}

func nameKey(j *job.Job) string { return store.NameKey(j.Namespace, j.Name) }

func scanned[T any](all []*source[T]) (n int) {
	for _, s := range all {
		n += s.scanned
	}
	return n
}

// totals are how much there is in the groups that were asked.
type totals struct {
	mu sync.Mutex
	of map[uint32]uint64
}

func (t *totals) add(group uint32, n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of[group] = n
}

// total is how many jobs there are in all groups, of which those that were not asked for a page are asked for that
// alone: by a prefix that no name has.
func (b *backend) total(ctx context.Context, t *totals, groups []uint32, stale bool) (sum uint64, err error) {
	var others []uint32
	for _, g := range groups {
		if _, known := t.of[g]; !known {
			others = append(others, g)
		}
	}
	q := url.Values{"prefix": {":"}, "limit": {"1"}, "namespace": {job.DefaultNamespace}}
	if stale {
		q.Set("stale", "true")
	}
	err = b.rt.each(ctx, others, stale, func(g uint32) error {
		var p wire.JobPage
		if err := b.rt.get(ctx, g, path("/jobs"), q, &p); err != nil {
			return err
		}
		t.add(g, p.Total)
		return nil
	})
	for _, n := range t.of {
		sum += n
	}
	return sum, err
}

// Runs lists the open runs of all groups, newest first, and then what ended, as far as a clock can tell in which order
// that was.
func (b *backend) Runs(ctx context.Context, q wire.RunQuery, rd api.Read) (wire.RunPage, error) {
	l := list[job.Run]{
		kind: 'r',
		fetch: func(g uint32, cursor string, n int) ([]job.Run, int, string, error) {
			p, err := page[wire.RunPage](ctx, b.rt, g, cursor, n)
			return p.Runs, p.Scanned, p.NextCursor, err
		},
		before: func(a, b job.Run) bool {
			if open := a.Seq == 0; open != (b.Seq == 0) || !open {
				return open || b.Seq != 0 && a.FinishedAt > b.FinishedAt
			}
			x, _ := job.ParseRunKey(a.RunID) //nolint:errcheck // an open run has one
			y, _ := job.ParseRunKey(b.RunID) //nolint:errcheck // as above
			return cmp.Or(cmp.Compare(x.At, y.At), cmp.Compare(x.Job, y.Job), cmp.Compare(x.Origin, y.Origin)) > 0
		},
		behind: func(r job.Run) string {
			if r.Seq == 0 {
				return r.RunID
			}
			return "h" + strconv.FormatUint(r.Seq, 32)
		},
	}
	runs, sources, next, err := l.page(ctx, b.rt, b.rt.o.Groups(), q.Limit, q.Cursor, rd.Stale)
	return wire.RunPage{Runs: runs, Scanned: scanned(sources), NextCursor: next}, err
}

// Upcoming lists by time.
func (b *backend) Upcoming(ctx context.Context, q wire.UpcomingQuery, rd api.Read) (wire.UpcomingPage, error) {
	l := list[wire.Upcoming]{
		kind: 'u',
		fetch: func(g uint32, cursor string, n int) ([]wire.Upcoming, int, string, error) {
			p, err := page[wire.UpcomingPage](ctx, b.rt, g, cursor, n)
			return p.Occurrences, 0, p.NextCursor, err
		},
		before: func(a, b wire.Upcoming) bool {
			return cmp.Or(cmp.Compare(a.StartAt, b.StartAt), cmp.Compare(a.JobID, b.JobID)) < 0
		},
		behind: func(u wire.Upcoming) string {
			return strconv.FormatInt(int64(u.StartAt), 36) + "." + u.JobID.String()
		},
	}
	rows, _, next, err := l.page(ctx, b.rt, b.rt.o.Groups(), q.Limit, q.Cursor, rd.Stale)
	return wire.UpcomingPage{Occurrences: rows, NextCursor: next}, err
}

// Queues are those of all groups. A queue is in one of them.
func (b *backend) Queues(ctx context.Context, q wire.QueueQuery, rd api.Read) (wire.QueueList, error) {
	l := list[wire.Queue]{
		kind: 'q',
		fetch: func(g uint32, cursor string, n int) ([]wire.Queue, int, string, error) {
			p, err := page[wire.QueueList](ctx, b.rt, g, cursor, n)
			return p.Queues, 0, p.NextCursor, err
		},
		before: func(a, b wire.Queue) bool {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name)) < 0
		},
		behind: func(q wire.Queue) string {
			return base64.RawURLEncoding.EncodeToString([]byte(q.Namespace + "/" + q.Name))
		},
	}
	rows, _, next, err := l.page(ctx, b.rt, b.rt.o.Groups(), q.Limit, q.Cursor, rd.Stale)
	return wire.QueueList{Queues: rows, NextCursor: next}, err
}

// Audit lists the records of all groups, newest first, under numbers that are unique among them.
func (b *backend) Audit(ctx context.Context, q wire.AuditQuery, rd api.Read) (wire.AuditPage, error) {
	s := stateOf(ctx)
	l := list[numbered[wire.AuditRecord]]{
		kind: 'a',
		fetch: func(g uint32, cursor string, n int) ([]numbered[wire.AuditRecord], int, string, error) {
			var p wire.AuditPage
			query := s.paged(cursor, n)
			if after := s.after[g]; after > 0 {
				query.Set("after", strconv.FormatUint(after, 10))
			}
			err := b.rt.get(ctx, g, path("/audit"), query, &p)
			return number(g, p.Records), 0, p.NextCursor, err
		},
		before: func(a, b numbered[wire.AuditRecord]) bool { return a.row.At > b.row.At },
		behind: func(r numbered[wire.AuditRecord]) string { return strconv.FormatUint(r.row.Seq, 10) },
	}
	rows, _, next, err := l.page(ctx, b.rt, b.rt.all(), q.Limit, q.Cursor, rd.Stale)
	out := wire.AuditPage{NextCursor: next}
	for _, r := range rows {
		r.row.Seq = global(r.group, r.row.Seq)
		out.Records = append(out.Records, r.row)
	}
	return out, err
}

// numbered is a row with a number that is unique in its group only.
type numbered[T any] struct {
	group uint32
	row   T
}

func number[T any](group uint32, rows []T) []numbered[T] {
	out := make([]numbered[T], len(rows))
	for i := range rows {
		out[i] = numbered[T]{group, rows[i]}
	}
	return out
}

func global(group uint32, n uint64) uint64 { return uint64(group)<<wire.NumberBits | n }

func local(n uint64) (group uint32, own uint64) {
	return uint32(n >> wire.NumberBits), n & (1<<wire.NumberBits - 1)
}
