package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
)

const (
	callTries = 6
	callTime  = 25 * time.Second
)

// ask makes a call, as a program does that wants it done: with one key, through one node after the other, until the
// answer is certain.
func (c *cluster) ask(pc plannedCall, call checker.Call,
	do func(context.Context, *client.Client, *checker.Call) error) error {
	if call.Request == "" {
		c.mu.Lock()
		c.keys++
		call.Request = fmt.Sprintf("%s-%d-%x", pc.kind, c.keys, pc.x)
		c.mu.Unlock()
	}
	rng := rand.New(rand.NewPCG(pc.x, 4))
	call.Invoke = c.t.instant()
	unknown := false
	var err error
	for try := range callTries {
		if try > 0 {
			time.Sleep(between(rng, 50*time.Millisecond, 4*time.Second))
		}
		ctx, cancel := context.WithTimeout(client.WithIdempotencyKey(context.Background(), call.Request), callTime)
		err = do(ctx, c.clients[(pc.node+try)%len(c.clients)], &call)
		cancel()
		switch code := job.CodeOf(err); {
		case err == nil:
			call.Outcome = checker.OK
		case code == job.CodeNoLeader, code == job.CodeNotReady, code == job.CodeUnavailable:
			continue
		case code == job.CodeOutcomeUnknown, code == job.CodeInternal:
			unknown = true
			continue
		default:
			call.Outcome = checker.Refused
		}
		break
	}
	if call.Outcome == checker.Unknown && !unknown {
		call.Outcome = checker.Refused // each answer promised that nothing was changed
	}
	if unknown && call.Outcome == checker.Refused {
		call.Outcome = checker.Unknown
	}
	call.Return = c.t.instant()
	if call.Outcome == checker.OK {
		c.mu.Lock()
		c.asked = append(c.asked, asked{pc, call, do})
		c.mu.Unlock()
	}
	c.rec.mu.Lock()
	c.rec.calls = append(c.rec.calls, call)
	c.rec.mu.Unlock()
	c.event("call: %s %s %s at %s: %s %v", call.Kind, call.Name, call.Job, call.Invoke, call.Outcome, err)
	if job.CodeOf(err) == job.CodeInternal && err != nil {
		c.event("odd: %v", err)
	}
	return err
}

// current is the job that a planned call is about, if it exists as far as its caller knows.
func (c *cluster) current(i int) (name string, id job.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name = c.names[i]
	return name, c.ids[name]
}

