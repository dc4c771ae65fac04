package router

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// readAfter takes the places out of a request from which on what is numbered is asked for: one for each group, as the
// numbers that the lines before had. A group without one begins at its beginning.
func (s *state) readAfter(path string) error {
	if path != "/runs:export" && path != "/audit" && path != "/audit:export" {
		return nil
	}
	q := s.r.URL.Query()
	s.after = map[uint32]uint64{}
	for _, given := range q["after"] {
		all, err := wire.ParseSeqs(given)
		if err != nil {
			return err
		}
		for _, n := range all {
			group, own := local(n)
			s.after[group] = max(s.after[group], own)
		}
	}
	q.Del("after")
	u := *s.r.URL
	u.RawQuery = q.Encode()
	s.r = s.r.WithContext(s.r.Context())
	s.r.URL = &u
	return nil
}

// exportPart is how many lines of a group are kept at a time.
const exportPart = 500

// exporter puts an export together, by time, oldest first. It lives as long as the request.
type exporter[T any] struct {
	parts []*exportOf[T]
	begun bool // what is missing can be said no more
}

type exportOf[T any] struct {
	group uint32
	after uint64
	rows  []T
	ended bool
}

// next are up to n lines; fewer are the last ones.
func (e *exporter[T]) next(ctx context.Context, rt *Router, groups []uint32, n int, stale bool,
	at func(*T) job.Instant, seq func(*T) *uint64) (out []T, err error) {
	if e.parts == nil {
		for _, g := range groups {
			e.parts = append(e.parts, &exportOf[T]{group: g, after: stateOf(ctx).after[g]})
		}
	}
	for len(out) < n {
		if err := e.fill(ctx, rt, stale && !e.begun, seq); err != nil {
			return nil, err
		}
		e.begun = true
		var best *exportOf[T]
		for _, p := range e.parts {
			if len(p.rows) > 0 && (best == nil || at(&p.rows[0]) < at(&best.rows[0])) {
				best = p
			}
		}
		if best == nil {
			break
		}
		row := best.rows[0]
		best.rows = best.rows[1:]
		*seq(&row) = global(best.group, *seq(&row))
		out = append(out, row)
	}
	return out, nil
}

// fill fetches lines of the groups that have none left.
func (e *exporter[T]) fill(ctx context.Context, rt *Router, stale bool, seq func(*T) *uint64) error {
	var groups []uint32
	for _, p := range e.parts {
		if len(p.rows) == 0 && !p.ended {
			groups = append(groups, p.group)
			p.ended = true // until it has answered
		}
	}
	if len(groups) == 0 {
		return nil
	}
	s := stateOf(ctx)
	return rt.each(ctx, groups, stale, func(g uint32) error {
		p := e.parts[slices.IndexFunc(e.parts, func(p *exportOf[T]) bool { return p.group == g })]
		q := s.query()
		q.Set("limit", strconv.Itoa(exportPart))
		if p.after > 0 {
			q.Set("after", strconv.FormatUint(p.after, 10))
		}
		var rows []T
		a := answer{sep: []byte{'\n'}, each: func(line []byte) error {
			var row T
			if err := json.Unmarshal(line, &row); err != nil {
				return fmt.Errorf("the answer of group %d cannot be read: %w", g, err)
			}
			rows = append(rows, row)
			return nil
		}}
		if err := rt.ask(g, request(ctx, s.r, http.MethodGet, s.r.URL.EscapedPath(), q, nil), &a); err != nil {
			return err
		}
		if p.ended = len(rows) < exportPart; len(rows) > 0 {
			p.rows, p.after = rows, *seq(&rows[len(rows)-1])
		}
		return nil
	})
}

// ExportHistory implements api.Backend.
func (b *backend) ExportHistory(ctx context.Context, _ uint64, limit int, rd api.Read) ([]job.Run, error) {
	return stateOf(ctx).runs.next(ctx, b.rt, b.rt.o.Groups(), limit, rd.Stale,
		func(r *job.Run) job.Instant { return r.FinishedAt }, func(r *job.Run) *uint64 { return &r.Seq })
}

// ExportAudit implements api.Backend.
func (b *backend) ExportAudit(ctx context.Context, q wire.AuditQuery, rd api.Read) ([]wire.AuditRecord, error) {
	return stateOf(ctx).audits.next(ctx, b.rt, b.rt.all(), q.Limit, rd.Stale,
		func(r *wire.AuditRecord) job.Instant { return r.At }, func(r *wire.AuditRecord) *uint64 { return &r.Seq })
}

// bodyOf is the body of a request that was read already, for those that it is put together of.
func bodyOf(ctx context.Context) func() *bytes.Reader {
	body := stateOf(ctx).body
	return func() *bytes.Reader { return bytes.NewReader(body) }
}
