package apitest

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// RunJob implements api.Backend.
func (f *Fake) RunJob(ctx context.Context, ref string, rq api.Request) (job.Run, error) {
	r, _, err := change(ctx, f, "RunJob", rq, func() (job.Run, error) {
		j, err := f.find(ref)
		if err != nil {
			return job.Run{}, err
		}
		at := job.At(f.Now())
		k := job.RunKey{Job: j.ID, At: int64(at), Origin: job.OriginManual}
		r := job.Run{RunID: k.String(), JobID: j.ID, JobName: j.Name, ScheduledAt: at, Origin: job.OriginManual, Status: job.RunPending,
			ReadyAt: at, Key: job.IdempotencyKey(j.IdempotencyKey, j.Name, k)}
		f.open = append(f.open, r)
		return r, nil
	})
	return r, err
}

// CancelJob implements api.Backend.
func (f *Fake) CancelJob(ctx context.Context, ref string, rq api.Request) (int, error) {
	n, _, err := change(ctx, f, "CancelJob", rq, func() (int, error) {
		j, err := f.find(ref)
		if err != nil {
			return 0, err
		}
		before := len(f.open)
		f.open = slices.DeleteFunc(f.open, func(r job.Run) bool { return r.JobID == j.ID })
		return before - len(f.open), nil
	})
	return n, err
}

// Backfill implements api.Backend.
func (f *Fake) Backfill(ctx context.Context, ref string, b wire.BackfillRequest, rq api.Request) (wire.BackfillResult, error) {
	r, _, err := change(ctx, f, "Backfill", rq, func() (wire.BackfillResult, error) {
		res := wire.BackfillResult{DryRun: b.DryRun}
		j, err := f.find(ref)
		if err != nil {
			return res, err
		}
		s, err := schedule.Parse(j.Schedule, schedule.Options{Zone: j.Timezone, Seed: uint64(j.ID)})
		if err != nil {
			return res, wire.ScheduleError(err)
		}
		for at, ok := s.Next(b.From.Time().Add(-time.Millisecond)); ok && job.At(at) <= b.To; at, ok = s.Next(at) {
			ran := slices.ContainsFunc(f.history, func(r job.Run) bool { return r.JobID == j.ID && r.ScheduledAt == job.At(at) })
			if ran && !b.Force {
				res.Skipped = append(res.Skipped, job.At(at))
				continue
			}
			if res.Times = append(res.Times, job.At(at)); len(res.Times) > b.Max {
				return res, job.Invalid("max", "raise max, or choose a shorter interval", "more than %d occurrences", b.Max)
			}
		}
		return res, nil
	})
	return r, err
}

func (f *Fake) matching(q wire.RunQuery, id job.ID, open, finished bool) []job.Run {
	var all []job.Run
	if open {
		all = append(all, f.open...)
		slices.Reverse(all)
	}
	if finished {
		done := slices.Clone(f.history)
		slices.Reverse(done)
		all = append(all, done...)
	}
	return slices.DeleteFunc(all, func(r job.Run) bool {
		return id != 0 && r.JobID != id || len(q.Statuses) > 0 && !slices.Contains(q.Statuses, r.Status)
	})
}

