package router

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// jobGroups is the group of a job, or all of them.
func (b *backend) jobGroups(ctx context.Context, ref string) ([]uint32, error) {
	if ref == "" {
		return b.rt.o.Groups(), nil
	}
	id, err := job.ParseID(ref)
	if err != nil {
		if id, err = b.find(ctx, ref); err != nil {
			return nil, err
		}
	}
	if group := uint32(id.Group()); b.rt.has(group) {
		return []uint32{group}, nil
	}
	return []uint32{control}, nil
}

// find is the id of a job that is named.
func (b *backend) find(ctx context.Context, name string) (job.ID, error) {
	q := url.Values{}
	for _, given := range []string{"namespace", "stale"} {
		if v := stateOf(ctx).query().Get(given); v != "" && v != job.AllNamespaces {
			q.Set(given, v)
		}
	}
	r := request(ctx, stateOf(ctx).r, http.MethodGet, path("/jobs", name), q, nil)
	group := b.rt.o.Home(job.NameJob, namespaceOf(r), name)
	for range 2 {
		var j job.Job
		err := b.rt.do(r, group, &j)
		var e *job.Error
		if errors.As(err, &e) {
			if other, ok := e.InOther(); ok {
				group = other
				continue
			}
		}
		return j.ID, err
	}
	return 0, job.Errorf(job.CodeUnavailable, "try again in a moment", "the name %q is being moved", name)
}

// DeadLetters lists by when they died, or finds one by its number.
func (b *backend) DeadLetters(ctx context.Context, q wire.DeadQuery, rd api.Read) (wire.DeadPage, error) {
	if len(q.IDs) > 0 {
		return b.letter(ctx, q.IDs[0])
	}
	groups, err := b.jobGroups(ctx, q.Job)
	if err != nil {
		return wire.DeadPage{}, err
	}
	l := list[numbered[job.DeadLetter]]{
		kind: 'd',
		fetch: func(g uint32, cursor string, n int) ([]numbered[job.DeadLetter], int, string, error) {
			p, err := page[wire.DeadPage](ctx, b.rt, g, cursor, n)
			return number(g, p.Dead), 0, p.NextCursor, err
		},
		before: func(a, b numbered[job.DeadLetter]) bool { return a.row.FinishedAt > b.row.FinishedAt },
		behind: func(d numbered[job.DeadLetter]) string { return strconv.FormatUint(d.row.Seq, 10) },
	}
	rows, _, next, err := l.page(ctx, b.rt, groups, q.Limit, q.Cursor, rd.Stale)
	out := wire.DeadPage{NextCursor: next}
	for _, r := range rows {
		r.row.Seq = global(r.group, r.row.Seq)
		out.Dead = append(out.Dead, r.row)
	}
	return out, err
}

func (b *backend) letter(ctx context.Context, id uint64) (p wire.DeadPage, err error) {
	group, own := local(id)
	if !b.rt.has(group) {
		return p, nil
	}
	var d job.DeadLetter
	err = b.rt.get(ctx, group, path("/dead", strconv.FormatUint(own, 10)), stateOf(ctx).query(), &d)
	if job.CodeOf(err) == job.CodeNotFound {
		return p, nil
	}
	d.Seq = id
	return wire.DeadPage{Dead: []job.DeadLetter{d}}, err
}

// DeadGroups adds up those of the groups, of a page of letters of each.
func (b *backend) DeadGroups(ctx context.Context, q wire.DeadQuery, rd api.Read) (wire.DeadGroupPage, error) {
	out := wire.DeadGroupPage{}
	groups, err := b.jobGroups(ctx, q.Job)
	if err != nil {
		return out, err
	}
	all, err := parseCursor[wire.DeadGroupPage]('c', q.Cursor, groups)
	if err != nil {
		return out, err
	}
	type groupPage = wire.DeadGroupPage
	l := list[groupPage]{fetch: func(g uint32, cursor string, n int) ([]groupPage, int, string, error) {
		p, err := page[wire.DeadGroupPage](ctx, b.rt, g, cursor, n)
		return []wire.DeadGroupPage{p}, 0, p.NextCursor, err
	}}
	if err := l.fill(ctx, b.rt, slices.DeleteFunc(slices.Clone(all), (*source[wire.DeadGroupPage]).over), q.Limit,
		rd.Stale); err != nil {
		return out, err
	}
	byKey := map[string]*wire.DeadGroup{}
	for _, s := range all {
		for _, p := range s.rows {
			out.Scanned, out.Total, out.LeftOut = out.Scanned+p.Scanned, out.Total+p.Total, out.LeftOut+p.LeftOut
			for i := range p.Groups {
				addGroup(byKey, s.group, &p.Groups[i])
			}
			s.take(func(wire.DeadGroupPage) string { return "" })
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		out.Groups = append(out.Groups, *byKey[key])
	}
	slices.SortStableFunc(out.Groups, func(x, y wire.DeadGroup) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(y.Last, x.Last))
	})
	shown := min(len(out.Groups), q.Limit)
	for _, g := range out.Groups[shown:] {
		out.LeftOut += g.Count
	}
	out.Groups, out.NextCursor = out.Groups[:shown], cursorOf('c', all)
	return out, nil
}

