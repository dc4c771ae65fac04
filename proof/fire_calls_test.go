package proof

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// wild are jobs with every policy there is, and users who change, pause, run, cancel, backfill, redrive, purge and
// delete them meanwhile.
type wild struct {
	*load
	seed uint64

	mu    sync.Mutex
	slots []wildJob
	made  int
}

// wildJob is the job of the moment in one place; deleted ones are replaced under another name.
type wildJob struct {
	name string
	id   job.ID
}

// newWild makes n jobs and says how the target treats them.
func newWild(l *load, seed uint64, n int) *wild {
	w := &wild{load: l, seed: seed, slots: make([]wildJob, n)}
	l.target.Behave(func(s harness.Seen) (time.Duration, int) {
		if strings.HasPrefix(s.Token, "wild-") {
			return w.answer(s)
		}
		return brisk(s)
	})
	rng := rand.New(rand.NewPCG(seed, 21))
	for i := range n {
		w.create(rng, i)
	}
	return w
}

// answer is the nature of a job's target: quick, slow, failing, hanging. It goes by the name, and by the attempt where
// it is a matter of luck.
func (w *wild) answer(s harness.Seen) (time.Duration, int) {
	h := fnv.New64a()
	fmt.Fprint(h, s.Token)
	nature := h.Sum64() % 8
	fmt.Fprint(h, s.Run, s.Attempt)
	luck := rand.New(rand.NewPCG(w.seed, h.Sum64()))
	short := time.Duration(luck.Int64N(int64(40 * time.Millisecond)))
	switch {
	case nature == 0 && luck.IntN(2) == 0:
		return short, http.StatusServiceUnavailable
	case nature == 1 && luck.IntN(5) == 0:
		return short, http.StatusGone // for good
	case nature == 2 && luck.IntN(3) == 0:
		return 10 * time.Second, http.StatusOK // runs into its timeout
	case nature == 3:
		return short + time.Duration(luck.Int64N(int64(1500*time.Millisecond))), http.StatusOK
	}
	return short, http.StatusOK
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// spec is a job with policies by the dice. Outages of a second and a half are long enough to be missed.
func (w *wild) spec(rng *rand.Rand, name string) job.Spec {
	s := w.load.spec(name, name, "", pick(rng, job.OverlapSkip, job.OverlapQueue, job.OverlapAllow, job.OverlapReplace))
	switch rng.IntN(7) {
	case 0:
		s.Schedule = job.ScheduleManual
	case 1:
		s.Schedule = time.Now().Add(time.Duration(rng.Int64N(int64(6 * time.Second)))).UTC().Format(time.RFC3339)
	case 2:
		s.Schedule = "*/2 * * * * *"
	default:
		s.Schedule = fmt.Sprintf("@every %ds", 1+rng.IntN(3))
	}
	if s.Overlap == job.OverlapAllow && rng.IntN(2) == 0 {
		s.Concurrency = 1 + rng.IntN(3)
	}
	s.Missed = job.Missed{Policy: pick(rng, job.MissedSkip, job.MissedRunOnce, job.MissedRunAll),
		Grace: job.Duration(pick(rng, 500*time.Millisecond, time.Second, time.Minute))}
	if rng.IntN(3) == 0 {
		s.Missed.Window = pick(rng, "1s", "2s", "5s")
	}
	if rng.IntN(2) == 0 {
		s.Missed.Max = 1 + rng.IntN(3)
	}
	retries := rng.IntN(4)
	if rng.IntN(5) == 0 {
		s.Delivery, retries = job.DeliverAtMostOnce, 0
	}
	s.Retry = job.Retry{MaxRetries: &retries,
		Backoff: pick(rng, job.BackoffImmediate, job.BackoffLinear, job.BackoffExponential),
		Base:    job.Duration(200 * time.Millisecond), Cap: job.Duration(time.Second)}
	s.Timeout = job.Duration(pick(rng, time.Second, 2*time.Second))
	if rng.IntN(5) == 0 {
		s.Deadline = job.Duration(pick(rng, time.Second, 3*time.Second))
	}
	if rng.IntN(6) == 0 {
		s.Jitter = job.Duration(500 * time.Millisecond)
	}
	// No max_runs: the due index knows one step later that they are used up, and an edit or a delete in between leaves a
	// record of an occurrence that would not have run. The checker says so.
	s.Priority = pick(rng, "critical", "high", "normal", "low")
	return s
}

// patience is how long a user goes on asking before he gives up and does not know.
const patience = 15 * time.Second

func (w *wild) request(call checker.Call, do func(context.Context, *client.Client, *checker.Call) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return w.ask(ctx, call, do)
}

func (w *wild) create(rng *rand.Rand, i int) {
	w.mu.Lock()
	w.made++
	name := fmt.Sprintf("wild-%d-%d", i, w.made)
	w.mu.Unlock()
	spec := w.spec(rng, name)
	err := w.request(checker.Call{Kind: checker.CallCreate, Name: name, Spec: &spec},
		func(ctx context.Context, c *client.Client, call *checker.Call) error {
			j, err := c.CreateJob(ctx, spec)
			if err == nil {
				call.Job, call.Answer = j.ID, &j
				w.mu.Lock()
				w.slots[i] = wildJob{name, j.ID}
				w.mu.Unlock()
			}
			return err
		})
	if err != nil && !passing(err) {
		w.t.Errorf("create %s: %v", name, err)
	}
}

func (w *wild) at(i int) wildJob {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.slots[i]
}

// users do one thing after the other until they are stopped.
func (w *wild) users(n int, pause time.Duration) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for u := range n {
		rng := rand.New(rand.NewPCG(w.seed, uint64(100+u)))
		wg.Go(func() {
			for !w.t.Failed() {
				select {
				case <-done:
					return
				case <-time.After(time.Duration(rng.Int64N(int64(2 * pause)))):
				}
				w.act(rng)
			}
		})
	}
	return func() {
		close(done)
		wg.Wait()
	}
}