func (c *cluster) do(pc plannedCall) {
	if pc.kind == "queue" {
		rng := rand.New(rand.NewPCG(pc.x, 6))
		limit, paused := pick(rng, 0, 1, 1, 2, 3), rng.IntN(3) == 0
		c.putQueue(pc, pick(rng, c.p.spaces()...), queueNames[pc.job], limit, paused)
		return
	}
	switch pc.kind {
	case "crowd":
		c.crowd(pc)
		return
	case "limit":
		c.putQueue(pc, job.DefaultNamespace, queueNames[0], pc.job, false)
		return
	case "repeat":
		c.repeat(pc)
		return
	case "calendar":
		c.changeCalendar(pc)
		return
	case "rebirth":
		c.rebirth(pc)
		return
	case "grow":
		c.grow(pc)
		return
	case "make":
		c.makeJob(pc)
		return
	case "list":
		c.listJobs(pc)
		return
	}
	name, id := c.current(pc.job)
	ref := id.String()
	call := checker.Call{Job: id}
	rng := rand.New(rand.NewPCG(pc.x, 5))
	switch pc.kind {
	case "create":
		if name == "" {
			c.create(pc, c.p.jobs[pc.job].spec)
		}
		return
	case "recreate":
		spec := c.p.jobs[pc.job].spec
		spec.Name += fmt.Sprintf("-%x", pc.x%0xffff)
		c.create(pc, spec)
		return
	}
	if id == 0 {
		return
	}
	switch pc.kind {
	case "update", "redefine", "rename", "rerule", "move", "strand", "bound":
		c.update(pc, rng, ref, call)
	case "pause":
		call.Kind = checker.CallPause
		c.ask(pc, call, func(ctx context.Context, cl *client.Client, _ *checker.Call) error {
			_, err := cl.PauseJob(ctx, ref)
			return err
		})
	case "resume":
		call.Kind = checker.CallResume
		c.ask(pc, call, func(ctx context.Context, cl *client.Client, _ *checker.Call) error {
			_, err := cl.ResumeJob(ctx, ref)
			return err
		})
	case "run":
		call.Kind = checker.CallRun
		c.ask(pc, call, func(ctx context.Context, cl *client.Client, call *checker.Call) error {
			r, err := cl.RunJob(ctx, ref)
			if err == nil {
				call.Run, err = job.ParseRunKey(r.RunID)
			}
			return err
		})
	case "bare-run":
		c.bareRun(pc, id)
	case "read":
		c.readJob(pc, id)
	case "backfill":
		call.Kind = checker.CallBackfill
		now := c.t.now()
		from := now.Add(-between(rng, time.Minute, c.o.length/2))
		call.From, call.To, call.Force = job.At(from), job.At(from.Add(between(rng, time.Second, c.o.length/4))),
			rng.IntN(4) == 0
		c.ask(pc, call, func(ctx context.Context, cl *client.Client, call *checker.Call) error {
			r, err := cl.Backfill(ctx, ref,
				client.BackfillRequest{From: call.From, To: call.To, Max: 20, Force: call.Force})
			call.Times, call.Skipped = r.Times, r.Skipped
			return err
		})
	case "cancel":
		call.Kind = checker.CallCancel
		c.ask(pc, call, func(ctx context.Context, cl *client.Client, call *checker.Call) (err error) {
			call.Count, err = cl.CancelJob(ctx, ref)
			return err
		})
	case "cancel-run":
		c.cancelRun(pc, ref, call)
	case "redrive", "purge":
		c.dead(pc, rng, ref, call)
	case "delete":
		call.Kind = checker.CallDelete
		if c.ask(pc, call, func(ctx context.Context, cl *client.Client,
			_ *checker.Call) error {
			return cl.DeleteJob(ctx, ref, 0)
		}) == nil {
			c.mu.Lock()
			if c.names[pc.job] == name {
				delete(c.names, pc.job)
			}
			c.mu.Unlock()
		}
	}
}

func (c *cluster) create(pc plannedCall, spec job.Spec) {
	m, name := c.p.jobs[pc.job].m, checker.In(spec.Namespace, spec.Name)
	c.rec.mu.Lock()
	c.rec.behaviours[name] = &m
	c.rec.mu.Unlock()
	call := checker.Call{Kind: checker.CallCreate, Name: name, Spec: &spec}
	c.ask(pc, call, func(ctx context.Context, cl *client.Client, call *checker.Call) error {
		j, err := cl.CreateJob(ctx, spec)
		if err == nil {
			call.Job, call.Answer = j.ID, &j
			c.mu.Lock()
			c.ids[name], c.names[pc.job] = j.ID, name
			c.mu.Unlock()
		}
		return err
	})
}

// update changes a few fields: of the schedule, of the policies, or nothing.
func (c *cluster) update(pc plannedCall, rng *rand.Rand, ref string, call checker.Call) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	j, err := c.clients[pc.node].GetJob(ctx, ref)
	cancel()
	if err != nil {
		return
	}
	spec := j.Spec
	other := c.p.jobs[rng.IntN(len(c.p.jobs))].spec
	change := rng.IntN(6)
	switch pc.kind {
	case "redefine": // only what an attempt is made of
		change = -1
		spec.Timeout = job.Duration(pick(rng, 4*time.Second, 5*time.Minute))
	case "rerule", "move", "strand": // only what is done about attempts that fail, or who may run it
		change = -1
	case "bound": // lower than what is due, and open again
		change = -1
		switch rng.IntN(5) {
		case 0:
			spec.MaxRuns = max(1, int(j.RunsStarted)+rng.IntN(3))
		case 1:
			spec.EndAt = job.At(c.t.now().Add(-between(rng, 0, 12*time.Second)))
		default:
			spec.MaxRuns, spec.EndAt = 0, 0
		}
	case "rename": // to what others want, too
		change = -1
		spec.Name = pick(rng, "alias-0", "alias-1", fmt.Sprintf("own-%d", pc.job))
	}
	switch change {
	case 0, 1:
		spec.Schedule, spec.Timezone = other.Schedule, other.Timezone
	case 2:
		spec.Overlap, spec.Concurrency = other.Overlap, other.Concurrency
	case 3:
		spec.Missed, spec.Timeout = other.Missed, other.Timeout
	case 4:
		spec.StartAt, spec.EndAt, spec.MaxRuns = other.StartAt, other.EndAt, other.MaxRuns
	case 5:
		spec.Calendars, spec.Priority, spec.Deadline = other.Calendars, other.Priority, other.Deadline
	}
	switch pc.kind {
	case "rerule":
		rerule(rng, &spec)
	case "move", "strand":
		c.p.move(rng, &spec)
		if pc.kind == "strand" {
			spec.Workers = map[string]string{"pool": "none"}
		}
	case "bound":
	default:
		c.p.redefine(rand.New(rand.NewPCG(pc.x, 8)), &spec)
	}
	if pc.kind == "update" && spec.Delivery != job.DeliverAtMostOnce && pc.x%4 == 0 {
		retryOtherwise(rand.New(rand.NewPCG(pc.x, 9)), &spec)
	}
	call.Kind, call.Name = checker.CallUpdate, checker.In(spec.Namespace, spec.Name)
	if rng.IntN(2) == 0 {
		call.Version = j.Version
	}
	call.Spec = &spec
	c.ask(pc, call, func(ctx context.Context, cl *client.Client, call *checker.Call) error {
		j, err := cl.UpdateJob(ctx, ref, spec, call.Version)
		if err == nil {
			call.Answer = &j
		}
		return err
	})
}

