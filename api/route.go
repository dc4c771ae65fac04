package api

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/carillon-scheduler/carillon/api/guard"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/job"
)

const prefix = "/api/v1"

// bodyKind says what a route reads.
type bodyKind uint8

const (
	emptyBody  bodyKind = iota + 1
	jsonBody            // one JSON value, needed
	jsonMaybe           // one JSON value or nothing
	patchBody           // a merge patch
	jsonStream          // one JSON value, needed; the answer is a stream without a time limit of its own
	linesBody           // NDJSON; the route reads it itself
	streamBody          // no body; the answer is a stream without a time limit of its own
	waitBody            // no body; the answer waits until there is something to say
	workerBody          // a message of the worker protocol: JSON or msgpack, with a limit of its own
	pollBody            // the same, and the route sets the time limit
)

// bodyBytes is how many bytes are read of each kind. A kind without a row has no bound, and does not start.
var bodyBytes = map[bodyKind]int64{emptyBody: defaultMaxBody, jsonBody: defaultMaxBody, jsonMaybe: defaultMaxBody,
	patchBody: defaultMaxBody, jsonStream: defaultMaxBody, linesBody: defaultBulkBytes, streamBody: 0, waitBody: 0,
	workerBody: maxWorkerBody, pollBody: maxPollBody}

func (k bodyKind) mustBe(path string) {
	if _, ok := bodyBytes[k]; !ok {
		panic(fmt.Sprintf("the route %s has no bound: say in its table what body it reads", path))
	}
}

// most is how many bytes of a body are read.
func (rt *route) most() int64 {
	switch {
	case rt.method == http.MethodGet:
		return 0
	case rt.role == Anyone:
		return membudget.MostOfStranger
	}
	return bodyBytes[rt.body]
}

// streams says that a request or its answer may go on for as long as its caller likes.
func (k bodyKind) streams() bool { return k == linesBody || k == streamBody || k == jsonStream }

// room is what is reserved for an answer before a request is carried out: nothing for streams, which reserve it piece
// by piece, and for workers, whose answers are small or have waited. A token whose changes wait for a slow commit, or
// whose people watch outputs, must not use up its share by waiting.
func (rt *route) room() int64 {
	switch {
	case rt.body.streams() || rt.body.polls() || rt.role == Anyone || rt.role == Worker || rt.role == Node:
		return 0
	case rt.method != http.MethodGet || rt.body == waitBody:
		return membudget.RoomOfChange
	}
	return membudget.RoomOfRead
}

// polls says that the route waits for something, and sets the time limit.
func (k bodyKind) polls() bool { return k == pollBody }

// route is one method of one path. The OpenAPI document is held against the table of them, and nodes forward by it.
type route struct {
	method string
	path   string // a ServeMux pattern, or one followed by :verb
	role   Role
	way    Way
	target Target
	body   bodyKind
	serve  func(*call) error
	query  []string // the parameters it knows
}

// anyQuery stands for parameters that the handler interprets.
const anyQuery = "*"

// params are the names of parameters, separated by spaces.
func params(names string) []string { return strings.Fields(names) }

// routes is the table, put together from those of the parts of the API. Its rows have no names of columns, so that one
// without a role or a target does not compile.
func routes() []route {
	table := slices.Concat(namespaced(slices.Concat(jobRoutes(), actRoutes(), insightRoutes(), upcomingRoutes(),
		runRoutes(), deadRoutes(), scheduleRoutes(), queueRoutes(), secretRoutes(), workerRoutes())),
		clusterRoutes(), backupRoutes(), tokenRoutes(), joinTokenRoutes(), rotationRoutes(), devRoutes(),
		namespaced(auditRoutes()), systemRoutes())
	for i := range table {
		table[i].path = prefix + table[i].path
	}
	return append(table, probeRoutes()...)
}

// Route is a row of the table as those see it who are held to it from outside.
type Route struct {
	Method, Path string
	Role         Role
	Scope        Scope
	Target       Target
	Namespaced   bool // it has the parameter that names a namespace
}

// Routes are the rows of the table.
func Routes() (rows []Route) {
	for _, rt := range routes() {
		rows = append(rows, rt.row())
	}
	return rows
}

func (rt *route) row() Route {
	return Route{rt.method, rt.path, rt.role, rt.scope(), rt.target, slices.Contains(rt.query, namespaceParam)}
}

// Scope says for which namespace a token must be.
type Scope uint8

// The scopes. The zero value is the strictest.
const (
	OfCluster   Scope = iota // it is about the whole cluster: a token for all namespaces
	InNamespace              // it is about what is in one namespace
	Everywhere               // it is about nothing that is in a namespace
)