// act is one thing that a user does.
func (w *wild) act(rng *rand.Rand) {
	i := rng.IntN(len(w.slots))
	j := w.at(i)
	if j.id == 0 {
		w.create(rng, i)
		return
	}
	ref := j.id.String()
	call := checker.Call{Job: j.id}
	simple := func(kind checker.CallKind, do func(context.Context, *client.Client, *checker.Call) error) error {
		call.Kind = kind
		return w.request(call, do)
	}
	switch rng.IntN(14) {
	case 0, 1, 2:
		w.update(rng, j)
	case 3:
		_ = simple(checker.CallPause, func(ctx context.Context, c *client.Client, _ *checker.Call) error {
			_, err := c.PauseJob(ctx, ref)
			return err
		})
	case 4, 5:
		_ = w.resume(j.id)
	case 6, 7:
		_ = simple(checker.CallRun, func(ctx context.Context, c *client.Client, call *checker.Call) error {
			r, err := c.RunJob(ctx, ref)
			if err == nil {
				call.Run, err = job.ParseRunKey(r.RunID)
			}
			return err
		})
	case 8:
		from := time.Now().Add(-time.Duration(rng.Int64N(int64(10 * time.Second))))
		call.From, call.To = job.At(from), job.At(from.Add(time.Duration(rng.Int64N(int64(5*time.Second)))))
		_ = simple(checker.CallBackfill, func(ctx context.Context, c *client.Client, call *checker.Call) error {
			r, err := c.Backfill(ctx, ref, client.BackfillRequest{From: call.From, To: call.To, Max: 20})
			call.Times, call.Skipped = r.Times, r.Skipped
			return err
		})
	case 9:
		_ = simple(checker.CallCancel, func(ctx context.Context, c *client.Client, call *checker.Call) (err error) {
			call.Count, err = c.CancelJob(ctx, ref)
			return err
		})
	case 10:
		w.cancelRun(rng, j)
	case 11:
		_ = simple(checker.CallRedrive, func(ctx context.Context, c *client.Client, call *checker.Call) (err error) {
			r, err := c.Redrive(ctx, client.DeadQuery{Job: ref})
			call.Count = r.Count
			return err
		})
	case 12:
		_ = simple(checker.CallPurge, func(ctx context.Context, c *client.Client, call *checker.Call) (err error) {
			r, err := c.PurgeDead(ctx, client.DeadQuery{Job: ref})
			call.Count = r.Count
			return err
		})
	case 13:
		if simple(checker.CallDelete,
			func(ctx context.Context, c *client.Client, _ *checker.Call) error { return c.DeleteJob(ctx, ref, 0) }) == nil {
			w.create(rng, i)
		}
	}
}