// JobRuns implements api.Backend.
func (f *Fake) JobRuns(ctx context.Context, ref string, q wire.RunQuery, _ api.Read) (wire.RunPage, error) {
	if err := f.begin(ctx, "JobRuns"); err != nil {
		return wire.RunPage{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	j, err := f.find(ref)
	if err != nil {
		return wire.RunPage{}, err
	}
	part, next, err := paged(f.matching(q, j.ID, true, true), q.Limit, q.Cursor)
	return wire.RunPage{Runs: part, NextCursor: next}, err
}

// Runs implements api.Backend.
func (f *Fake) Runs(ctx context.Context, q wire.RunQuery, _ api.Read) (wire.RunPage, error) {
	if err := f.begin(ctx, "Runs"); err != nil {
		return wire.RunPage{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var id job.ID
	if q.Job != "" {
		j, err := f.find(q.Job)
		if err != nil {
			return wire.RunPage{}, err
		}
		id = j.ID
	}
	finished := slices.ContainsFunc(q.Statuses, func(s job.RunStatus) bool { return !s.Open() })
	part, next, err := paged(f.matching(q, id, true, finished), q.Limit, q.Cursor)
	return wire.RunPage{Runs: part, NextCursor: next}, err
}

// RunOutput implements api.Backend: the fake's runs write all their output at once.
func (f *Fake) RunOutput(ctx context.Context, id string, fence uint64, after int64) (job.RunOutput, error) {
	d, err := f.GetRun(ctx, id, api.Read{})
	if err != nil {
		return job.RunOutput{}, err
	}
	out := job.RunOutput{RunID: d.RunID, Status: d.Status, Attempt: d.Attempt, Fence: d.Fence, Next: int64(len(d.Output)), Done: !d.Status.Open()}
	if fence != d.Fence {
		after = 0
	}
	out.Offset = min(after, out.Next)
	out.Text = d.Output[out.Offset:]
	return out, nil
}

// GetRun implements api.Backend.
func (f *Fake) GetRun(ctx context.Context, id string, _ api.Read) (wire.RunDetail, error) {
	if err := f.begin(ctx, "GetRun"); err != nil {
		return wire.RunDetail{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var d wire.RunDetail
	for _, r := range f.open {
		if r.RunID == id {
			d.Run = r
		}
	}
	for _, r := range slices.Backward(f.history) {
		if r.RunID == id {
			if d.RunID == "" {
				d.Run = r
			}
			d.Attempts = append(d.Attempts, r)
		}
	}
	if d.RunID == "" {
		return d, job.Errorf(job.CodeNotFound, "", "there is no run %q", id)
	}
	return d, nil
}

// CancelRun implements api.Backend.
func (f *Fake) CancelRun(ctx context.Context, id string, rq api.Request) (job.Run, error) {
	r, _, err := change(ctx, f, "CancelRun", rq, func() (job.Run, error) {
		for i, r := range f.open {
			if r.RunID == id {
				f.open[i].Status = job.RunCanceling
				return f.open[i], nil
			}
		}
		return job.Run{}, job.Errorf(job.CodeNotFound, "", "there is no open run %q", id)
	})
	return r, err
}

// ExportHistory implements api.Backend.
func (f *Fake) ExportHistory(ctx context.Context, after uint64, limit int, _ api.Read) ([]job.Run, error) {
	if err := f.begin(ctx, "ExportHistory"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	rest := f.history[min(after, uint64(len(f.history))):]
	return slices.Clone(rest[:min(limit, len(rest))]), nil
}

func (f *Fake) selectDead(q wire.DeadQuery) ([]job.DeadLetter, error) {
	var id job.ID
	if q.Job != "" {
		j, err := f.find(q.Job)
		if err != nil {
			return nil, err
		}
		id = j.ID
	}
	var out []job.DeadLetter
	for _, d := range slices.Backward(f.dead) {
		if (len(q.IDs) == 0 || slices.Contains(q.IDs, d.Seq)) && (id == 0 || d.JobID == id) {
			out = append(out, d)
		}
	}
	return out, nil
}

// DeadLetters implements api.Backend.
func (f *Fake) DeadLetters(ctx context.Context, q wire.DeadQuery, _ api.Read) (wire.DeadPage, error) {
	if err := f.begin(ctx, "DeadLetters"); err != nil {
		return wire.DeadPage{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all, err := f.selectDead(q)
	if err != nil {
		return wire.DeadPage{}, err
	}
	part, next, err := paged(all, q.Limit, q.Cursor)
	return wire.DeadPage{Dead: part, NextCursor: next}, err
}

// Redrive implements api.Backend.
func (f *Fake) Redrive(ctx context.Context, q wire.DeadQuery, rq api.Request) (wire.DeadResult, error) {
	return f.takeDead(ctx, "Redrive", q, rq)
}

// PurgeDead implements api.Backend.
func (f *Fake) PurgeDead(ctx context.Context, q wire.DeadQuery, rq api.Request) (wire.DeadResult, error) {
	return f.takeDead(ctx, "PurgeDead", q, rq)
}

func (f *Fake) takeDead(ctx context.Context, method string, q wire.DeadQuery, rq api.Request) (wire.DeadResult, error) {
	r, _, err := change(ctx, f, method, rq, func() (wire.DeadResult, error) {
		taken, err := f.selectDead(q)
		if err != nil {
			return wire.DeadResult{}, err
		}
		r := wire.DeadResult{Count: len(taken)}
		for _, id := range q.IDs {
			if !slices.ContainsFunc(taken, func(d job.DeadLetter) bool { return d.Seq == id }) {
				r.Unknown = append(r.Unknown, id)
			}
		}
		f.dead = slices.DeleteFunc(f.dead, func(d job.DeadLetter) bool {
			return slices.ContainsFunc(taken, func(t job.DeadLetter) bool { return t.Seq == d.Seq })
		})
		return r, nil
	})
	return r, err
}

// Preview implements api.Backend.
func (f *Fake) Preview(ctx context.Context, p wire.PreviewRequest) (wire.PreviewResult, error) {
	if err := f.begin(ctx, "Preview"); err != nil {
		return wire.PreviewResult{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return wire.LocalPreview(p, f.Now(), f.allCalendars())
}

func (f *Fake) allCalendars() []schedule.Calendar {
	var out []schedule.Calendar
	for _, c := range f.calendars {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b schedule.Calendar) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// PutCalendar implements api.Backend.
func (f *Fake) PutCalendar(ctx context.Context, c schedule.Calendar, rq api.Request) (schedule.Calendar, error) {
	c, _, err := change(ctx, f, "PutCalendar", rq, func() (schedule.Calendar, error) {
		if _, err := c.Compile(); err != nil {
			return c, wire.ScheduleError(err)
		}
		f.calendars[c.Name] = c
		return c, nil
	})
	return c, err
}

// Calendars implements api.Backend.
func (f *Fake) Calendars(ctx context.Context, _ api.Read) ([]schedule.Calendar, error) {
	if err := f.begin(ctx, "Calendars"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.allCalendars(), nil
}

// DeleteCalendar implements api.Backend.
func (f *Fake) DeleteCalendar(ctx context.Context, name string, rq api.Request) error {
	_, _, err := change(ctx, f, "DeleteCalendar", rq, func() (bool, error) {
		if _, ok := f.calendars[name]; !ok {
			return false, job.Errorf(job.CodeNotFound, "", "there is no calendar %q", name)
		}
		delete(f.calendars, name)
		return true, nil
	})
	return err
}

// Release implements api.Backend.
func (f *Fake) Release(ctx context.Context, rq api.Request) (wire.ReleaseResult, error) {
	held := false
	r, _, err := change(ctx, f, "Release", rq, func() (wire.ReleaseResult, error) {
		held, f.Hold = f.Hold != nil, nil
		return wire.ReleaseResult{Released: held, At: job.At(f.Now())}, nil
	})
	return r, err
}

// Backup implements api.Backend.
func (f *Fake) Backup(ctx context.Context) (wire.BackupInfo, io.ReadCloser, error) {
	if err := f.begin(ctx, "Backup"); err != nil {
		return wire.BackupInfo{}, nil, err
	}
	info := wire.BackupInfo{ClusterID: "c1", Index: 7, Age: 1500 * time.Millisecond, Size: int64(len(f.BackupData))}
	return info, io.NopCloser(bytes.NewReader(f.BackupData)), nil
}

// ClockReset implements api.Backend.
func (f *Fake) ClockReset(ctx context.Context, rq api.Request) error {
	_, _, err := change(ctx, f, "ClockReset", rq, func() (bool, error) { return true, nil })
	return err
}

// Status implements api.Backend.
func (f *Fake) Status(ctx context.Context, _ api.Read) (wire.Status, error) {
	if err := f.begin(ctx, "Status"); err != nil {
		return wire.Status{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := job.At(f.Now())
	s := wire.Status{
		Node: "n1", Version: "test", ClusterID: "c1", Level: 2, State: "leader", Leader: "n1", Term: 2, Ready: f.ReadyErr == nil, Now: now, StartedAt: now - 90_000,
		Members: []wire.Member{{ID: "n1", Address: "127.0.0.1:7400", Suffrage: "voter", Leader: true}},
		Workers: []wire.WorkerStatus{{Worker: "n1", Types: []job.Type{job.TypeHTTP, job.TypeShell}, Tags: map[string]string{"zone": "a"}, Slots: 256, Busy: len(f.open), LastHeard: now - 1000}},
		Hold:    f.Hold, Troubles: f.Troubles,
		Jobs: uint64(len(f.jobs)), OpenRuns: len(f.open), DeadLetters: uint64(len(f.dead)),
		History: wire.HistoryStatus{First: 1, Last: uint64(len(f.history))},
		Raft:    map[string]string{"last_log_index": "17"},
	}
	if f.ReadyErr != nil {
		s.NotReady = f.ReadyErr.Error()
	}
	for _, j := range f.jobs {
		if j.NextRunAt != 0 && (s.NextDueAt == 0 || j.NextRunAt < s.NextDueAt) {
			s.NextDueAt = j.NextRunAt
		}
	}
	return s, nil
}

// Live implements api.Backend.
func (f *Fake) Live() error { return f.LiveErr }

// Ready implements api.Backend.
func (f *Fake) Ready() error { return f.ReadyErr }
