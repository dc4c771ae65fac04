package api

import (
	"bytes"
	"context"
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/job"
)

// runRoutes are about runs and their history.
func runRoutes() []route {
	return []route{
		{"GET", "/runs", Viewer, ToLeader, AcrossJobs, emptyBody, (*call).listRuns,
			params("status job from to worker error limit cursor stale")},
		{"GET", "/runs:summary", Viewer, ToLeader, AcrossJobs, emptyBody, (*call).runSummary,
			params("job from to stale")},
		{"GET", "/runs:export", Viewer, Once, AcrossJobs, streamBody, (*call).exportRuns, params("after limit stale")},
		{"GET", "/runs/{ref}", Viewer, ToLeader, ByRun, emptyBody, (*call).getRun, params("stale")},
		{"GET", "/runs/{ref}/output", Viewer, ToLeader, ByRun, waitBody, (*call).runOutput, params("fence after")},
		{"POST", "/runs/{ref}:cancel", Operator, ToLeader, ByRun, emptyBody, (*call).cancelRun, nil},
	}
}

// RunBackend is what the routes of runs stand on.
type RunBackend interface {
	// JobRuns is a job's open runs and then its history, newest first.
	JobRuns(ctx context.Context, ref string, q wire.RunQuery, rd Read) (wire.RunPage, error)
	// Runs is the open runs of all jobs of a namespace (q.Statuses filters); with a finished status among q.Statuses it
	// is the history.
	Runs(ctx context.Context, q wire.RunQuery, rd Read) (wire.RunPage, error)
	// RunSummary counts how runs ended over a time, and finds those that run for longest.
	RunSummary(ctx context.Context, q wire.RunQuery, rd Read) (wire.RunSummary, error)
	GetRun(ctx context.Context, runID string, rd Read) (wire.RunDetail, error)
	// RunOutput is the output of the run's last attempt from an offset on; of a running one it waits a while for more.
	RunOutput(ctx context.Context, runID string, fence uint64, after int64, rd Read) (job.RunOutput, error)
	CancelRun(ctx context.Context, runID string, rq Request) (job.Run, error)
	// ExportHistory returns up to limit records with a sequence number above after, oldest first.
	ExportHistory(ctx context.Context, after uint64, limit int, rd Read) ([]job.Run, error)
}

func (c *call) listRuns() error {
	q, rd, err := c.runQuery()
	if err != nil {
		return err
	}
	page, err := c.h.backend.Runs(c.ctx, q, rd)
	if err != nil {
		return err
	}
	page.Runs = list(page.Runs)
	return c.replyPage(&page.NextCursor, &page)
}

func (c *call) runSummary() error {
	var q wire.RunQuery
	var err error
	if q.From, q.To, err = c.interval(); err != nil {
		return err
	}
	if q.Job, err = c.one("job"); err != nil {
		return err
	}
	rd, err := c.read()
	if err != nil {
		return err
	}
	s, err := c.h.backend.RunSummary(c.ctx, q, rd)
	if err != nil {
		return err
	}
	s.Longest = list(s.Longest)
	return c.reply(http.StatusOK, s)
}

// runRef is the run in the path; what cannot be one is answered here, so that a job's name in this place is explained.
func (c *call) runRef() (string, error) {
	if _, err := job.ParseRunKey(c.ref()); err != nil {
		return "", job.Errorf(job.CodeNotFound, "GET "+prefix+"/jobs/{job}/runs lists the runs of a job",
			"%q is not a run id: %v", c.ref(), err)
	}
	return c.ref(), nil
}

func (c *call) getRun() error {
	rd, err := c.read()
	if err != nil {
		return err
	}
	id, err := c.runRef()
	if err != nil {
		return err
	}
	detail, err := c.h.backend.GetRun(c.ctx, id, rd)
	if err != nil {
		return err
	}
	detail.Attempts = list(detail.Attempts)
	return c.reply(http.StatusOK, detail)
}

// runOutput is what a run wrote so far. If it has written nothing beyond what the caller knows, it waits a while.
func (c *call) runOutput() error {
	id, err := c.runRef()
	if err != nil {
		return err
	}
	var at [2]uint64
	for i, name := range []string{"fence", "after"} {
		s, err := c.one(name)
		if err != nil {
			return err
		}
		if s == "" {
			continue
		}
		if at[i], err = strconv.ParseUint(s, 10, 63); err != nil {
			return job.Invalid(name, "use the fence and next of the last answer", "%q is not a number", s)
		}
	}
	out, err := c.h.backend.RunOutput(c.ctx, id, at[0], int64(at[1]), Read{Space: c.space})
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, out)
}

func (c *call) cancelRun() error {
	id, err := c.runRef()
	if err != nil {
		return err
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	run, err := c.h.backend.CancelRun(c.ctx, id, rq)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, run)
}

const exportChunk = 200

// exportRuns streams the history, oldest first. The seq of the last line is the `after` of the next export.
func (c *call) exportRuns() error {
	rd, err := c.read()
	if err != nil {
		return err
	}
	from, err := c.after()
	if err != nil {
		return err
	}
	after := from.Own()
	left, err := c.limit(1<<62, 1<<62)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	return c.stream(left, func(n int) (int, []byte, error) {
		runs, err := c.exportChunk(after, n, rd)
		buf.Reset()
		for i := range runs {
			if err := encode(&buf, &runs[i]); err != nil {
				return 0, nil, err
			}
			after = max(after, runs[i].Seq)
		}
		return len(runs), buf.Bytes(), err
	})
}

// stream answers with up to left lines, as many at a time as next gives. When that are fewer than asked for, they were
// the last.
func (c *call) stream(left int, next func(n int) (int, []byte, error)) error {
	rc := http.NewResponseController(c.w)
	defer deadline(rc.SetWriteDeadline, 0) // net/http would leave it on the connection for the next request
	for left > 0 {
		room, err := membudget.Answer(c.ctx, membudget.RoomOfRead)
		if err != nil {
			c.unread = true
			return err
		}
		n, lines, err := next(min(left, exportChunk))
		if err != nil {
			return err
		}
		if !room.Fit(int64(len(lines))) {
			return c.noRoom()
		}
		if !c.started {
			c.started = true
			c.w.Header().Set("Content-Type", "application/x-ndjson")
			c.w.WriteHeader(http.StatusOK)
		}
		// A client that stops reading must not hold a handler for ever.
		deadline(rc.SetWriteDeadline, c.h.opts.RequestTimeout)
		if _, err := c.w.Write(lines); err != nil {
			return err
		}
		room.Release()
		if n < min(left, exportChunk) {
			break
		}
		left -= n
	}
	return nil
}

func (c *call) exportChunk(after uint64, n int, rd Read) ([]job.Run, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.h.opts.RequestTimeout)
	defer cancel()
	return c.h.backend.ExportHistory(ctx, after, n, rd)
}

func (c *call) after() (wire.Seqs, error) {
	s, err := c.one("after")
	if err != nil || s == "" {
		return nil, err
	}
	return wire.ParseSeqs(s)
}
