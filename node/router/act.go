package router

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// slowReader is how long a line may take to be written: a client that does not read is cut off.
const slowReader = 30 * time.Second

// action is a jobs:act over all groups, one after the other, each under the caller's key.
type action struct {
	rt     *Router
	ctx    context.Context
	w      http.ResponseWriter
	r      *http.Request
	q      wire.JobAction
	groups []uint32
	ids    map[uint32][]job.ID
	begun  bool                   // a line was written
	last   wire.JobActionProgress // how far it is
	sum    wire.JobActionProgress // of the groups that are done
	total  uint64
}

func (rt *Router) act(w http.ResponseWriter, r *http.Request) {
	body, whole := readBody(r, maxBody)
	a := &action{rt: rt, ctx: context.WithValue(r.Context(), stateKey{}, &state{r: r, header: w.Header()}), w: w, r: r,
		groups: rt.o.Groups()}
	if !whole || job.DecodeStrict(body, &a.q) != nil {
		rt.send(w, r, control, false)
		return
	}
	if len(a.q.Filter.IDs) > 0 {
		a.ids = map[uint32][]job.ID{}
		for _, id := range a.q.Filter.IDs {
			g := uint32(id.Group())
			a.ids[g] = append(a.ids[g], id)
		}
		a.groups = slices.DeleteFunc(slices.Clone(a.groups), func(g uint32) bool { return a.ids[g] == nil })
		if len(a.groups) == 0 { // they are nowhere: the control group says so
			rt.send(w, r, control, true)
			return
		}
	}
	if err := a.run(); err != nil {
		a.fail(err)
	}
	deadline(w, 0) // net/http would leave it on the connection for the next request
}

// fail ends the answer: with an error, or in its last line.
func (a *action) fail(err error) {
	var e *job.Error
	switch {
	case !a.begun:
		api.WriteError(a.w, err)
	case errors.As(err, &e):
		a.last.Error, a.last.Finished = e, false
		a.say(a.last) //nolint:errcheck // the client hung up
	default:
		a.rt.o.Logger.Warn("stream broken off", "path", a.r.URL.Path, "error", err)
		panic(http.ErrAbortHandler)
	}
}

// run acts on what matches. What is expected is the sum, and each group is then held to its own part of it.
func (a *action) run() error {
	from, at, err := a.begin()
	if err != nil {
		return err
	}
	expect := map[uint32]int{}
	if a.q.Expect != nil {
		n := 0
		for i, g := range a.groups[from:] {
			q := a.q
			q.DryRun, q.Expect, q.Cursor = true, nil, ""
			if i == 0 {
				q.Cursor = at
			}
			last, err := a.group(g, q, func(wire.JobActionProgress) error { return nil })
			if err != nil {
				return err
			}
			expect[g] = last.Matched
			n += last.Matched
		}
		if n > *a.q.Expect || n < *a.q.Expect && a.q.Cursor == "" {
			return job.Errorf(job.CodeState, "repeat it with dry_run, and expect the number that it reports",
				"%d jobs match, and %d were expected; nothing was changed", n, *a.q.Expect)
		}
	}
	a.sum.Cursor, a.sum.DryRun = a.q.Cursor, a.q.DryRun
	for i, g := range a.groups[from:] {
		q := a.q
		q.Cursor = ""
		if i == 0 {
			q.Cursor = at
		}
		if n, ok := expect[g]; ok {
			q.Expect = &n
		}
		last, err := a.group(g, q, func(p wire.JobActionProgress) error { return a.say(a.plus(g, p)) })
		if err != nil {
			return err
		}
		end := from+i+1 == len(a.groups)
		next := uint32(0)
		if !end {
			next = a.groups[from+i+1]
		}
		a.sum = a.plus(g, last)
		if a.sum.Cursor = actCursor(next, ""); end {
			a.sum.Cursor = ""
		}
		a.sum.Finished = end
		if err := a.say(a.sum); err != nil {
			return err
		}
	}
	return nil
}

// plus is how far it is when a group is as far as it says.
func (a *action) plus(group uint32, p wire.JobActionProgress) wire.JobActionProgress {
	p.Matched, p.Done, p.Failed = p.Matched+a.sum.Matched, p.Done+a.sum.Done, p.Failed+a.sum.Failed
	p.Scanned += a.sum.Scanned
	p.Total = a.total
	p.Cursor = actCursor(group, p.Cursor)
	p.Finished, p.Error = false, nil
	return p
}

// begin is the group to begin with, by its place, and the cursor in it. It counts what there is for those who may know.
func (a *action) begin() (from int, at string, err error) {
	if a.q.Cursor != "" {
		rest, ok := strings.CutPrefix(a.q.Cursor, "gx~")
		number, cursor, dot := strings.Cut(rest, ".")
		n, nerr := strconv.ParseUint(number, 10, 32)
		from, at = slices.Index(a.groups, uint32(n)), cursor
		if !ok || !dot || nerr != nil || from < 0 {
			return 0, "", job.Invalid("cursor",
				"use the cursor of the last line of the answer, with the same filter",
				"this is not a cursor of this request")
		}
	}
	if id := api.IdentityOf(a.r.Context()); a.ids == nil && (id == nil || id.Namespace == "") {
		f := a.q.Filter.Query()
		if f.Filters() {
			a.total, err = (&backend{rt: a.rt}).total(a.ctx, &totals{of: map[uint32]uint64{}}, a.rt.o.Groups(), false)
		}
	}
	return from, at, err
}

func actCursor(group uint32, at string) string {
	return "gx~" + strconv.FormatUint(uint64(group), 10) + "." + at
}

// group has one group act, and calls say with each line but the last, which it returns.
func (a *action) group(group uint32, q wire.JobAction, say func(wire.JobActionProgress) error) (
	last wire.JobActionProgress, err error) {
	q.Filter.IDs = a.ids[group]
	body, err := json.Marshal(q)
	if err != nil {
		return last, err
	}
	r := request(a.ctx, a.r, http.MethodPost, a.r.URL.EscapedPath(), a.r.URL.Query(), bytes.NewReader(body))
	ans := answer{sep: []byte{'\n'}, each: func(line []byte) error {
		last = wire.JobActionProgress{}
		if err := json.Unmarshal(line, &last); err != nil {
			return fmt.Errorf("the answer of group %d cannot be read: %w", group, err)
		}
		if last.Finished || last.Error != nil {
			return nil
		}
		return say(last)
	}}
	if err := a.rt.ask(group, r, &ans); err != nil {
		return last, err
	}
	switch {
	case last.Error != nil: // and its cursor says from where to go on
		a.last = a.plus(group, last)
		return last, inGroup(group, last.Error)
	case !last.Finished:
		return last, broken(group, r)
	}
	return last, nil
}

// say writes a line.
func (a *action) say(p wire.JobActionProgress) error {
	a.last = p
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", "application/x-ndjson")
		a.w.WriteHeader(http.StatusOK)
	}
	if p.Errors == nil {
		p.Errors = []wire.JobActionError{}
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&p); err != nil {
		return err
	}
	deadline(a.w, slowReader)
	if _, err := a.w.Write(buf.Bytes()); err != nil {
		return err
	}
	if err := http.NewResponseController(a.w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return a.ctx.Err()
}

// deadline bounds how long the next write may take; 0: no longer.
func deadline(w http.ResponseWriter, d time.Duration) {
	t := time.Time{}
	if d > 0 {
		t = time.Now().Add(d)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(t) //nolint:errcheck // unsupported is fine
}
