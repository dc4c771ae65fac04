package service

import (
	"cmp"
	"context"
	"time"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

func (b *Service) CancelRun(ctx context.Context, runID string, rq api.Request) (job.Run, error) {
	k, err := job.ParseRunKey(runID)
	if err != nil {
		return job.Run{}, view.NoRun(runID)
	}
	if _, ok, err := b.replay(ctx, rq); err != nil || ok {
		if err != nil {
			return job.Run{}, err
		}
		return b.showRun(k, rq.Space)
	}
	if err := b.verify(ctx); err != nil {
		return job.Run{}, err
	}
	if err := b.view(func(r *view.Reader) error { return r.RunIn(k, rq.Space) }); err != nil {
		return job.Run{}, err
	}
	o, err := b.change(ctx, rq, func(a attempt) (fsm.Command, error) {
		return &fsm.Cancel{Head: a.head, Request: a.req, Job: uint64(k.Job), At: k.At, Origin: byte(k.Origin)}, nil
	})
	if err != nil {
		return job.Run{}, err
	}
	if o.Code == fsm.CodeNotFound {
		run, err := b.showRun(k, rq.Space) // it may have ended already, which is another thing than never having been
		if err != nil {
			return job.Run{}, err
		}
		return job.Run{}, job.Errorf(job.CodeState, "", "the run has ended already: %s", run.Status)
	}
	if err := outcomeError(o, runID); err != nil {
		return job.Run{}, err
	}
	return b.showRun(k, rq.Space)
}

func (b *Service) ExportHistory(ctx context.Context, after uint64, limit int, rd api.Read) ([]job.Run, error) {
	done, err := b.Turn(ctx, rd)
	if err != nil {
		return nil, err
	}
	defer done()
	var out []job.Run
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		end := true
		err := b.view(func(r *view.Reader) error {
			var inner error
			n := 0
			err := r.EachRecord(after, func(seq uint64, rec store.Record) bool {
				if n == view.Rows || len(out) == limit {
					end = false
					return false
				}
				n++
				after = seq
				if !rd.Space.Lists(rec.Namespace) {
					return true
				}
				run, err := r.RecordedRun(seq, &rec)
				if err != nil {
					inner = err
					return false
				}
				out = append(out, run)
				return true
			})
			return cmp.Or(err, inner)
		})
		if err != nil || end || len(out) == limit {
			return out, err
		}
	}
}

// outputWait is how long a request for the output of a running attempt waits for more.
const outputWait = 5 * time.Second

// RunOutput implements api.Backend. The output of a running attempt comes from its worker, by way of the leader's
// memory; that of a finished one is the tail in the history.
func (b *Service) RunOutput(ctx context.Context, runID string, fence uint64, after int64, rd api.Read) (job.RunOutput,
	error) {
	k, err := job.ParseRunKey(runID)
	if err != nil {
		return job.RunOutput{}, view.NoRun(runID)
	}
	if err := b.verify(ctx); err != nil {
		return job.RunOutput{}, err
	}
	wait, stop := context.WithTimeout(ctx, outputWait)
	defer stop()
	for {
		var row store.Row
		open := false
		if err := b.view(func(r *view.Reader) (err error) {
			if row, open, err = r.Run(k); err == nil && open && !rd.Space.Finds(r.Namespace(row.Class)) {
				err = view.NoRun(runID)
			}
			return err
		}); err != nil {
			return job.RunOutput{}, err
		}
		out := job.RunOutput{RunID: runID, Status: row.Status, Attempt: int(row.Attempt), Fence: fence, Offset: after,
			Next: after}
		if !open {
			return b.finishedOutput(ctx, k, rd.Space)
		}
		if row.Status == job.RunClaimed || row.Status == job.RunCanceling {
			if fence != row.Fence {
				fence, after = row.Fence, 0
			}
			e := b.o.Tracker.Epoch()
			if e == nil {
				return out, forward.ErrNoLeader()
			}
			part, found, err := e.Scheduler.Tail(wait, row.Worker, row.Incarnation, row.Fence, after)
			if err != nil {
				return out, err
			}
			if found && (len(part.Data) > 0 || wait.Err() != nil) {
				out.Fence, out.Offset, out.Next = fence, part.Offset, part.Offset+int64(len(part.Data))
				out.Text = string(part.Data)
				if cut := partial(part.Data); cut > 0 && cut < len(part.Data) {
					out.Text = string(part.Data[:len(part.Data)-cut])
					out.Next -= int64(cut)
				}
				if started, ok := e.Scheduler.Started(row.Worker, row.Incarnation, row.Fence); ok && started != 0 &&
					out.Status == job.RunClaimed {
					out.Status = job.RunRunning
				}
				return out, nil
			}
		}
		select { // its next attempt, or its end, is on its way
		case <-time.After(50 * time.Millisecond):
		case <-wait.Done():
			return out, nil
		}
	}
}

// partial is how many bytes at the end are the beginning of a character.
func partial(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return i
			}
			return 0
		}
	}
	return 0
}

// finishedOutput is the tail of the last attempt of a run that is over. What it wrote at the very end may be in no part
// that a client who watched it got, so the tail is given whole; where it begins in all of the output is not known.
func (b *Service) finishedOutput(ctx context.Context, k job.RunKey, sc api.Space) (job.RunOutput, error) {
	d, err := b.runDetail(ctx, k, sc)
	if err != nil {
		return job.RunOutput{}, err
	}
	run := d.Run
	if run.Output == "" && len(d.Attempts) > 0 {
		run.Output = d.Attempts[0].Output
	}
	return job.RunOutput{RunID: k.String(), Status: run.Status, Attempt: run.Attempt, Fence: run.Fence,
		Next: int64(len(run.Output)), Text: run.Output, Done: true}, nil
}
