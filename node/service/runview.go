package service

import (
	"context"
	"slices"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

func (b *Service) GetRun(ctx context.Context, runID string, rd api.Read) (wire.RunDetail, error) {
	k, err := job.ParseRunKey(runID)
	if err != nil {
		return wire.RunDetail{}, view.NoRun(runID)
	}
	if err := b.fresh(ctx, rd); err != nil {
		return wire.RunDetail{}, err
	}
	return b.runDetail(ctx, k, rd.Space)
}

// showRun is a run after a change.
func (b *Service) showRun(k job.RunKey, sc api.Space) (job.Run, error) {
	d, err := b.runDetail(context.Background(), k, sc)
	return d.Run, err
}

// maxAttempts is how many attempts of a run are shown.
const maxAttempts = 100

// runDetail finds a run: the open row, and its attempts in the job's chain, which is walked until records are older
// than the run. Of a deleted job there is no chain; the newest part of the whole log is looked through instead.
func (b *Service) runDetail(ctx context.Context, k job.RunKey, sc api.Space) (wire.RunDetail, error) {
	d := wire.RunDetail{Attempts: []job.Run{}}
	found := false
	cur, chained := uint64(0), true
	var around store.Interval // an interval of occurrences that did not run, with this one's time in it
	covers := func(i store.Interval) bool {
		return !i.Empty() && k.Origin == job.OriginSchedule && i.First <= k.At && k.At <= i.Last
	}
	for looked := 0; looked < view.MaxRows; looked += view.Rows {
		if err := ctx.Err(); err != nil {
			return d, err
		}
		done := true
		err := b.view(func(r *view.Reader) error {
			if looked == 0 {
				if err := r.RunIn(k, sc); err != nil {
					return err
				}
				row, ok, err := r.Run(k)
				if err != nil {
					return err
				}
				if found = ok; ok {
					if d.Run, err = r.OpenRun(k, &row); err != nil {
						return err
					}
				} else if h, err := r.Held(k.Job); err == nil && k.Origin == job.OriginSchedule {
					if due, ok := r.DueRun(&h); ok && due.RunID == k.String() {
						d.Run, found = due, true
					}
				}
				var st store.State
				if st, _, chained, err = r.State(k.Job); err != nil {
					return err
				}
				if covers(st.NotRun) {
					around = st.NotRun
				}
			}
			var inner error
			n := 0
			each := func(seq uint64, rec store.Record) bool {
				if n == view.Rows {
					done = false
					return false
				}
				n++
				cur = seq
				if rec.Recorded+view.ChainSlack < k.At {
					return false
				}
				if rec.Job != k.Job || !sc.Finds(rec.Namespace) {
					return true
				}
				if covers(rec.Interval) && around.Empty() {
					around = rec.Interval
				}
				if rec.Interval.Empty() && rec.Run() == k && len(d.Attempts) < maxAttempts {
					run, err := r.RecordedRun(seq, &rec)
					if err != nil {
						inner = err
						return false
					}
					d.Attempts = append(d.Attempts, run)
				}
				return true
			}
			var err error
			if chained {
				var from uint64
				if from, err = r.ChainFrom(k.Job, cur); err == nil {
					err = r.EachOfJob(from, each)
				}
			} else {
				err = r.EachRecordBack(cur, each)
			}
			if err == nil {
				err = inner
			}
			return err
		})
		if err != nil {
			return d, err
		}
		if done {
			break
		}
	}
	if !found {
		if len(d.Attempts) == 0 && !around.Empty() {
			return d, job.Errorf(job.CodeNotFound, "GET /api/v1/jobs/"+k.Job.String()+"/runs shows what did not run",
				"there is no run %q: nothing ran from %s to %s (%s: %s)", k.String(), job.Instant(around.First),
				job.Instant(around.Last), around.Status, around.Reason)
		}
		if len(d.Attempts) == 0 {
			return d, view.NoRun(k.String())
		}
		d.Run = d.Attempts[0]
	}
	d.Attempts = sameRun(d.Attempts, d.Run.Key)
	return d, nil
}

// sameRun are the attempts with a key. A forced backfill repeats an occurrence under the same id; what tells the two
// runs apart is the key.
func sameRun(attempts []job.Run, key string) []job.Run {
	return slices.DeleteFunc(attempts, func(r job.Run) bool { return r.Key != key })
}
