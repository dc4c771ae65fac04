package router

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/job"
)

type stateKey struct{}

// state is a request that is put together of others.
type state struct {
	r      *http.Request
	header http.Header // of the answer, which has not begun
	body   []byte      // of schedule:preview, which is sent on
	after  map[uint32]uint64
	runs   exporter[job.Run]
	audits exporter[wire.AuditRecord]

	missing []uint32
	failed  map[uint32]*job.Error // what lines of a bulk create are told whose group failed before
}

func stateOf(ctx context.Context) *state { return ctx.Value(stateKey{}).(*state) }

// miss notes that a group is not in the answer, which says so.
func (s *state) miss(group uint32) {
	if slices.Contains(s.missing, group) {
		return
	}
	s.missing = append(s.missing, group)
	slices.Sort(s.missing)
	var text []string
	for _, g := range s.missing {
		text = append(text, strconv.FormatUint(uint64(g), 10))
	}
	s.header.Set(wire.MissingHeader, strings.Join(text, ","))
}

// fail notes what further lines of a group are told. Its caller has the only hold of the state.
func (s *state) fail(group uint32, e *job.Error) {
	if s.failed == nil {
		s.failed = map[uint32]*job.Error{}
	}
	s.failed[group] = e
}

// request is one of those that a request is put together of. It has its caller's own credential and key.
func request(ctx context.Context, of *http.Request, method, path string, q url.Values, body io.Reader) *http.Request {
	u := &url.URL{Path: path, RawQuery: q.Encode()}
	if plain, err := url.PathUnescape(path); err == nil {
		u.Path, u.RawPath = plain, path
	}
	r := &http.Request{Method: method, URL: u, RequestURI: u.RequestURI(), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1, Header: of.Header.Clone(), Host: of.Host, RemoteAddr: of.RemoteAddr, TLS: of.TLS,
		Body: http.NoBody}
	for _, name := range []string{"Content-Length", "Content-Type", "Accept", "Accept-Encoding", "If-Match",
		"Expect"} {
		r.Header.Del(name)
	}
	if body != nil {
		r.Body, r.ContentLength = io.NopCloser(body), -1
		if sized, ok := body.(interface{ Len() int }); ok {
			r.ContentLength = int64(sized.Len())
		}
	}
	return r.WithContext(ctx)
}

// answer takes an answer: what of it is whole is given to each, cut behind a separator.
type answer struct {
	header http.Header
	status int
	rest   bytes.Buffer
	sep    []byte
	each   func([]byte) error // nil: all of it is kept
	err    error              // of each
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 {
		a.status = status
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.err != nil {
		return 0, a.err
	}
	a.rest.Write(b)
	for a.each != nil && a.status == http.StatusOK {
		i := bytes.Index(a.rest.Bytes(), a.sep)
		if i < 0 {
			break
		}
		if a.err = a.each(a.rest.Next(i + len(a.sep))); a.err != nil {
			return 0, a.err
		}
	}
	return len(b), nil
}

// Flush is for those that answer piece by piece.
func (a *answer) Flush() {}

// broken says of a group that it ended in the middle of its answer.
func broken(group uint32, r *http.Request) error {
	if r.Method == http.MethodGet {
		return job.Errorf(job.CodeUnavailable, "try again", "group %d: its answer was cut off", group)
	}
	return job.Errorf(job.CodeOutcomeUnknown, "repeat it with the same Idempotency-Key",
		"group %d: its answer was cut off; it may or may not have been done", group)
}

// ask has a group answer a request.
func (rt *Router) ask(group uint32, r *http.Request, a *answer) error {
	a.header = http.Header{}
	err := rt.serve(group, a, r)
	if err = cmp.Or(a.err, err); err != nil {
		return err
	}
	a.WriteHeader(http.StatusOK)
	if a.status < 300 {
		return nil
	}
	return refusal(group, a.status, a.rest.Bytes())
}

// serve has a group answer. Nothing that it does ends the node.
func (rt *Router) serve(group uint32, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		switch p := recover(); {
		case p == http.ErrAbortHandler: //nolint:errorlint // net/http compares it so
			err = broken(group, r)
		case p != nil: // in a goroutine of its own it would end the node
			rt.panics.Log(r, p, "group", group)
			err = fmt.Errorf("group %d: panic: %v", group, p)
		}
	}()
	ctx, end := membudget.Nested(r.Context())
	defer end()
	rt.o.Handler(group).ServeHTTP(w, r.WithContext(ctx))
	return nil
}

// refusal is the error that a group answers with.
func refusal(group uint32, status int, body []byte) *job.Error {
	var p wire.Problem
	if json.Unmarshal(body, &p) != nil || p.Code == "" {
		return job.Errorf(job.CodeUnavailable, "try again in a moment", "group %d answered with status %d", group,
			status)
	}
	return inGroup(group, &p.Error)
}

// inGroup names the group in an error that is about the group rather than the request.
func inGroup(group uint32, e *job.Error) *job.Error {
	if !absent(e) {
		return e
	}
	named := *e.InGroup(group)
	if e.Code == job.CodeNotLeader {
		named.Code = job.CodeNoLeader
	}
	return &named
}

// absent says that an error is about a group that cannot be asked now.
func absent(err error) bool {
	switch wire.StatusOf(job.CodeOf(err)) {
	case http.StatusServiceUnavailable, http.StatusMisdirectedRequest:
		return true
	}
	return false
}

// get has a group answer a read, into v.
func (rt *Router) get(ctx context.Context, group uint32, path string, q url.Values, v any) error {
	return rt.do(request(ctx, stateOf(ctx).r, http.MethodGet, path, q, nil), group, v)
}

func (rt *Router) do(r *http.Request, group uint32, v any) error {
	var a answer
	if err := rt.ask(group, r, &a); err != nil || v == nil {
		return err
	}
	if err := json.Unmarshal(a.rest.Bytes(), v); err != nil {
		return fmt.Errorf("the answer of group %d cannot be read: %w", group, err)
	}
	return nil
}

// query is the query of a request as a group is asked it.
func (s *state) query() url.Values { return s.r.URL.Query() }

// maxAsked is how many groups are asked at a time.
const maxAsked = 16

// each asks some groups side by side. If one fails so does the request, but of a stale read that one is missing.
func (rt *Router) each(ctx context.Context, groups []uint32, stale bool, ask func(group uint32) error) error {
	errs := make([]error, len(groups))
	free := make(chan struct{}, maxAsked)
	var all sync.WaitGroup
	for i, g := range groups {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			errs[i] = ask(g)
		})
	}
	all.Wait()
	for i, err := range errs {
		switch {
		case err == nil:
		case stale && absent(err) && ctx.Err() == nil:
			stateOf(ctx).miss(groups[i])
		default:
			return err
		}
	}
	return nil
}

// gather asks all groups for the same and gives their answers, in the order of the groups.
func gather[T any](ctx context.Context, rt *Router, groups []uint32, stale bool) ([]T, error) {
	s := stateOf(ctx)
	found := map[uint32]*T{}
	var mu sync.Mutex
	err := rt.each(ctx, groups, stale, func(g uint32) error {
		v := new(T)
		if err := rt.get(ctx, g, s.r.URL.EscapedPath(), s.query(), v); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		found[g] = v
		return nil
	})
	var out []T
	for _, g := range groups {
		if v := found[g]; v != nil {
			out = append(out, *v)
		}
	}
	return out, err
}

// all are the groups with the control group.
func (rt *Router) all() []uint32 {
	groups := rt.o.Groups()
	if slices.Contains(groups, control) {
		return groups
	}
	return slices.Insert(slices.Clone(groups), 0, control)
}
