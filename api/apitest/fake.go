// Package apitest has a Backend in memory, for tests of everything that stands on the API. It follows the contract, not the clock:
// nothing fires by itself; tests put runs into it.
package apitest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// Fake is the Backend. Its fields may be set before use.
type Fake struct {
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Hook is called at the beginning of every method that has a context; its error is returned.
	Hook func(ctx context.Context, method string) error
	// LiveErr and ReadyErr are what the probes say.
	LiveErr, ReadyErr error
	// Hold is in the status until it is released; BackupData is what a backup contains.
	Hold       *wire.HoldStatus
	Troubles   []wire.Trouble // in the status
	BackupData []byte

	mu        sync.Mutex
	jobs      map[job.ID]job.Job
	last      job.ID
	open      []job.Run
	history   []job.Run // by seq
	dead      []job.DeadLetter
	calendars map[string]schedule.Calendar
	queues    map[string]wire.Queue
	outcomes  map[string]outcome
	requests  []api.Request
}

type outcome struct {
	fingerprint uint64
	value       any
}

var _ api.Backend = (*Fake)(nil)

// New makes an empty one.
func New() *Fake {
	return &Fake{Now: time.Now, jobs: map[job.ID]job.Job{}, calendars: map[string]schedule.Calendar{}, queues: map[string]wire.Queue{}, outcomes: map[string]outcome{}}
}

// Requests are the identities of the mutating requests so far.
func (f *Fake) Requests() []api.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// Alter changes what only a node says about a job.
func (f *Fake) Alter(id job.ID, change func(*job.Job)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.jobs[id]
	change(&j)
	f.jobs[id] = j
}

// AddOpen puts an open run in.
func (f *Fake) AddOpen(r job.Run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = append(f.open, r)
}

// AddHistory records a finished attempt or an interval and gives it the next seq.
func (f *Fake) AddHistory(r job.Run) job.Run {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Seq = uint64(len(f.history) + 1)
	f.history = append(f.history, r)
	return r
}

// AddDead puts a dead letter in.
func (f *Fake) AddDead(r job.Run) job.DeadLetter {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := job.DeadLetter{Seq: uint64(len(f.dead) + 1), Run: r}
	f.dead = append(f.dead, d)
	return d
}

