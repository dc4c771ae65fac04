package router

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// Outdated refuses a request that another node sent to a group of this one, and that is not whole by the groups which
// that node knows of: there are more by now, and jobs in them would be missing, or not be found. A new job may be put
// into any group, and what is about a job of the group that was asked is right however many there are.
func (rt *Router) Outdated(r *http.Request, group, known uint32) error {
	if known <= 1 {
		return nil
	}
	by, err := strconv.ParseUint(r.Header.Get(wire.KnownHeader), 10, 32)
	if err == nil && uint32(by) >= known || r.URL.Query().Get("stale") != "" {
		return nil
	}
	row, ref := rt.finder.Find(r)
	switch row.Target {
	case api.Control, api.AtNode, api.ByPlace, api.BySession, api.ByQueue:
		return nil
	case api.ByJob:
		if id, err := job.ParseID(ref); err == nil && uint32(id.Group()) == group {
			return nil
		}
	case api.ByRun:
		if k, err := job.ParseRunKey(ref); err == nil && uint32(k.Job.Group()) == group {
			return nil
		}
	default:
		if path := strings.TrimPrefix(row.Path, prefix); path == "/jobs:bulk" || path == "/status" {
			return nil
		}
	}
	return job.Errorf(job.CodeUnavailable, "try again in a moment, or ask another node",
		"the node that you asked does not know yet that there are %d groups of jobs; nothing was changed", known)
}

// Serve answers a request of another node. One that knows of one group only cannot send a new job to another one, and
// the client is to repeat it.
func (rt *Router) Serve(w http.ResponseWriter, r *http.Request, group http.Handler) {
	if r.Header.Get(wire.KnownHeader) != "" || r.Method != http.MethodPost || r.URL.Path != path("/jobs") {
		group.ServeHTTP(w, r)
		return
	}
	held := &holdingWriter{to: w, header: http.Header{}}
	group.ServeHTTP(held, r)
	if _, moved := held.other(); moved {
		api.WriteError(w, beingMoved("the job"))
		return
	}
	held.release()
}

// Until is a request that ends, if it is a stream of events, when the groups of the cluster change: its client begins
// again, and hears of all groups.
func Until(r *http.Request, changed <-chan struct{}) (_ *http.Request, end func()) {
	if !strings.HasSuffix(r.URL.Path, "/events") {
		return r, func() {}
	}
	ctx, cancel := context.WithCancel(r.Context())
	go func() {
		select {
		case <-ctx.Done():
		case <-changed:
			cancel()
		}
	}()
	return r.WithContext(ctx), cancel
}
