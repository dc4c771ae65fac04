package api

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api/guard"
	"github.com/carillon-scheduler/carillon/api/lines"
	"github.com/carillon-scheduler/carillon/job"
)

// Options tunes the handler. The zero value works.
type Options struct {
	Logger         *slog.Logger
	Version        string        // shown in the Server header
	NodeID         string        // whose admin socket it is that requests come by
	MaxBody        int64         // of everything but a bulk create; default 1 MiB
	RequestTimeout time.Duration // default 30 s; a bulk create or an export has it per chunk
	Bulk           BulkLimits
	Metrics        http.Handler // serves /metrics; nil: 404
	JobMetrics     http.Handler // serves /metrics/jobs; nil: 404
	DebugPprof     bool         // serves /debug/pprof/
	Workers        Workers      // serves the worker protocol; nil: 503
	Cluster        Cluster      // serves membership; nil: 503
	// Leader is where the HTTP port of the node that leads is, host:port; empty without a leader, or if this node does.
	// Workers that come to the wrong node are sent there; nil: they have to find it themselves.
	Leader func() string
	// Groups are the Raft groups that have jobs, for workers; none, or nil: there is one group.
	Groups func() []uint32
	// Refused, if set, is told of requests that are answered with 400, 401 or 403.
	Refused func(r *http.Request, err error)
	// Secure says that the handler stands behind Authorize: without an identity nothing is answered but probes.
	Secure bool
	// SessionKeys are what the sessions of workers that have a token are sealed with, the one to use first: the same on
	// every node that may lead. nil: there are none.
	SessionKeys func() ([][]byte, error)
	// Hosts are names (with or without a port) under which the node may be called besides localhost and addresses; see
	// package guard.
	Hosts []string
}

// BulkLimits bounds one request that is a job a line. Zero means the default.
type BulkLimits = lines.Limits

const (
	defaultMaxBody   = 1 << 20
	defaultBulkBytes = 256 << 20
)

func (o *Options) defaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxBody <= 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = 30 * time.Second
	}
	o.Bulk.Defaults()
}

type handler struct {
	backend Backend
	opts    Options
	mux     *http.ServeMux
	ownKey  []byte // of this process
	panics  *guard.Panics
}

// New makes the handler of a node's HTTP port.
func New(b Backend, o Options) http.Handler {
	o.defaults()
	h := &handler{backend: b, opts: o, mux: http.NewServeMux(), ownKey: []byte(rand.Text()),
		panics: guard.NewPanics(o.Logger)}
	h.register(routes())
	if o.DebugPprof {
		for path, serve := range ByPath(debugEndpoints()) {
			h.mux.HandleFunc(path, serve)
		}
	}
	h.mux.HandleFunc("/", h.noRoute)

	return h.outer(Guard(h.mux, o.Secure, o.Hosts...))
}

// Guard keeps out what jobs send, and what a browser sends on behalf of another site's page.
func Guard(next http.Handler, secure bool, hosts ...string) http.Handler {
	return guard.Handler(next, WriteError, secure, hosts...)
}

// debugEndpoints are served with Options.DebugPprof.
func debugEndpoints() []Endpoint {
	return []Endpoint{
		{"/debug/pprof/", Admin, NoBody, pprof.Index},
		{"/debug/pprof/cmdline", Admin, NoBody, pprof.Cmdline},
		{"/debug/pprof/profile", Admin, NoBody, pprof.Profile},
		{"/debug/pprof/symbol", Admin, 64 << 10, pprof.Symbol},
		{"/debug/pprof/trace", Admin, NoBody, pprof.Trace},
	}
}

// outer is around everything: common headers, the request log, and no panic leaves it.
func (h *handler) outer(next http.Handler) http.Handler {
	server := "carillon"
	if h.opts.Version != "" {
		server += "/" + strings.ReplaceAll(h.opts.Version, " ", "_")
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &guard.ResponseWriter{ResponseWriter: rw}
		begin := time.Now()
		defer func() {
			if p := recover(); p != nil {
				if p == http.ErrAbortHandler { // a stream broken off on purpose
					panic(p)
				}
				h.panics.Log(r, p)
				if w.Status != 0 {
					panic(http.ErrAbortHandler) // half an answer must not look like a whole one
				}
				h.fail(w, r, errors.New("panic"))
			}
			if h.opts.Logger.Enabled(r.Context(), slog.LevelDebug) {
				h.opts.Logger.Debug("request", "method", r.Method, "path", r.URL.Path, "status", w.Status,
					"took", time.Since(begin))
			}
		}()
		header := w.Header()
		header.Set("Server", server)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")
		if r.RequestURI == "*" || !strings.HasPrefix(r.URL.Path, "/") {
			h.noRoute(w, r) // ServeMux would answer these in its own words
			return
		}
		if err := guard.LostName(prefix, r.URL.Path); err != nil {
			h.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (h *handler) noRoute(w http.ResponseWriter, r *http.Request) {
	h.fail(w, r, job.Errorf(job.CodeNotFound, "GET "+prefix+"/openapi.json lists the routes",
		"there is nothing at %s", r.URL.Path))
}

type (
	stampKey struct{}
	stamp    struct {
		key    string
		repeat bool
	}
)

// WithRequestKey gives a mutating request the key that the node stamped it with which received it; the client's own
// counts for more. repeat says that it was sent before, with an unknown outcome.
func WithRequestKey(ctx context.Context, key string, repeat bool) context.Context {
	return context.WithValue(ctx, stampKey{}, stamp{key, repeat})
}

type replayKey struct{}

// MarkReplay is for a Backend that answers a mutating request from the stored outcome of the same request: the answer
// then says so in the header Idempotent-Replay. CreateJob may use its result instead.
func MarkReplay(ctx context.Context) {
	if mark, ok := ctx.Value(replayKey{}).(func()); ok {
		mark()
	}
}

type warnKey struct{}

// Warn is for a Backend that did what it was asked for, and knows something about that which the caller should know:
// the answer then says so in the header Carillon-Warning.
func Warn(ctx context.Context, text string) {
	if say, ok := ctx.Value(warnKey{}).(func(string)); ok {
		say(text)
	}
}