// scopes are those of the routes, by the first part of their paths. What is not here is about the whole cluster.
var scopes = map[string]Scope{
	"jobs": InNamespace, "runs": InNamespace, "dead": InNamespace, "schedule": InNamespace, "calendars": InNamespace,
	"queues": InNamespace, "secrets": InNamespace, "workers": InNamespace, "stats": InNamespace, "events": InNamespace,
	"upcoming":     InNamespace,
	"audit":        InNamespace,
	"openapi.json": Everywhere, "schemas": Everywhere, "whoami": Everywhere,
	"/metrics/jobs": InNamespace,
}

func (rt *route) scope() Scope {
	rest, _ := strings.CutPrefix(rt.path, prefix+"/")
	part, _, _ := strings.Cut(rest, "/")
	part, _, _ = strings.Cut(part, ":")
	return max(scopes[part], scopes[rt.path])
}

// resource is one ServeMux pattern: its methods, and for each :verb behind it the methods of that.
type resource struct {
	param   string // the wildcard that a verb follows, if there is one
	methods map[string]map[string]route
}

// register gives ServeMux the patterns without the verbs: a wildcard takes a whole segment there, and "{ref}:pause" is
// no pattern.
func (h *handler) register(table []route) {
	for pattern, res := range resources(table) {
		h.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { h.dispatch(w, r, res) })
	}
}

// resources are the patterns of a table.
func resources(table []route) map[string]*resource {
	out := map[string]*resource{}
	for _, rt := range table {
		rt.role.mustBe(rt.path)
		rt.target.mustBe(rt.path)
		rt.body.mustBe(rt.path)
		pattern, verb := rt.path, ""
		param := ""
		if i := strings.Index(rt.path, "}:"); i >= 0 {
			pattern, verb = rt.path[:i+1], rt.path[i+2:]
			param = pattern[strings.LastIndexByte(pattern, '{')+1 : i]
		}
		res := out[pattern]
		if res == nil {
			res = &resource{methods: map[string]map[string]route{}}
			out[pattern] = res
		}
		if param != "" {
			res.param = param
		}
		if res.methods[verb] == nil {
			res.methods[verb] = map[string]route{}
		}
		res.methods[verb][rt.method] = rt
	}
	return out
}

func (h *handler) dispatch(w http.ResponseWriter, r *http.Request, res *resource) {
	verb := ""
	if res.param != "" {
		// Names contain no colon, so the last one separates the verb.
		if value := r.PathValue(res.param); strings.Contains(value, ":") {
			i := strings.LastIndexByte(value, ':')
			verb = value[i+1:]
			r.SetPathValue(res.param, value[:i])
			if verb == "" || res.methods[verb] == nil {
				var verbs []string
				for v := range res.methods {
					if v != "" {
						verbs = append(verbs, v)
					}
				}
				slices.Sort(verbs)
				h.fail(w, r, job.Errorf(job.CodeNotFound, "use :"+strings.Join(verbs, ", :"),
					"there is no action %q here%s", verb, job.Suggest(verb, verbs)))
				return
			}
		}
	}
	methods := res.methods[verb]
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	rt, ok := methods[method]
	if !ok {
		h.wrongMethod(w, r, methods)
		return
	}
	h.serve(w, r, rt)
}

func (h *handler) wrongMethod(w http.ResponseWriter, r *http.Request, methods map[string]route) {
	allow := []string{http.MethodOptions}
	for m := range methods {
		allow = append(allow, m)
		if m == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	slices.Sort(allow)
	list := strings.Join(allow, ", ")
	w.Header().Set("Allow", list)
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	h.fail(w, r, job.Errorf(job.CodeMethodNotAllowed, "use "+list, "%s is not possible at %s", r.Method, r.URL.Path))
}

// serve does what all routes have in common, in the order in which it is cheapest to refuse.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, rt route) {
	c := &call{h: h, w: w, r: r, route: rt}
	if h.opts.Secure && !c.allowed() {
		h.fail(w, r, job.Errorf(job.CodeForbidden, "", "this needs %s", rt.role.needs()))
		return
	}
	ctx := context.WithValue(r.Context(), replayKey{}, c.markReplay)
	ctx = context.WithValue(ctx, warnKey{}, c.say)
	ctx = WithCaller(ctx, h.caller(r))
	if !rt.body.streams() && !rt.body.polls() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.opts.RequestTimeout)
		defer cancel()
	}
	c.ctx = ctx
	err := c.readQuery()
	if err == nil {
		c.space, err = c.namespace()
	}
	if err == nil {
		err = c.checkContentType()
	}
	if err == nil {
		err = c.readBody()
	}
	if room := rt.room(); err == nil && room > 0 {
		c.room, err = membudget.Answer(ctx, room)
		c.ctx = context.WithValue(ctx, turnKey{}, &c.turn)
		defer c.turn.end()
	}
	if err == nil {
		err = rt.serve(c)
	}
	if err != nil {
		h.failCall(c, err)
	}
}

