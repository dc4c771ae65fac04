package router

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/guard"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	prefix = "/api/v1"
	// control is the group of what is of the whole cluster.
	control = 0
	// maxBody is what is read of a request that is looked into: the API takes no larger one.
	maxBody = 1 << 20
)

// Options describe a router.
type Options struct {
	// Groups are those that have jobs, in ascending order.
	Groups func() []uint32
	// Handler brings a request to a group's leader, or answers it on this node. It is asked for the control group and
	// for what Groups names.
	Handler func(group uint32) http.Handler
	// Home is the group that knows where something with a name is.
	Home func(kind job.NameKind, namespace, name string) uint32
	// Place is the group that a new job is put into; key stands for the name of a job that has none.
	Place func(namespace, name, queue, key string) uint32
	// API is for what several groups answer together.
	API    api.Options
	Logger *slog.Logger
}

// Router is an http.Handler.
type Router struct {
	o      Options
	finder *api.Finder
	merged http.Handler // the API over a backend that asks the groups
	panics *guard.Panics
}

// New makes a router.
func New(o Options) *Router {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	rt := &Router{o: o, finder: api.NewFinder(), panics: guard.NewPanics(o.Logger)}
	rt.merged = api.New(&backend{rt: rt}, o.API)
	return rt
}

// ServeHTTP sends a request to its group. What the router cannot read goes to the control group, which says what is
// wrong with it: what is refused there would be refused everywhere.
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	row, ref := rt.finder.Find(r)
	switch row.Target {
	case api.ByJob:
		rt.toJob(w, r, ref)
	case api.ByRun:
		k, err := job.ParseRunKey(ref)
		rt.send(w, r, uint32(k.Job.Group()), err == nil)
	case api.ByQueue:
		space, ok := namespace(r, new(wire.Queue))
		rt.send(w, r, rt.o.Home(job.NameQueue, space, ref), ok)
	case api.ByPlace:
		rt.toPlace(w, r)
	case api.BySession:
		rt.toSession(w, r)
	case api.AcrossJobs, api.AcrossAll, api.ByLetter:
		rt.across(w, r, row)
	default:
		rt.send(w, r, control, true)
	}
}

// send has a group answer. One that there is not, or a request that could not be read, is the control group's.
func (rt *Router) send(w http.ResponseWriter, r *http.Request, group uint32, readable bool) {
	if !readable || !rt.has(group) {
		group = control
	}
	rt.o.Handler(group).ServeHTTP(w, r)
}

func (rt *Router) has(group uint32) bool { return slices.Contains(rt.o.Groups(), group) }

// across answers what several groups know a part of. What is about one job after all is that job's group's.
func (rt *Router) across(w http.ResponseWriter, r *http.Request, row api.Route) {
	q := r.URL.Query()
	switch path := strings.TrimPrefix(row.Path, prefix); {
	case r.URL.RawQuery != "" && len(q["job"]) == 1 && q.Get("job") != "" && oneJob[path]:
		rt.toJob(w, r, q.Get("job"))
	case path == "/jobs:act":
		rt.act(w, r)
	default:
		s := &state{r: r, header: w.Header()}
		if path == "/schedule:preview" {
			s.body, _ = readBody(r, maxBody)
		}
		if err := s.readAfter(path); err != nil {
			api.WriteError(w, err)
			return
		}
		rt.merged.ServeHTTP(w, s.r.WithContext(context.WithValue(s.r.Context(), stateKey{}, s)))
	}
}

// oneJob are the lists that may be about one job, and which its group answers as it is. Those of dead letters are not
// among them: their numbers are made unique.
var oneJob = map[string]bool{"/runs": true, "/runs:summary": true, "/upcoming": true}

// toJob sends a request to the group of a job. The home of a name may know that the job is elsewhere.
func (rt *Router) toJob(w http.ResponseWriter, r *http.Request, ref string) {
	if id, err := job.ParseID(ref); err == nil {
		rt.send(w, r, uint32(id.Group()), true)
		return
	}
	var named job.Job
	space, ok := namespace(r, &named)
	body, whole := readBody(r, maxBody)
	if !ok || !whole {
		rt.send(w, r, control, false)
		return
	}
	keyed := r.Method != http.MethodGet && r.Header.Get("Idempotency-Key") != ""
	rt.follow(w, r, rt.o.Home(job.NameJob, space, ref), body, fmt.Sprintf("the name %q", ref), keyed)
}

// maxFollowed is how many groups are asked for one thing: its home, the one that has it, and the next if it is moved
// meanwhile.
const maxFollowed = 4

// follow has a group answer, or the one that it names instead. A job that was renamed or deleted meanwhile is what that
// one says of it. keyed: an earlier try of the request may have done that.
func (rt *Router) follow(w http.ResponseWriter, r *http.Request, group uint32, body []byte, what string, keyed bool) {
	ask := func(group uint32) *holdingWriter {
		held := &holdingWriter{to: w, header: http.Header{}, absent: keyed}
		r.Body = membudget.Kept(body)
		rt.send(held, r, group, true)
		return held
	}
	for range maxFollowed {
		held := ask(group)
		other, moved := held.other()
		switch {
		case moved:
			group = other
			continue
		case keyed && held.status == http.StatusNotFound:
			// An earlier try of the request may have renamed or deleted the job: its group knows what came of it, and
			// the home of the name knows the job no more.
			for _, g := range rt.o.Groups() {
				if g == group {
					continue
				}
				if h := ask(g); !h.held() {
					return
				}
			}
		}
		held.release()
		return
	}
	api.WriteError(w, beingMoved(what))
}