func (c *cluster) cancelRun(pc plannedCall, ref string, call checker.Call) {
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	page, err := c.clients[pc.node].JobRuns(ctx, ref,
		client.RunQuery{Limit: 10,
			Statuses: []job.RunStatus{job.RunPending, job.RunWaiting, job.RunClaimed, job.RunRunning, job.RunRetrying}})
	if err != nil || len(page.Runs) == 0 {
		return
	}
	id := page.Runs[int(pc.x%uint64(len(page.Runs)))].RunID
	call.Kind = checker.CallCancelRun
	if call.Run, err = job.ParseRunKey(id); err != nil {
		return
	}
	c.ask(pc, call, func(ctx context.Context, cl *client.Client, _ *checker.Call) error {
		_, err := cl.CancelRun(ctx, id)
		return err
	})
}

// dead redrives or purges dead letters: those of the job, or one of them.
func (c *cluster) dead(pc plannedCall, rng *rand.Rand, ref string, call checker.Call) {
	q := client.DeadQuery{Job: ref}
	if rng.IntN(2) == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		page, err := c.clients[pc.node].DeadLetters(ctx, client.DeadQuery{Job: ref, Limit: 10})
		cancel()
		if err != nil || len(page.Dead) == 0 {
			return
		}
		q = client.DeadQuery{IDs: []uint64{page.Dead[rng.IntN(len(page.Dead))].Seq}}
		call.Dead = q.IDs
	}
	call.Kind = checker.CallRedrive
	if pc.kind == "purge" {
		call.Kind = checker.CallPurge
	}
	c.ask(pc, call, func(ctx context.Context, cl *client.Client, call *checker.Call) (err error) {
		if pc.kind == "purge" {
			r, err := cl.PurgeDead(ctx, q)
			call.Count = r.Count
			return err
		}
		r, err := cl.Redrive(ctx, q)
		call.Count = r.Count
		return err
	})
}

func (c *cluster) putQueue(pc plannedCall, space, name string, limit int, paused bool) error {
	call := checker.Call{Kind: checker.CallQueue, Name: checker.In(space, name), Limit: limit, Paused: paused}
	return c.ask(pc, call, func(ctx context.Context, cl *client.Client, _ *checker.Call) error {
		_, err := cl.In(space).PutQueue(ctx, name, client.QueueChange{Concurrency: &limit, Paused: &paused}, 0)
		return err
	})
}

// openQueues lets go on what waits in them.
func (c *cluster) openQueues() bool {
	for _, space := range c.p.spaces() {
		for _, name := range queueNames {
			for i := range 100 {
				if c.putQueue(plannedCall{kind: "queue", node: i, x: uint64(i)}, space, name, 0, false) == nil {
					break
				}
				if i == 99 {
					c.problem("the queue %s cannot be opened", checker.In(space, name))
					return false
				}
				time.Sleep(5 * time.Second)
			}
		}
	}
	return true
}

// calendars are made before the jobs that name them.
func (c *cluster) calendars() {
	for i, cal := range c.p.calendars {
		c.putCalendar(plannedCall{kind: "calendar", x: uint64(i)}, cal)
	}
}