// groupNames is how many jobs of a group of dead letters are named.
const groupNames = 5

func addGroup(byKey map[string]*wire.DeadGroup, group uint32, g *wire.DeadGroup) {
	g.Sample.Seq = global(group, g.Sample.Seq)
	have := byKey[g.Key]
	if have == nil {
		byKey[g.Key] = g
		return
	}
	if g.Last > have.Last {
		have.Sample = g.Sample
	}
	have.Count, have.Jobs = have.Count+g.Count, have.Jobs+g.Jobs // a job is in one group
	have.JobNames = append(have.JobNames, g.JobNames...)
	have.JobNames = have.JobNames[:min(len(have.JobNames), groupNames)]
	have.First, have.Last = min(have.First, g.First), max(have.Last, g.Last)
}

// Redrive implements api.Backend.
func (b *backend) Redrive(ctx context.Context, q wire.DeadQuery, _ api.Request) (wire.DeadResult, error) {
	return b.changeDead(ctx, q, http.MethodPost, path("/dead:redrive"))
}

// PurgeDead implements api.Backend.
func (b *backend) PurgeDead(ctx context.Context, q wire.DeadQuery, _ api.Request) (wire.DeadResult, error) {
	return b.changeDead(ctx, q, http.MethodDelete, path("/dead"))
}

// changeDead changes the letters of one group after the other, each under the caller's key: a repetition is told by
// those that did it what they did, so that it asks the others for the same as the first time.
func (b *backend) changeDead(ctx context.Context, q wire.DeadQuery, method, path string) (out wire.DeadResult,
	err error) {
	parts := map[uint32]wire.DeadQuery{}
	groups := b.rt.o.Groups()
	switch {
	case len(q.IDs) > 0:
		for _, id := range q.IDs {
			group, own := local(id)
			if !b.rt.has(group) {
				out.Unknown = append(out.Unknown, id)
				continue
			}
			part := parts[group]
			part.IDs = append(part.IDs, own)
			parts[group] = part
		}
	default:
		if groups, err = b.jobGroups(ctx, q.Job); err != nil {
			return out, err
		}
		for _, g := range groups {
			parts[g] = q
		}
	}
	for _, g := range groups {
		part, ok := parts[g]
		if !ok || q.Max > 0 && out.Count >= q.Max {
			continue
		}
		if q.Max > 0 {
			part.Max = q.Max - out.Count
		}
		res, err := b.change(ctx, g, method, path, &part)
		if err != nil {
			return out, partly(err, out.Count)
		}
		out.Count, out.Gone, out.Open = out.Count+res.Count, out.Gone+res.Gone, out.Open+res.Open
		for _, own := range res.Unknown {
			out.Unknown = append(out.Unknown, global(g, own))
		}
	}
	return out, nil
}

func (b *backend) change(ctx context.Context, group uint32, method, path string, q *wire.DeadQuery) (
	res wire.DeadResult, err error) {
	body, err := json.Marshal(q)
	if err != nil {
		return res, err
	}
	query := url.Values{}
	if space := stateOf(ctx).query().Get("namespace"); space != "" {
		query.Set("namespace", space)
	}
	return res, b.rt.do(request(ctx, stateOf(ctx).r, method, path, query, bytes.NewReader(body)), group, &res)
}

// partly says of an error that a part was done before it.
func partly(err error, done int) error {
	var e *job.Error
	if done == 0 || !errors.As(err, &e) {
		return err
	}
	said := *e
	if absent(e) {
		said.Code = job.CodeOutcomeUnknown
	}
	said.Message = fmt.Sprintf("%d were done before this: %s", done, e.Message)
	said.Remedy = "repeat it with the same Idempotency-Key"
	return &said
}
