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
	path   string   // a ServeMux pattern, or one followed by :verb
	query  []string // the parameters it knows
	body   bodyKind
	serve  func(*call) error
	way    Way
}

// anyQuery stands for parameters that the handler interprets.
const anyQuery = "*"

func routes() []route {
	return []route{
		{"POST", prefix + "/jobs", nil, jsonBody, (*call).createJob, ToLeader},
		{"GET", prefix + "/jobs", []string{"status", "type", "prefix", "tag", "limit", "cursor", "stale"}, emptyBody, (*call).listJobs, ToLeader},
		{"POST", prefix + "/jobs:bulk", nil, linesBody, (*call).bulk, Once},
		{"GET", prefix + "/jobs/{ref}", []string{"stale"}, emptyBody, (*call).getJob, ToLeader},
		{"PUT", prefix + "/jobs/{ref}", nil, jsonBody, (*call).putJob, ToLeader},
		{"PATCH", prefix + "/jobs/{ref}", nil, patchBody, (*call).patchJob, ToLeader},
		{"DELETE", prefix + "/jobs/{ref}", nil, emptyBody, (*call).deleteJob, ToLeader},
		{"GET", prefix + "/jobs/{ref}/runs", []string{"status", "limit", "cursor", "stale"}, emptyBody, (*call).jobRuns, ToLeader},
		{"POST", prefix + "/jobs/{ref}:run", nil, emptyBody, (*call).runJob, ToLeader},
		{"POST", prefix + "/jobs/{ref}:pause", nil, emptyBody, (*call).pauseJob, ToLeader},
		{"POST", prefix + "/jobs/{ref}:resume", nil, emptyBody, (*call).resumeJob, ToLeader},
		{"POST", prefix + "/jobs/{ref}:cancel", nil, emptyBody, (*call).cancelJob, ToLeader},
		{"POST", prefix + "/jobs/{ref}:backfill", nil, jsonBody, (*call).backfill, ToLeader},

		{"GET", prefix + "/runs", []string{"status", "job", "limit", "cursor", "stale"}, emptyBody, (*call).listRuns, ToLeader},
		{"GET", prefix + "/runs:export", []string{"after", "limit", "stale"}, streamBody, (*call).exportRuns, Once},
		{"GET", prefix + "/runs/{ref}", []string{"stale"}, emptyBody, (*call).getRun, ToLeader},
		{"GET", prefix + "/runs/{ref}/output", []string{"fence", "after"}, emptyBody, (*call).runOutput, ToLeader},
		{"POST", prefix + "/runs/{ref}:cancel", nil, emptyBody, (*call).cancelRun, ToLeader},

		{"GET", prefix + "/dead", []string{"job", "limit", "cursor", "stale"}, emptyBody, (*call).listDead, ToLeader},
		{"DELETE", prefix + "/dead", []string{"ids", "job", "all"}, jsonMaybe, (*call).purgeDead, ToLeader},
		{"GET", prefix + "/dead/{ref}", []string{"stale"}, emptyBody, (*call).getDead, ToLeader},
		{"POST", prefix + "/dead:redrive", []string{"ids", "job", "all"}, jsonMaybe, (*call).redriveDead, ToLeader},

		{"POST", prefix + "/schedule:preview", nil, jsonBody, (*call).preview, ToLeader},
		{"GET", prefix + "/calendars", []string{"stale"}, emptyBody, (*call).listCalendars, ToLeader},
		{"GET", prefix + "/calendars/{name}", []string{"stale"}, emptyBody, (*call).getCalendar, ToLeader},
		{"PUT", prefix + "/calendars/{name}", nil, jsonBody, (*call).putCalendar, ToLeader},
		{"DELETE", prefix + "/calendars/{name}", nil, emptyBody, (*call).deleteCalendar, ToLeader},

		{"GET", prefix + "/queues", []string{"stale"}, emptyBody, (*call).listQueues, ToLeader},
		{"GET", prefix + "/queues/{queue}", []string{"stale"}, emptyBody, (*call).getQueue, ToLeader},
		{"PUT", prefix + "/queues/{queue}", nil, jsonBody, (*call).putQueue, ToLeader},
		{"PATCH", prefix + "/queues/{queue}", nil, patchBody, (*call).patchQueue, ToLeader},
		{"DELETE", prefix + "/queues/{queue}", nil, emptyBody, (*call).deleteQueue, ToLeader},
		{"POST", prefix + "/queues/{queue}:pause", nil, emptyBody, (*call).pauseQueue, ToLeader},
		{"POST", prefix + "/queues/{queue}:resume", nil, emptyBody, (*call).resumeQueue, ToLeader},

		{"POST", prefix + "/workers:register", nil, workerBody, (*call).workerRegister, Here},
		{"POST", prefix + "/workers:poll", nil, pollBody, (*call).workerPoll, Here},
		{"POST", prefix + "/workers:heartbeat", nil, workerBody, (*call).workerHeartbeat, Here},
		{"POST", prefix + "/workers:report", nil, workerBody, (*call).workerReport, Here},
		{"POST", prefix + "/workers:output", nil, workerBody, (*call).workerOutput, Here},

		{"POST", prefix + "/queues/{queue}:poll", nil, pullBody, (*call).pullPoll, Poll},
		{"POST", prefix + "/queues/{queue}:heartbeat", nil, jsonBody, (*call).pullHeartbeat, ToLeader},
		{"POST", prefix + "/queues/{queue}:complete", nil, jsonBody, (*call).pullComplete, ToLeader},
		{"POST", prefix + "/queues/{queue}:fail", nil, jsonBody, (*call).pullFail, ToLeader},

		{"POST", prefix + "/cluster:clock-reset", nil, emptyBody, (*call).clockReset, ToLeader},
		{"POST", prefix + "/cluster:join", nil, jsonBody, (*call).clusterJoin, ToLeader},
		{"POST", prefix + "/cluster:remove", nil, jsonBody, (*call).clusterRemove, ToLeader},
		{"POST", prefix + "/cluster:promote", nil, jsonBody, (*call).clusterPromote, ToLeader},
		{"POST", prefix + "/cluster:demote", nil, jsonBody, (*call).clusterDemote, ToLeader},
		{"POST", prefix + "/cluster:transfer", nil, jsonMaybe, (*call).clusterTransfer, ToLeader},
		{"POST", prefix + "/cluster:release", nil, emptyBody, (*call).release, ToLeader},
		{"GET", prefix + "/backup", []string{"stale"}, streamBody, (*call).backup, Here},
		{"GET", prefix + "/node", []string{"stale"}, emptyBody, (*call).node, Here},
		{"GET", prefix + "/status", []string{"stale"}, emptyBody, (*call).status, Asking},
		{"GET", prefix + "/openapi.json", nil, emptyBody, (*call).openapi, Here},
		{"GET", "/healthz", nil, emptyBody, (*call).healthz, Here},
		{"GET", "/readyz", nil, emptyBody, (*call).readyz, Here},
		{"GET", "/metrics", []string{anyQuery}, streamBody, (*call).metrics, Here},
	}
}

// resource is one ServeMux pattern: its methods, and for each :verb behind it the methods of that.
type resource struct {
	param   string // the wildcard that a verb follows, if there is one
	methods map[string]map[string]route
}

// register gives ServeMux the patterns without the verbs: a wildcard takes a whole segment there, and "{ref}:pause" is no pattern.
func (h *handler) register(table []route) {
	resources := map[string]*resource{}
	for _, rt := range table {
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
				h.fail(w, r, job.Errorf(job.CodeNotFound, "use :"+strings.Join(verbs, ", :"), "there is no action %q here%s", verb, suggest(verb, verbs)))
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
