package api

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// actRoutes are about many jobs at once.
func actRoutes() []route {
	return []route{
		{"POST", "/jobs:act", Operator, Once, AcrossJobs, jsonStream, (*call).actOnJobs, nil},
	}
}

const (
	// actPage is how many jobs are acted on between two lines of the answer, actAtOnce how many of them at a time: what
	// is proposed together is on the disk by one fsync.
	actPage   = 500
	actAtOnce = 128
	// countPage is how many are counted at a time.
	countPage = 1000
	maxActIDs = 1000
	// actErrors is how many errors a line has.
	actErrors = 5
)

// actOnJobs does the same with every job that a filter matches, a page at a time, and says after each how far it is.
// What it does with one job is what the route of that does, under a key made of the request's and the job's: a request
// that broke off goes on from its last cursor, and what it had done behind that is not done twice.
func (c *call) actOnJobs() error {
	var q wire.JobAction
	if err := job.DecodeStrict(c.body, &q); err != nil {
		return err
	}
	a := &act{c: c, q: &q}
	if err := a.check(); err != nil {
		return err
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	args, err := json.Marshal(q.Args)
	if err != nil {
		return err
	}
	rq.Fingerprint = wire.Fingerprint(c.route.method, c.route.path, q.Action, args) // the cursor may be another
	a.rq = rq
	rc := http.NewResponseController(c.w)
	defer deadline(rc.SetWriteDeadline, 0) // net/http would leave it on the connection for the next request
	if q.DryRun || q.Expect != nil {
		n, err := a.count(rc)
		if err == nil && q.Expect != nil && (n > *q.Expect || n < *q.Expect && q.Cursor == "") {
			err = job.Errorf(job.CodeState, "repeat it with dry_run, and expect the number that it reports",
				"%d jobs match, and %d were expected; nothing was changed", n, *q.Expect)
		}
		if err != nil || q.DryRun {
			return a.end(rc, err)
		}
		a.line.Matched = 0
	}
	return a.end(rc, a.run(rc))
}

// act is one such request.
type act struct {
	c    *call
	q    *wire.JobAction
	rq   Request
	line wire.JobActionProgress
}

// check refuses what is no action, or one about everything by oversight.
func (a *act) check() error {
	q, f := a.q, &a.q.Filter
	names := slices.Sorted(maps.Keys(actions))
	if q.Action == "" {
		return job.Invalid("action", "use "+strings.Join(names, ", "), "say which action to take")
	}
	if err := known("action", q.Action, names...); err != nil {
		return err
	}
	if err := known("filter.status", string(f.Status), jobStatuses...); err != nil {
		return err
	}
	if err := known("filter.type", string(f.Type), job.Types()...); err != nil {
		return err
	}
	narrow := f.Query()
	switch {
	case len(f.IDs) > 0 && (narrow.Filters() || f.All), f.All && narrow.Filters():
		return job.Invalid("filter", "give ids, all, or the other fields", "the selection is ambiguous")
	case len(f.IDs) > maxActIDs:
		return job.Invalid("filter.ids", "use another filter, or several requests", "%d ids, at most %d are allowed",
			len(f.IDs), maxActIDs)
	case len(f.IDs) == 0 && !f.All && !narrow.Filters():
		return job.Invalid("filter", `give {"all": true} to mean every job`, "nothing is selected")
	case len(f.Text) > job.MaxName:
		return job.Invalid("filter.q", "look for a part of it",
			"the text has %d bytes; at most %d are allowed", len(f.Text),
			job.MaxName)
	case q.Expect != nil && *q.Expect < 0:
		return job.Invalid("expect", "give the number of jobs that a dry run matched", "%d is negative", *q.Expect)
	case q.Action == "delete" && q.Expect == nil && !q.DryRun:
		return job.Invalid("expect", "repeat it with dry_run first, and expect the number of jobs that it matched",
			"deleted jobs cannot be brought back")
	case (q.Action == "tag" || q.Action == "untag") && len(q.Args.Tags) == 0:
		return job.Invalid("args.tags", `give {"tags": {"team": "billing"}}`, "no tags are given")
	case q.Action == "jitter" && q.Args.JitterMS == nil:
		return job.Invalid("args.jitter_ms", "give the jitter in milliseconds, 0 for none", "no jitter is given")
	case q.Action == "jitter" && *q.Args.JitterMS < 0:
		return job.Invalid("args.jitter_ms", "give 0 or more", "%d is negative", *q.Args.JitterMS)
	}
	return nil
}

// actions are what can be done with a job. An action that finds it done already is content with that.
var actions = map[string]func(a *act, ctx context.Context, j *job.Job, rq Request) error{
	"pause": func(a *act, ctx context.Context, j *job.Job, rq Request) error {
		if j.Status == job.StatusPaused {
			return nil
		}
		_, err := a.c.h.backend.PauseJob(ctx, j.ID.String(), rq)
		return err
	},
	"resume": func(a *act, ctx context.Context, j *job.Job, rq Request) error {
		if j.Status != job.StatusPaused && j.Status != job.StatusQuarantined {
			return nil
		}
		_, err := a.c.h.backend.ResumeJob(ctx, j.ID.String(), rq)
		return err
	},
	"run": func(a *act, ctx context.Context, j *job.Job, rq Request) error {
		_, err := a.c.h.backend.RunJob(ctx, j.ID.String(), rq)
		return err
	},
	"delete": func(a *act, ctx context.Context, j *job.Job, rq Request) error {
		err := a.c.h.backend.DeleteJob(ctx, j.ID.String(), 0, rq)
		if job.CodeOf(err) == job.CodeNotFound {
			return nil
		}
		return err
	},
	"tag": func(a *act, ctx context.Context, j *job.Job, rq Request) error {
		return a.edit(ctx, j, rq, func(s *job.Spec) bool {
			tags := maps.Clone(s.Tags)
			if tags == nil {
				tags = map[string]string{}
			}
			maps.Copy(tags, a.q.Args.Tags)
			same := maps.Equal(tags, s.Tags)
			s.Tags = tags
			return !same
		})
	},
	"untag": func(a *act, ctx context.Context, j *job.Job, rq Request) error {
		return a.edit(ctx, j, rq, func(s *job.Spec) bool {
			tags := maps.Clone(s.Tags)
			maps.DeleteFunc(tags, func(k, v string) bool {
				gone, named := a.q.Args.Tags[k]
				return named && (gone == "" || gone == v)
			})
			same := len(tags) == len(s.Tags)
			s.Tags = tags
			return !same
		})
	},
	"jitter": func(a *act, ctx context.Context, j *job.Job, rq Request) error {
		return a.edit(ctx, j, rq, func(s *job.Spec) bool {
			d := job.Duration(time.Duration(*a.q.Args.JitterMS) * time.Millisecond)
			same := s.Jitter == d
			s.Jitter = d
			return !same
		})
	},
}

// edit changes the spec of a job as it stands, again if another edit comes in between.
func (a *act) edit(ctx context.Context, j *job.Job, rq Request, change func(*job.Spec) bool) error {
	for attempt := 1; ; attempt++ {
		spec := j.Spec
		if !change(&spec) {
			return nil
		}
		_, err := a.c.h.backend.UpdateJob(ctx, j.ID.String(), spec, j.Version, rq)
		if job.CodeOf(err) != job.CodeVersionConflict || attempt == patchAttempts {
			return err
		}
		now, err := a.c.h.backend.GetJob(ctx, j.ID.String(), Read{Space: a.c.space})
		if err != nil {
			return err
		}
		j = &now
	}
}

// page is the jobs behind a cursor that match, and the cursor behind them; empty: there are no more.
func (a *act) page(cursor string, limit int) ([]job.Job, string, error) {
	ctx, cancel := context.WithTimeout(a.c.ctx, a.c.h.opts.RequestTimeout)
	defer cancel()
	rd := Read{Space: a.c.space}
	cursor, err := a.c.openCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	if ids := a.q.Filter.IDs; len(ids) > 0 {
		return a.named(ctx, ids, cursor, limit, rd)
	}
	q := a.q.Filter.Query()
	q.Limit, q.Cursor = limit, cursor
	page, err := a.c.h.backend.ListJobs(ctx, q, rd)
	a.line.Scanned, a.line.Total = a.line.Scanned+page.Scanned, page.Total
	return page.Jobs, a.c.cursors().Hide(page.NextCursor), err
}

// named are jobs of a list of ids; those that are gone do not match. The cursor is a place in the list.
func (a *act) named(ctx context.Context, ids []job.ID, cursor string, limit int, rd Read) (out []job.Job, next string,
	err error) {
	at := 0
	if cursor != "" {
		if at, err = strconv.Atoi(cursor); err != nil || at < 0 || at > len(ids) {
			return nil, "", job.Invalid("cursor", "use the cursor of the last line of the answer, with the same filter",
				"this is not a cursor of this request")
		}
	}
	part := ids[at:min(len(ids), at+limit)]
	for _, id := range part {
		j, err := a.c.h.backend.GetJob(ctx, id.String(), rd)
		if job.CodeOf(err) == job.CodeNotFound {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		out = append(out, j)
	}
	if at += len(part); at < len(ids) {
		next = strconv.Itoa(at)
	}
	a.line.Scanned += len(part)
	return out, next, nil
}

// count finds how many match.
func (a *act) count(rc *http.ResponseController) (n int, err error) {
	for cursor := a.q.Cursor; ; {
		jobs, next, err := a.page(cursor, countPage)
		if err != nil {
			return n, err
		}
		n += len(jobs)
		a.line.Matched = n
		if cursor = next; cursor == "" {
			return n, nil
		}
		if a.q.DryRun {
			a.line.Cursor = cursor
		}
		if err := a.say(rc); err != nil {
			return n, err
		}
	}
}

// run acts on what matches.
func (a *act) run(rc *http.ResponseController) error {
	a.line.Cursor, a.line.Scanned = a.q.Cursor, 0
	for cursor := a.q.Cursor; ; {
		jobs, next, err := a.page(cursor, actPage)
		if err != nil {
			return err
		}
		var more error
		if e := a.q.Expect; e != nil && a.line.Matched+len(jobs) > *e {
			jobs = jobs[:*e-a.line.Matched]
			more = job.Errorf(job.CodeState, "repeat it with dry_run", "more jobs match now than were expected (%d)",
				*e)
		}
		failed, err := a.each(jobs)
		if err != nil {
			return err // the cursor is still that before this page: it is done again, and what was done is not repeated
		}
		a.line.Matched += len(jobs)
		a.line.Failed += len(failed)
		a.line.Done += len(jobs) - len(failed)
		a.line.Errors = failed[:min(len(failed), actErrors)]
		if more != nil {
			return more // the cursor is still that before this page: the rest of it was not acted on
		}
		a.line.Cursor = next
		if cursor = next; cursor == "" {
			return nil
		}
		if err := a.say(rc); err != nil {
			return err
		}
	}
}

// each acts on some jobs, several at a time. What keeps the node from acting at all, such as the end of its leadership,
// is an error of the request; everything else is one of its job.
func (a *act) each(jobs []job.Job) (failed []wire.JobActionError, stop error) {
	do := actions[a.q.Action]
	errs := make([]error, len(jobs))
	free := make(chan struct{}, actAtOnce)
	var all sync.WaitGroup
	// What is to be said of one of many is not said of the answer, whose header they would write side by side.
	parent := context.WithValue(context.WithValue(a.c.ctx, replayKey{}, nil), warnKey{}, nil)
	for i := range jobs {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			ctx, cancel := context.WithTimeout(parent, a.c.h.opts.RequestTimeout)
			defer cancel()
			rq := a.rq
			rq.Key += ":" + jobs[i].ID.String()
			errs[i] = do(a, ctx, &jobs[i], rq)
		})
	}
	all.Wait()
	for i, err := range errs {
		if err == nil {
			continue
		}
		var known *job.Error
		if !errors.As(err, &known) {
			return nil, err
		}
		switch known.Code {
		case job.CodeNoLeader, job.CodeNotLeader, job.CodeNotReady, job.CodeOutcomeUnknown, job.CodeUnavailable:
			return nil, err
		}
		failed = append(failed, wire.JobActionError{JobID: jobs[i].ID, Name: jobs[i].Name, Error: known})
	}
	return failed, nil
}

// say writes a line. A client that stops reading must not hold a handler for ever.
func (a *act) say(rc *http.ResponseController) error {
	if !a.c.started {
		a.c.started = true
		a.c.w.Header().Set("Content-Type", "application/x-ndjson")
		a.c.w.WriteHeader(http.StatusOK)
	}
	a.line.DryRun, a.line.Errors = a.q.DryRun, list(a.line.Errors)
	deadline(rc.SetWriteDeadline, a.c.h.opts.RequestTimeout)
	if err := encode(a.c.w, &a.line); err != nil {
		return err
	}
	if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return a.c.ctx.Err()
}

// end writes the last line. An error before the first one is the answer; one after it is in the last line, whose cursor
// says from where to go on.
func (a *act) end(rc *http.ResponseController, err error) error {
	if err != nil && !a.c.started {
		return err
	}
	if a.line.Finished = err == nil; err != nil {
		var known *job.Error
		if !errors.As(err, &known) {
			return err
		}
		a.line.Error = known
	}
	return a.say(rc)
}
