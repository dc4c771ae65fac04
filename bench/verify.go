package bench

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// account is what became of the runs of some jobs, from the two ends: the history and the target.
type account struct {
	res     *Result
	seen    []effect             // at the target
	records map[job.RunKey]int64 // finished records of a run
	lags    []float64
	cycle   float64 // sum over runs, ms
}

// settle reads the history above after and compares it with what the target saw. mine says which jobs count.
func settle(ctx context.Context, c *client.Client, res *Result, after uint64, mine map[job.ID]bool,
	seen []effect) (*account, error) {
	a := &account{res: res, seen: seen, records: make(map[job.RunKey]int64, len(mine))}
	err := c.ExportHistory(ctx, client.Seqs{after}, 0, func(r job.Run, _ json.RawMessage) error {
		if !mine[r.JobID] {
			return nil
		}
		if r.RunID == "" {
			res.problem("job %s: %d occurrences from %s did not run: %s", r.JobID, r.Count, r.First, r.Reason)
			return nil
		}
		key, err := job.ParseRunKey(r.RunID)
		if err != nil {
			return err
		}
		if r.Status != job.RunSucceeded {
			res.problem("run %s: %s, %s", r.RunID, r.Status, r.Error)
		}
		if a.records[key]++; a.records[key] > 1 {
			res.problem("run %s is in the history %d times", r.RunID, a.records[key])
		}
		if r.LagMS != nil {
			a.lags = append(a.lags, float64(*r.LagMS))
		}
		a.cycle += float64(r.FinishedAt - r.ClaimedAt)
		return nil
	})
	if err != nil {
		return nil, err
	}
	delivered := make(map[job.RunKey]int, len(seen))
	for _, e := range seen {
		if !mine[e.run.Job] {
			continue
		}
		if delivered[e.run]++; delivered[e.run] > 1 {
			res.Repeated++
			res.problem("run %s reached the target %d times", e.run, delivered[e.run])
		}
		if a.records[e.run] == 0 {
			res.problem("run %s reached the target and is not in the history", e.run)
		}
	}
	for key := range a.records {
		if delivered[key] == 0 {
			res.Lost++
			res.problem("run %s is in the history and never reached the target", key)
		}
	}
	return a, nil
}

// once expects exactly one run of every job, at one time.
func (a *account) once(ids []job.ID, at int64) {
	for _, id := range ids {
		if a.records[job.RunKey{Job: id, At: at, Origin: job.OriginSchedule}] == 0 {
			a.res.Lost++
			a.res.problem("job %s has no run", id)
		}
	}
	if len(a.records) > len(ids) {
		a.res.problem("%d runs of %d jobs", len(a.records), len(ids))
	}
}

// every expects runs of every job with a fixed distance, without a hole: the first not after from, the last within one
// step of to, but for what runs were late by and a second more.
func (a *account) every(ids []job.ID, step, from, to int64) {
	times := make(map[job.ID][]int64, len(ids))
	for key := range a.records {
		times[key.Job] = append(times[key.Job], key.At)
	}
	late := int64(1000)
	if len(a.lags) > 0 {
		late += int64(slices.Max(a.lags))
	}
	for _, id := range ids {
		at := times[id]
		if len(at) == 0 {
			a.res.Lost++
			a.res.problem("job %s never ran", id)
			continue
		}
		slices.Sort(at)
		first, last := at[0], at[len(at)-1]
		if first > from {
			a.res.Lost += int((first-from-1)/step) + 1
			a.res.problem("job %s ran %d ms after it should have begun for the first time", id, first-from)
		}
		if hole := to - late - last; hole > step {
			a.res.Lost += int(hole / step)
			a.res.problem("job %s ran %d ms before the end for the last time", id, to-last)
		}
		right := int64(0) // those on the steps
		for i, t := range at {
			if (t-first)%step == 0 && (i == 0 || t != at[i-1]) {
				right++
			}
		}
		if want := (last-first)/step + 1; right != want || int64(len(at)) != right {
			a.res.Lost += int(max(0, want-right))
			a.res.problem("job %s ran %d times where it should have run %d times, %d of them when it should not",
				id, len(at), want, int64(len(at))-right)
		}
	}
}

// figures puts what the history says about time into the result.
func (a *account) figures() {
	a.res.Lag = spread(a.lags)
	if n := len(a.records); n > 0 {
		a.res.CycleMS = a.cycle / float64(n)
		a.res.InFlight = a.res.Rate * a.res.CycleMS / 1000
	}
}

func set(ids []job.ID) map[job.ID]bool {
	m := make(map[job.ID]bool, len(ids))
	for _, id := range ids {
		m[id] = true
	}
	return m
}
