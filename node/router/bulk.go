package router

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// BulkCreate splits some lines by their groups.
func (b *backend) BulkCreate(ctx context.Context, lines []wire.BulkLine, rq api.Request) ([]wire.BulkResult, error) {
	s := &splitter[wire.BulkResult]{rt: b.rt, base: func(r *wire.BulkResult) *wire.BulkResult { return r }}
	return s.split(ctx, lines, func(l *wire.BulkLine) uint32 {
		// What has no name is known again by its text and the number of its line.
		return b.rt.place(&l.Spec, l.Spec.Namespace, l.ID(rq.Owner, rq.Key))
	})
}

// ApplyJobs splits some lines by the homes of their names: those know whether there is a job, and which group has it or
// is to have it.
func (b *backend) ApplyJobs(ctx context.Context, lines []wire.BulkLine, _ wire.ApplyOptions,
	_ api.Request) ([]wire.ApplyResult, error) {
	base := func(r *wire.ApplyResult) *wire.BulkResult { return &r.BulkResult }
	s := &splitter[wire.ApplyResult]{rt: b.rt, base: base}
	return s.split(ctx, lines, func(l *wire.BulkLine) uint32 {
		return b.rt.o.Home(job.NameJob, l.Spec.Namespace, l.Spec.Name)
	})
}

// splitter has groups answer the lines of a request. Each group gets its own with empty lines in the place of the
// others and is told how many went before, so that a line has the same number everywhere. Lines that a group has sent
// to another one follow.
type splitter[R any] struct {
	rt   *Router
	base func(*R) *wire.BulkResult
}

func (s *splitter[R]) split(ctx context.Context, lines []wire.BulkLine,
	home func(*wire.BulkLine) uint32) ([]R, error) {
	out := make([]R, len(lines))
	first := map[int]uint32{} // the groups of lines
	for i := range lines {
		l := &lines[i]
		*s.base(&out[i]) = wire.BulkResult{Line: l.Line, Name: l.Spec.Name, Status: "error", Error: l.Err}
		if l.Err == nil {
			first[i] = home(l)
		}
	}
	err := s.askIn(ctx, first, lines, out, true)
	for round := 1; err == nil; round++ {
		next := map[int]uint32{}
		for i := range out {
			r := s.base(&out[i])
			if r.Error == nil {
				continue
			}
			if g, moved := r.Error.InOther(); moved && round < maxFollowed {
				next[i], r.Error = g, nil
			} else if moved {
				r.Error = beingMoved("the job")
			}
		}
		if len(next) == 0 {
			break
		}
		err = s.askIn(ctx, next, lines, out, false)
	}
	return out, err
}

// askIn has groups answer lines. The error is about all of them; first: nothing was done for any before.
func (s *splitter[R]) askIn(ctx context.Context, in map[int]uint32, lines []wire.BulkLine, out []R,
	first bool) error {
	parts := map[uint32]*bulkPart{}
	var groups []uint32
	for i := range lines {
		g, ok := in[i]
		if !ok {
			continue
		}
		if !s.rt.has(g) {
			g = control
		}
		if e := stateOf(ctx).failed[g]; e != nil {
			s.base(&out[i]).Error = e
			continue
		}
		p := parts[g]
		if p == nil {
			p = &bulkPart{group: g, first: lines[0].Line, next: lines[0].Line}
			parts[g], groups = p, append(groups, g)
		}
		p.add(&lines[i], i)
	}
	var mu sync.Mutex
	var failed error
	answered := 0
	err := s.rt.each(ctx, groups, false, func(g uint32) error {
		p := parts[g]
		err := s.askPart(ctx, p, lines, out)
		mu.Lock()
		defer mu.Unlock()
		if err == nil || p.answered > 0 {
			answered++
		} else if failed == nil {
			failed = err
		}
		if err == nil {
			return nil
		}
		var e *job.Error
		if !errors.As(err, &e) {
			return err
		}
		// Who waits for its leader once does not do so for every chunk.
		stateOf(ctx).fail(g, job.Errorf(job.CodeUnavailable, "send it again",
			"not tried: an earlier line failed with %q", e.Message))
		for _, i := range p.at {
			if r := s.base(&out[i]); r.Status == "error" && r.Error == nil {
				r.Error = e
			}
		}
		return nil
	})
	if err == nil && answered == 0 && failed != nil && first {
		err = failed // of the request as a whole, if it is the first that is said
	}
	return err
}

// bulkPart is the lines of one group.
type bulkPart struct {
	group       uint32
	first, next int // numbers of lines
	body        bytes.Buffer
	at          []int // the places of its lines
	answered    int
}

func (p *bulkPart) add(l *wire.BulkLine, i int) {
	for ; p.next < l.Line; p.next++ {
		p.body.WriteByte('\n')
	}
	p.body.Write(l.Raw)
	p.body.WriteByte('\n')
	p.next++
	p.at = append(p.at, i)
}

// askPart has a group answer its lines.
func (s *splitter[R]) askPart(ctx context.Context, p *bulkPart, lines []wire.BulkLine, out []R) error {
	st := stateOf(ctx)
	r := request(ctx, st.r, http.MethodPost, st.r.URL.EscapedPath(), st.query(), bytes.NewReader(p.body.Bytes()))
	r.Header.Set(wire.LinesHeader, strconv.Itoa(p.first-1))
	r.Header.Set("Content-Type", "application/x-ndjson")
	a := answer{sep: []byte{'\n'}, each: func(line []byte) error {
		var res R
		if err := json.Unmarshal(line, &res); err != nil {
			return fmt.Errorf("the answer of group %d cannot be read: %w", p.group, err)
		}
		n := s.base(&res).Line
		if p.answered == len(p.at) || lines[p.at[p.answered]].Line != n {
			return fmt.Errorf("group %d answered line %d, which it was not asked for", p.group, n)
		}
		out[p.at[p.answered]] = res
		p.answered++
		return nil
	}}
	err := s.rt.ask(p.group, r, &a)
	if err == nil && p.answered < len(p.at) {
		err = broken(p.group, r)
	}
	return err
}