func (w *wild) resume(id job.ID) error {
	return w.request(checker.Call{Kind: checker.CallResume, Job: id},
		func(ctx context.Context, c *client.Client, _ *checker.Call) error {
			_, err := c.ResumeJob(ctx, id.String())
			return err
		})
}

// look is a job as it is now.
func (w *wild) look(id job.ID) (j job.Job, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for ctx.Err() == nil {
		if j, err = w.anyone().GetJob(ctx, id.String()); err == nil || !passing(err) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return j, err
}

// put replaces a definition, of the version that is named or of any.
func (w *wild) put(id job.ID, spec job.Spec, version uint64) error {
	call := checker.Call{Kind: checker.CallUpdate, Job: id, Name: spec.Name, Spec: &spec, Version: version}
	return w.request(call, func(ctx context.Context, c *client.Client, call *checker.Call) error {
		j, err := c.UpdateJob(ctx, id.String(), spec, version)
		if err == nil {
			call.Answer = &j
		}
		return err
	})
}

// update changes a few fields: of the schedule, of the policies.
func (w *wild) update(rng *rand.Rand, at wildJob) {
	j, err := w.look(at.id)
	if err != nil {
		return
	}
	spec, other := j.Spec, w.spec(rng, at.name)
	switch rng.IntN(4) {
	case 0:
		spec.Schedule, spec.Jitter = other.Schedule, other.Jitter
	case 1:
		spec.Overlap, spec.Concurrency = other.Overlap, other.Concurrency
	case 2:
		spec.Missed, spec.Timeout = other.Missed, other.Timeout
	case 3:
		spec.Priority, spec.Deadline = other.Priority, other.Deadline
	}
	_ = w.put(at.id, spec, pick(rng, 0, j.Version))
}

func (w *wild) cancelRun(rng *rand.Rand, at wildJob) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	page, err := w.anyone().JobRuns(ctx, at.id.String(),
		client.RunQuery{Limit: 10,
			Statuses: []job.RunStatus{job.RunPending, job.RunWaiting, job.RunClaimed, job.RunRunning, job.RunRetrying}})
	if err != nil || len(page.Runs) == 0 {
		return
	}
	id := page.Runs[rng.IntN(len(page.Runs))].RunID
	run, err := job.ParseRunKey(id)
	if err != nil {
		return
	}
	_ = w.request(checker.Call{Kind: checker.CallCancelRun, Job: at.id, Run: run},
		func(ctx context.Context, c *client.Client, _ *checker.Call) error {
			_, err := c.CancelRun(ctx, id)
			return err
		})
}

// end lets every job come to rest: it goes on if it was paused, and has no schedule from now on.
func (w *wild) end() {
	w.t.Helper()
	var wg sync.WaitGroup
	todo := make(chan wildJob)
	for range 4 {
		wg.Go(func() {
			for j := range todo {
				if err := w.rest(j.id); err != nil && job.CodeOf(err) != job.CodeNotFound { // deleted, and the answer was lost
					w.t.Errorf("end of %s: %v", j.name, err)
				}
			}
		})
	}
	for i := range w.slots {
		if j := w.at(i); j.id != 0 {
			todo <- j
		}
	}
	close(todo)
	wg.Wait()
}

func (w *wild) rest(id job.ID) error {
	if err := w.resume(id); err != nil {
		return err
	}
	for {
		j, err := w.look(id)
		if err != nil {
			return err
		}
		j.Spec.Schedule, j.Spec.Jitter = job.ScheduleManual, 0
		// Another version may have come, of an update whose answer was lost.
		if err = w.put(id, j.Spec, j.Version); job.CodeOf(err) != job.CodeVersionConflict &&
			job.CodeOf(err) != job.CodePrecondition {
			return err
		}
	}
}