// allowed says whether the authorizer let this very route pass. A path that it read in another way than ServeMux does,
// or a way into the handler around it, ends here.
func (c *call) allowed() bool {
	if c.route.role == Anyone {
		return true
	}
	id := IdentityOf(c.r.Context())
	if id == nil {
		return false
	}
	_, ok := id.may(c.route.needs(c.r), c.route.scope())
	return ok
}

// needs is the role that a request needs. What an apply would do, which changes nothing, a viewer may ask: checks of
// changes in Git have no business with more.
func (rt *route) needs(r *http.Request) Role {
	if rt.path == prefix+"/jobs:apply" && onlyLooks(r) {
		return Viewer
	}
	return rt.role
}

// onlyLooks says that a request asks for a dry run, beyond doubt.
func onlyLooks(r *http.Request) bool {
	q, err := url.ParseQuery(r.URL.RawQuery)
	return err == nil && len(q["dry_run"]) == 1 && q.Get("dry_run") == "true"
}

// Way says which node answers the requests of a route. It is the same for all methods of a path.
type Way uint8

// The ways.
const (
	ToLeader Way = iota // the leader answers; the request is small and repeated until it was answered
	Once                // the leader answers, with or from a stream, which is not repeated
	Here                // the node that was asked answers, whatever it knows
	Asking              // the same, but it asks the leader itself for what only that knows
	// AsAsked: a worker that names a queue is carried to the leader, one that names a group asks that leader itself. A
	// node in between would hold a connection for every worker, and its death would look like the leader's.
	AsAsked
)

var exceptions = sync.OnceValue(func() (out []route) {
	for _, rt := range routes() {
		if rt.way != ToLeader {
			out = append(out, rt)
		}
	}
	return out
})

// WayOf is the way of the requests for a path. What is not of the API is answered here.
func WayOf(path string) Way {
	if !strings.HasPrefix(path, prefix+"/") {
		return Here
	}
	for _, rt := range exceptions() {
		before, rest, variable := strings.Cut(rt.path, "{")
		_, after, _ := strings.Cut(rest, "}")
		if path == rt.path || variable && strings.HasPrefix(path, before) && strings.HasSuffix(path, after) {
			return rt.way
		}
	}
	return ToLeader
}

// Role says who may call a route. A cluster that does not ask for tokens lets everybody who reaches the port of a node
// call everything.
type Role uint8

// The roles. The zero value is none of them: a route without a role is a mistake.
const (
	Anyone   Role = iota + 1 // probes of load balancers and supervisors, which have no credentials
	Viewer                   // reads, and what changes nothing
	Operator                 // changes jobs, runs, dead letters, calendars and queues
	Admin                    // changes the cluster, or sees all of it: membership, clock, backups, memory
	Worker                   // takes runs and reports them
	Node                     // another node of the cluster
	Holder                   // every holder of a token
)

var roleNames = map[Role]string{
	Anyone: "anyone", Viewer: "viewer", Operator: "operator", Admin: "admin", Worker: "worker", Node: "node",
	Holder: "token",
}

// String is the role as the documents have it.
func (r Role) String() string { return roleNames[r] }

// mustBe panics about a route without a role: it would be open to all, or closed to all, by oversight.
func (r Role) mustBe(path string) {
	if roleNames[r] == "" {
		panic(fmt.Sprintf("the route %s has no role: say in its table who may call it", path))
	}
}

// Endpoint is a path of a node's port that is not of the API: no document describes it to clients, and it is served by
// the node that is asked.
type Endpoint struct {
	Path  string
	Role  Role
	Body  int64 // how many bytes of one are read
	Serve http.HandlerFunc
}

// NoBody is the bound of an endpoint that reads none.
const NoBody int64 = -1

// mustBe panics about an endpoint without a role, or without a bound.
func (e *Endpoint) mustBe() {
	if e.Role.mustBe(e.Path); e.Body == 0 {
		panic(fmt.Sprintf("the endpoint %s has no bound: say how many bytes it reads", e.Path))
	}
}

// ByPath looks endpoints up, which have their bodies within the bounds. It panics about one that says none.
func ByPath(list []Endpoint) map[string]http.HandlerFunc {
	out := make(map[string]http.HandlerFunc, len(list))
	for _, e := range list {
		e.mustBe()
		out[e.Path] = guard.Bounded(e.Serve, max(e.Body, 0), WriteError)
	}
	return out
}