func (f *Fake) begin(ctx context.Context, method string) error {
	if f.Hook != nil {
		if err := f.Hook(ctx, method); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// change does a mutating request once for each key of a client.
func change[T any](ctx context.Context, f *Fake, method string, rq api.Request, do func() (T, error)) (T, bool, error) {
	var none T
	if err := f.begin(ctx, method); err != nil {
		return none, false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, rq)
	if o, ok := f.outcomes[rq.Key]; ok && rq.Client {
		if o.fingerprint != rq.Fingerprint {
			return none, false, job.Errorf(job.CodeKeyReused, "use a new key", "the key %q was used for another request", rq.Key)
		}
		api.MarkReplay(ctx)
		return o.value.(T), true, nil
	}
	v, err := do()
	if err == nil && rq.Client {
		f.outcomes[rq.Key] = outcome{rq.Fingerprint, v}
	}
	return v, false, err
}

func (f *Fake) find(ref string) (job.Job, error) {
	id, err := job.ParseID(ref)
	if err == nil {
		if j, ok := f.jobs[id]; ok {
			return j, nil
		}
	}
	for _, j := range f.jobs {
		if j.Name == ref && ref != "" {
			return j, nil
		}
	}
	return job.Job{}, job.Errorf(job.CodeNotFound, "`carillon jobs` lists them", "there is no job %q", ref)
}

// check normalizes, validates and computes the next run.
func (f *Fake) check(s *job.Spec, id job.ID) (job.Instant, error) {
	s.Normalize()
	if err := s.Validate(); err != nil {
		return 0, err
	}
	sch, err := schedule.Parse(s.Schedule, schedule.Options{Zone: s.Timezone, Gap: s.DSTGap, Overlap: s.DSTOverlap, Seed: uint64(id)})
	if err != nil {
		return 0, wire.ScheduleError(err)
	}
	for _, c := range s.Calendars {
		if _, ok := f.calendars[c]; !ok {
			return 0, job.Invalid("calendars", "create it first", "there is no calendar %q", c)
		}
	}
	next, ok := sch.Next(f.Now())
	if !ok {
		return 0, nil
	}
	return job.At(next), nil
}

func (f *Fake) create(s job.Spec) (job.Job, error) {
	id := f.last + 1
	next, err := f.check(&s, id)
	if err != nil {
		return job.Job{}, err
	}
	if s.Name != "" {
		if _, err := f.find(s.Name); err == nil {
			return job.Job{}, &job.Error{Code: job.CodeDuplicateName, Field: "name", Message: fmt.Sprintf("there is a job %q already", s.Name), Remedy: "choose another name, or edit that job"}
		}
	}
	f.last = id
	now := job.At(f.Now())
	j := job.Job{ID: id, Status: job.StatusScheduled, Spec: s, NextRunAt: next, Version: 1, CreatedAt: now, UpdatedAt: now}
	f.jobs[id] = j
	return j, nil
}

// CreateJob implements api.Backend.
func (f *Fake) CreateJob(ctx context.Context, s job.Spec, rq api.Request) (job.Job, bool, error) {
	return change(ctx, f, "CreateJob", rq, func() (job.Job, error) { return f.create(s) })
}

// BulkCreate implements api.Backend.
func (f *Fake) BulkCreate(ctx context.Context, lines []wire.BulkLine, _ api.Request) ([]wire.BulkResult, error) {
	if err := f.begin(ctx, "BulkCreate"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]wire.BulkResult, len(lines))
	for i, l := range lines {
		out[i] = wire.BulkResult{Line: l.Line, Status: "error", Name: l.Spec.Name, Error: l.Err}
		if l.Err != nil {
			continue
		}
		j, err := f.create(l.Spec)
		if job.CodeOf(err) == job.CodeDuplicateName && err != nil {
			if old, _ := f.find(l.Spec.Name); old.Schedule == l.Spec.Schedule {
				out[i].Status, out[i].JobID = "exists", &old.ID
				continue
			}
		}
		if err != nil {
			out[i].Error = err.(*job.Error)
			continue
		}
		out[i].Status, out[i].JobID, out[i].Name = "created", &j.ID, j.Name
	}
	return out, nil
}

// GetJob implements api.Backend.
func (f *Fake) GetJob(ctx context.Context, ref string, _ api.Read) (job.Job, error) {
	if err := f.begin(ctx, "GetJob"); err != nil {
		return job.Job{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.find(ref)
}

// ListJobs implements api.Backend.
func (f *Fake) ListJobs(ctx context.Context, q wire.JobQuery, _ api.Read) (wire.JobPage, error) {
	if err := f.begin(ctx, "ListJobs"); err != nil {
		return wire.JobPage{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []job.Job
	for _, id := range slices.Sorted(maps.Keys(f.jobs)) {
		j := f.jobs[id]
		match := (q.Status == "" || j.Status == q.Status) && (q.Type == "" || j.Type == q.Type) && strings.HasPrefix(j.Name, q.Prefix)
		for k, v := range q.Tags {
			match = match && j.Tags[k] == v
		}
		if match {
			all = append(all, j)
		}
	}
	part, next, err := paged(all, q.Limit, q.Cursor)
	return wire.JobPage{Jobs: part, NextCursor: next}, err
}

func paged[T any](all []T, limit int, cursor string) ([]T, string, error) {
	from := 0
	if cursor != "" {
		n, err := strconv.Atoi(cursor)
		if err != nil || n < 0 {
			return nil, "", job.Invalid("cursor", "use the next_cursor of the page before", "%q is not a cursor", cursor)
		}
		from = min(n, len(all))
	}
	all = all[from:]
	if len(all) <= limit {
		return all, "", nil
	}
	return all[:limit], strconv.Itoa(from + limit), nil
}

func conflict(have, want uint64) error {
	return &job.Error{Code: job.CodeVersionConflict, Field: "version", Message: fmt.Sprintf("the job is at version %d, not %d", have, want), Remedy: "read it again and repeat the edit"}
}

// UpdateJob implements api.Backend.
func (f *Fake) UpdateJob(ctx context.Context, ref string, s job.Spec, version uint64, rq api.Request) (job.Job, error) {
	j, _, err := change(ctx, f, "UpdateJob", rq, func() (job.Job, error) {
		j, err := f.find(ref)
		if err != nil {
			return j, err
		}
		if version != 0 && version != j.Version {
			return j, conflict(j.Version, version)
		}
		next, err := f.check(&s, j.ID)
		if err != nil {
			return j, err
		}
		j.Spec, j.NextRunAt = s, next
		return f.put(j), nil
	})
	return j, err
}

func (f *Fake) put(j job.Job) job.Job {
	j.Version++
	j.UpdatedAt = job.At(f.Now())
	f.jobs[j.ID] = j
	return j
}

// DeleteJob implements api.Backend.
func (f *Fake) DeleteJob(ctx context.Context, ref string, version uint64, rq api.Request) error {
	_, _, err := change(ctx, f, "DeleteJob", rq, func() (bool, error) {
		j, err := f.find(ref)
		if err != nil {
			return false, err
		}
		if version != 0 && version != j.Version {
			return false, conflict(j.Version, version)
		}
		delete(f.jobs, j.ID)
		return true, nil
	})
	return err
}

// PauseJob implements api.Backend.
func (f *Fake) PauseJob(ctx context.Context, ref string, rq api.Request) (job.Job, error) {
	return f.setStatus(ctx, "PauseJob", ref, job.StatusPaused, rq)
}

// ResumeJob implements api.Backend.
func (f *Fake) ResumeJob(ctx context.Context, ref string, rq api.Request) (job.Job, error) {
	return f.setStatus(ctx, "ResumeJob", ref, job.StatusScheduled, rq)
}

func (f *Fake) setStatus(ctx context.Context, method, ref string, to job.Status, rq api.Request) (job.Job, error) {
	j, _, err := change(ctx, f, method, rq, func() (job.Job, error) {
		j, err := f.find(ref)
		if err != nil {
			return j, err
		}
		if j.Status == to {
			return j, job.Errorf(job.CodeState, "", "the job is %s already", to)
		}
		j.Status = to
		return f.put(j), nil
	})
	return j, err
}
