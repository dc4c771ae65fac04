package service

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

// outputWait is how long a request for the output of a running attempt waits for more.
const outputWait = 5 * time.Second

// RunOutput implements api.Backend. The output of a running attempt comes from its worker, by way of the leader's
// memory; that of a finished one is the tail in the history.
func (b *Service) RunOutput(ctx context.Context, runID string, fence uint64, after int64) (job.RunOutput, error) {
	k, err := job.ParseRunKey(runID)
	if err != nil {
		return job.RunOutput{}, noRun(runID)
	}
	if err := b.verify(ctx); err != nil {
		return job.RunOutput{}, err
	}
	wait, stop := context.WithTimeout(ctx, outputWait)
	defer stop()
	for {
		var row store.Row
		open := false
		if err := b.view(func(r *reader) (err error) { row, open, err = r.Run(k); return err }); err != nil {
			return job.RunOutput{}, err
		}
		out := job.RunOutput{RunID: runID, Status: row.Status, Attempt: int(row.Attempt), Fence: fence, Offset: after,
			Next: after}
		if !open {
			return b.finishedOutput(ctx, k)
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
func (b *Service) finishedOutput(ctx context.Context, k job.RunKey) (job.RunOutput, error) {
	d, err := b.runDetail(ctx, k)
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
