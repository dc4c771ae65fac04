package insight

import (
	"context"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	statsRuns    = 500   // how many of the last runs of a job count
	statsRecords = 5_000 // how many records are looked at for them
	statsLast    = 20    // how many of them are named
)

// JobStats implements api.Backend.
func (b *Service) JobStats(ctx context.Context, ref string, rd api.Read) (wire.JobStats, error) {
	done, err := b.Turn(ctx, rd)
	if err != nil {
		return wire.JobStats{}, err
	}
	defer done()
	return b.jobStats(ctx, ref, rd)
}

// jobStats is for who has a turn.
func (b *Service) jobStats(ctx context.Context, ref string, rd api.Read) (wire.JobStats, error) {
	out := wire.JobStats{Last: []wire.LastRun{}}
	var h view.Held
	err := b.view(func(r *view.Reader) error {
		id, err := r.Find(ref, rd.Space)
		if err == nil {
			h, err = r.Held(id)
		}
		return err
	})
	if err != nil {
		return out, err
	}
	out.JobID = h.ID
	seen, redriven := map[job.RunKey]bool{}, map[job.RunKey]bool{}
	var durations, lags []int64
	each := func(rec *store.Record) {
		k := rec.Run()
		if seen[k] && rec.Interval.Empty() && rec.Status == job.RunDead && !redriven[k] {
			redriven[k] = true
			out.Redriven++
		}
		if !rec.Interval.Empty() || rec.Status == job.RunFailed || seen[k] {
			return // the attempts before the last one are of the same run, and an open one has not ended
		}
		seen[k] = true
		out.Runs++
		switch rec.Status {
		case job.RunSucceeded:
			out.Succeeded++
		case job.RunDead, job.RunLost, job.RunExpired:
			out.Failed++
		}
		if d := took(rec); d != nil {
			durations = append(durations, *d)
		}
		run := job.Run{StartedAt: job.Instant(rec.StartedAt), ClaimedAt: job.Instant(rec.ClaimedAt),
			ReadyAt: job.Instant(rec.Ready)}
		if ms := view.Lag(&run, &h.Def); ms != nil {
			lags = append(lags, *ms)
		}
		at := job.Instant(rec.At)
		if out.From == 0 || at < out.From {
			out.From = at
		}
		out.To = max(out.To, at)
		if len(out.Last) < statsLast {
			out.Last = append(out.Last, wire.LastRun{RunID: k.String(), ScheduledAt: at, Status: rec.Status})
		}
	}
	next := h.State.HistHead
	for looked := 0; next != 0 && looked < statsRecords && out.Runs < statsRuns; {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		found := 0
		err := b.view(func(r *view.Reader) error {
			return r.EachOfJob(next, func(_ uint64, rec store.Record) bool {
				if found == view.Rows || out.Runs == statsRuns {
					return false
				}
				found++
				next = rec.Prev
				each(&rec)
				return true
			})
		})
		if err != nil {
			return out, err
		}
		if looked += found; found == 0 {
			break // trimmed
		}
	}
	out.DurationMS, out.LagMS = QuantilesOf(durations), QuantilesOf(lags)
	if n := out.Succeeded + out.Failed; n > 0 {
		rate := float64(out.Succeeded) / float64(n)
		out.SuccessRate = &rate
	}
	return out, nil
}
