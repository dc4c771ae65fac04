package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

const prefix = "/api/v1"

// bodyKind says what a route reads.
type bodyKind uint8

const (
	emptyBody  bodyKind = iota
	jsonBody            // one JSON value, needed
	jsonMaybe           // one JSON value or nothing
	patchBody           // a merge patch
	linesBody           // NDJSON; the route reads it itself
	streamBody          // no body; the answer is a stream without a time limit of its own
	workerBody          // a message of the worker protocol: JSON or msgpack, with a limit of its own
	pollBody            // the same, and the route sets the time limit
	pullBody            // one JSON value or nothing, and the route sets the time limit
)

// route is one method of one path. The OpenAPI document is held against the table of them, and nodes forward by it.
type route struct {
	method string
	path   string // a ServeMux pattern, or one followed by :verb
	role   Role
	way    Way
	body   bodyKind
	serve  func(*call) error
	query  []string // the parameters it knows
}

// anyQuery stands for parameters that the handler interprets.
const anyQuery = "*"

// params are the names of parameters, separated by spaces.
func params(names string) []string { return strings.Fields(names) }

// routes is the table, put together from those of the parts of the API. Its rows have no names of columns, so that one
// without a role does not compile.
func routes() []route {
	table := slices.Concat(jobRoutes(), runRoutes(), deadRoutes(), scheduleRoutes(), queueRoutes(), workerRoutes(),
		pullRoutes(), clusterRoutes(), backupRoutes(), systemRoutes())
	for i := range table {
		table[i].path = prefix + table[i].path
	}
	return append(table, probeRoutes()...)
}

// resource is one ServeMux pattern: its methods, and for each :verb behind it the methods of that.
type resource struct {
	param   string // the wildcard that a verb follows, if there is one
	methods map[string]map[string]route
}

// register gives ServeMux the patterns without the verbs: a wildcard takes a whole segment there, and "{ref}:pause" is
// no pattern.
func (h *handler) register(table []route) {
	resources := map[string]*resource{}
	for _, rt := range table {
		rt.role.mustBe(rt.path)
		pattern, verb := rt.path, ""
		param := ""
		if i := strings.Index(rt.path, "}:"); i >= 0 {
			pattern, verb = rt.path[:i+1], rt.path[i+2:]
			param = pattern[strings.LastIndexByte(pattern, '{')+1 : i]
		}
		res := resources[pattern]
		if res == nil {
			res = &resource{methods: map[string]map[string]route{}}
			resources[pattern] = res
		}
		if param != "" {
			res.param = param
		}
		if res.methods[verb] == nil {
			res.methods[verb] = map[string]route{}
		}
		res.methods[verb][rt.method] = rt
	}
	for pattern, res := range resources {
		h.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { h.dispatch(w, r, res) })
	}
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
					"there is no action %q here%s", verb, suggest(verb, verbs)))
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
	ctx := context.WithValue(r.Context(), replayKey{}, c.markReplay)
	if rt.body != linesBody && rt.body != streamBody && rt.body != pollBody && rt.body != pullBody {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.opts.RequestTimeout)
		defer cancel()
	}
	c.ctx = ctx
	err := c.readQuery()
	if err == nil {
		err = c.checkContentType()
	}
	if err == nil {
		err = c.readBody()
	}
	if err == nil {
		err = rt.serve(c)
	}
	if err != nil {
		h.failCall(c, err)
	}
}
