package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/slowread"
	"github.com/carillon-scheduler/carillon/job"
)

// systemRoutes are about the node and its cluster.
func systemRoutes() []route {
	return []route{
		{"POST", "/cluster:clock-reset", Admin, ToLeader, AcrossAll, emptyBody, (*call).clockReset, nil},
		{"POST", "/cluster:scrub", Admin, ToLeader, AcrossAll, emptyBody, (*call).scrub, nil},
		{"GET", "/cluster:scrub", Viewer, ToLeader, AcrossAll, emptyBody, (*call).scrubStatus, nil},
		{"GET", "/status", Viewer, Asking, AcrossAll, emptyBody, (*call).status, params("stale")},
		{"GET", "/openapi.json", Viewer, Here, AtNode, emptyBody, (*call).openapi, nil},
		{"GET", "/schemas/job.json", Viewer, Here, AtNode, emptyBody, (*call).jobSchema, nil},
		{"GET", "/whoami", Holder, Here, AtNode, emptyBody, (*call).whoami, nil},
	}
}

// probeRoutes are outside of the prefix: those who call them know nothing of the API.
func probeRoutes() []route {
	return append(namespaced([]route{
		{"GET", "/metrics/jobs", Viewer, Here, AtNode, streamBody, (*call).jobMetrics, params("prefix")},
	}), []route{
		{"GET", "/healthz", Anyone, Here, AtNode, emptyBody, (*call).healthz, nil},
		{"GET", "/readyz", Anyone, Here, AtNode, emptyBody, (*call).readyz, nil},
		{"GET", "/metrics", Viewer, Here, AtNode, streamBody, (*call).metrics, params(anyQuery)},
	}...)
}

// SystemBackend is what the routes of the node itself stand on.
type SystemBackend interface {
	// ClockReset lowers the clock mark to the leader's clock after a clock that ran ahead was put right.
	ClockReset(ctx context.Context, rq Request) error
	// Scrub has the leader compare the states of the replicas at once, and ScrubStatus says how far that is.
	Scrub(ctx context.Context, rq Request) (wire.ScrubStatus, error)
	ScrubStatus(ctx context.Context, rd Read) (wire.ScrubStatus, error)
	Status(ctx context.Context, rd Read) (wire.Status, error)
	// Live says whether the process should be restarted, Ready whether it should get traffic.
	Live() error
	Ready() error
}

func (c *call) status() error {
	rd, err := c.read()
	if err != nil {
		return err
	}
	s, err := c.h.backend.Status(c.ctx, rd)
	if err != nil {
		return err
	}
	s.Members, s.Workers = list(s.Members), list(s.Workers)
	for i := range s.Workers {
		s.Workers[i].Types = list(s.Workers[i].Types)
	}
	if s.Raft == nil {
		s.Raft = map[string]string{}
	}
	return c.reply(http.StatusOK, s)
}

func (c *call) clockReset() error {
	rq, err := c.request()
	if err != nil {
		return err
	}
	return c.done(c.h.backend.ClockReset(c.ctx, rq))
}

func (c *call) scrub() error {
	rq, err := c.request()
	if err != nil {
		return err
	}
	return c.scrubbed(c.h.backend.Scrub(c.ctx, rq))
}

func (c *call) scrubStatus() error {
	rd, err := c.read()
	if err != nil {
		return err
	}
	return c.scrubbed(c.h.backend.ScrubStatus(c.ctx, rd))
}

func (c *call) scrubbed(s wire.ScrubStatus, err error) error {
	if err != nil {
		return err
	}
	for i := range s.Groups {
		s.Groups[i].Differ, s.Groups[i].Missing = list(s.Groups[i].Differ), list(s.Groups[i].Missing)
	}
	return c.reply(http.StatusOK, s)
}

func (c *call) healthz() error { return c.health(c.h.backend.Live()) }

func (c *call) readyz() error { return c.health(c.h.backend.Ready()) }

// health answers probes. They look at the status only, so whatever the error is, it is 503; the body is for the person
// who looks, unless that may be anybody.
func (c *call) health(err error) error {
	if err == nil {
		return c.reply(http.StatusOK, map[string]string{"status": "ok"})
	}
	if c.h.opts.Secure {
		return job.Errorf(job.CodeNotReady, "", "the node is not ready")
	}
	e := &job.Error{}
	if !errors.As(err, &e) || wire.StatusOf(e.Code) != http.StatusServiceUnavailable {
		e = job.Errorf(job.CodeNotReady, "", "%v", err)
	}
	return e
}

func (c *call) metrics() error {
	if c.h.opts.Metrics == nil {
		c.h.noRoute(c.w, c.r)
		return nil
	}
	c.h.opts.Metrics.ServeHTTP(c.w, c.r)
	return nil
}

// jobMetrics are those of single jobs. They are read by a request of the same caller, which looks at namespaces itself.
func (c *call) jobMetrics() error {
	if c.h.opts.JobMetrics == nil {
		c.h.noRoute(c.w, c.r)
		return nil
	}
	c.h.opts.JobMetrics.ServeHTTP(c.w, c.r.WithContext(c.ctx))
	return nil
}

// backupRoutes are about backups and what was restored from one.
func backupRoutes() []route {
	return []route{
		{"POST", "/cluster:release", Admin, ToLeader, AcrossAll, emptyBody, (*call).release, nil},
		{"GET", "/backup", Admin, Here, AcrossAll, streamBody, (*call).backup, params("stale")},
		{"POST", "/backup:note", Admin, ToLeader, Control, jsonBody, (*call).noteBackup, nil},
	}
}

// BackupBackend is what the routes of backups stand on.
type BackupBackend interface {
	// Release ends the hold of a restored cluster. Doing it again changes nothing.
	Release(ctx context.Context, rq Request) (wire.ReleaseResult, error)
	// Backup is a consistent copy of this node's own state, leader or not. Closing it frees what it holds.
	Backup(ctx context.Context) (wire.BackupInfo, io.ReadCloser, error)
}

// backupChunk is what must go out within the time limit of a request: 9 KB a second will do.
const backupChunk = 256 << 10

// backup streams a copy of this node's state. The copy was made before the first byte goes out, so a client that is
// slow, or stops reading, keeps nothing waiting but itself; and one that stops altogether is cut off.
func (c *call) backup() error {
	if _, err := c.read(); err != nil {
		return err
	}
	info, rc, err := c.h.backend.Backup(c.ctx)
	if err != nil {
		return err
	}
	defer rc.Close()
	h := c.w.Header()
	h.Set("Content-Type", wire.MediaBackup)
	h.Set("Content-Length", strconv.FormatInt(info.Size, 10))
	info.Headers(h)
	ctl := http.NewResponseController(c.w)
	defer deadline(ctl.SetWriteDeadline, 0)
	limit := c.h.opts.RequestTimeout
	if c.r.Header.Get(wire.ForwardedHeader) != "" {
		limit = 0 // a node reads the copies of groups one after the other
		slowread.Patient(c.w)
	}
	deadline(ctl.SetWriteDeadline, limit)
	c.started = true
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	buf := make([]byte, backupChunk)
	for {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		n, err := rc.Read(buf)
		if n > 0 {
			deadline(ctl.SetWriteDeadline, limit)
			if _, err := c.w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *call) release() error {
	rq, err := c.request()
	if err != nil {
		return err
	}
	r, err := c.h.backend.Release(c.ctx, rq)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, r)
}