// beingMoved is the error about something that no group answers for.
func beingMoved(what string) *job.Error {
	return job.Errorf(job.CodeUnavailable, "try again in a moment", "%s is being moved; nothing was changed", what)
}

// namespace is that of the names in a request: its own, that of its document, or that of its caller. It reads a
// document that may name one into v, in the way of the API.
func namespace(r *http.Request, v any) (string, bool) {
	space := namespaceOf(r)
	if r.Method != http.MethodPut {
		return space, true
	}
	body, ok := readBody(r, maxBody)
	if !ok || job.DecodeStrict(body, v) != nil {
		return "", false
	}
	switch v := v.(type) {
	case *wire.Queue:
		space = cmp.Or(v.Namespace, space)
	case *job.Job:
		space = cmp.Or(v.Namespace, space)
	}
	return space, true
}

// namespaceOf is what a request says apart from its body.
func namespaceOf(r *http.Request) string {
	home := ""
	if id := api.IdentityOf(r.Context()); id != nil {
		home = id.Namespace
	}
	return cmp.Or(r.URL.Query().Get("namespace"), home, job.DefaultNamespace)
}

// toPlace sends a new job to the group that it is put into.
func (rt *Router) toPlace(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(r, maxBody)
	spec, err := job.DecodeSpec(body)
	if !ok || err != nil {
		rt.send(w, r, control, false)
		return
	}
	key := cmp.Or(r.Header.Get("Idempotency-Key"), rand.Text())
	if id := api.IdentityOf(r.Context()); id != nil {
		key = wire.RequestID(id.Token, key, true)
	} else {
		key = wire.RequestID("", key, true)
	}
	rt.follow(w, r, rt.place(&spec, cmp.Or(spec.Namespace, namespaceOf(r)), key), body, "the job", false)
}

// place is the group of a new job.
func (rt *Router) place(spec *job.Spec, namespace, key string) uint32 {
	queue := ""
	if spec.Type == job.TypeQueue {
		var p job.QueuePayload
		if json.Unmarshal(spec.Payload, &p) == nil {
			queue = p.Queue
		}
	}
	return rt.o.Place(namespace, spec.Name, queue, key)
}

// toSession sends a worker's message to the group that it is for: that of the queue that it names, or the one that it
// names itself. A cluster that has one group needs neither.
func (rt *Router) toSession(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	text := q.Get("group")
	n, err := strconv.ParseUint(text, 10, 32)
	switch {
	case q.Has("queue"):
		rt.send(w, r, rt.o.Home(job.NameQueue, namespaceOf(r), q.Get("queue")), true)
	case !q.Has("group") && len(rt.o.Groups()) < 2:
		rt.send(w, r, control, true)
	case !q.Has("group"):
		api.WriteError(w, job.Invalid("queue", "add ?queue=NAME", "this cluster has several groups of jobs"))
	case err != nil || n > job.MaxGroups:
		api.WriteError(w, job.Invalid("group", "check the groups of the cluster", "there is no group %q", text))
	case n != control && !rt.has(uint32(n)): // the worker may know more
		api.WriteError(w, job.Errorf(job.CodeUnavailable, "try again in a moment, or ask another node",
			"this node does not know group %d yet", n))
	default:
		rt.send(w, r, uint32(n), true)
	}
}

// readBody reads a body and leaves it in the request, to be read again. Of one that is too large or broken the part
// that was read is put back, for the API to find the same.
func readBody(r *http.Request, limit int64) (body []byte, whole bool) {
	body, err := membudget.ReadBody(r, limit)
	return body, err == nil
}

// holdingWriter holds back an answer that may say that another group is to be asked. All others pass.
type holdingWriter struct {
	to     http.ResponseWriter
	header http.Header
	absent bool // an answer that the job is not there is held back too
	status int
	body   bytes.Buffer // of one that is held
}

func (w *holdingWriter) Header() http.Header { return w.header }

func (w *holdingWriter) held() bool {
	return w.status == http.StatusMisdirectedRequest || w.absent && w.status == http.StatusNotFound
}

func (w *holdingWriter) WriteHeader(status int) {
	if w.status != 0 || status < 200 {
		return
	}
	if w.status = status; !w.held() {
		w.begin()
	}
}

func (w *holdingWriter) begin() {
	for k, v := range w.header {
		w.to.Header()[k] = v
	}
	w.to.WriteHeader(w.status)
}

func (w *holdingWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.held() {
		return w.body.Write(b)
	}
	return w.to.Write(b)
}

// other is the group that is to be asked instead.
func (w *holdingWriter) other() (uint32, bool) {
	if !w.held() {
		return 0, false
	}
	var p wire.Problem
	if json.Unmarshal(w.body.Bytes(), &p) != nil {
		return 0, false
	}
	return p.InOther()
}

// release lets out what was held back.
func (w *holdingWriter) release() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.held() {
		w.begin()
		w.to.Write(w.body.Bytes()) //nolint:errcheck // the client hung up
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *holdingWriter) Unwrap() http.ResponseWriter { return w.to }

// path is that of a route of the API.
func path(parts ...string) string {
	for i, p := range parts {
		if i > 0 {
			parts[i] = url.PathEscape(p)
		}
	}
	return prefix + strings.Join(parts, "/")
}
