package sim

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
	"github.com/carillon-scheduler/carillon/schedule"
)

// asked is a call that was answered, to be repeated.
type asked struct {
	pc   plannedCall
	call checker.Call
	do   func(context.Context, *client.Client, *checker.Call) error
}

// more gives plans what they have besides: names that come again, requests that are repeated, calendars and members
// that change, a history that does not keep everything, jobs that go by themselves. The dice are its own, so that the
// rest of a plan is what it was.
func (p *plan) more(rng *rand.Rand) {
	call := func(n int, kind string, jobs int) {
		p.ask(rng, n, kind, max(jobs, 1), p.o.length/10, p.o.length)
	}
	call(rng.IntN(4), "rebirth", len(p.jobs))
	call(2+rng.IntN(6), "repeat", 0)
	if chance(rng, 0.4) {
		call(1+rng.IntN(4), "calendar", len(p.calendars))
	}
	if chance(rng, 0.4) {
		p.o.historyAge = between(rng, p.o.length/20, p.o.length/2).Round(time.Second)
		p.o.historyCount = uint64(20 + rng.IntN(200))
	}
	if chance(rng, 0.4) {
		for i := range p.jobs {
			if chance(rng, 0.5) {
				p.jobs[i].spec.Retention = job.Duration(between(rng, p.o.length/50, p.o.length/3).Round(time.Second))
			}
		}
	}
	if chance(rng, 0.4) {
		for i := range p.jobs {
			if s := &p.jobs[i].spec; chance(rng, 0.7) {
				s.Notify, s.Deadline = &job.Notify{Webhook: hooksURL}, 0
			}
		}
	}
	if p.o.profile == "storm" && chance(rng, 0.4) {
		for range 1 + rng.IntN(3) {
			p.faults = append(p.faults,
				plannedFault{at: between(rng, p.o.length/20, p.o.length),
					kind: pick(rng, "freeze", "freeze-leader", "freeze-leader"), a: rng.IntN(p.o.nodes),
					lasts: 300*time.Millisecond +
						time.Duration(float64(60*time.Second)*rng.Float64()*rng.Float64()*rng.Float64()),
					x: rng.Uint64()})
		}
	}
	if p.o.profile == "storm" && chance(rng, 0.35) {
		for range 1 + rng.IntN(2) {
			p.faults = append(p.faults,
				plannedFault{at: between(rng, p.o.length/20, p.o.length*3/4),
					kind: pick(rng, "replace", "replace", "demote"), a: rng.IntN(p.o.nodes),
					b: rng.IntN(p.o.nodes), lasts: between(rng, time.Second, 30*time.Second), x: rng.Uint64()})
		}
	}
}

// repeat asks for something again that was answered, with the same key and through any node.
func (c *cluster) repeat(pc plannedCall) {
	c.mu.Lock()
	n := len(c.asked)
	var it asked
	if n > 0 {
		it = c.asked[int(pc.x%uint64(n))]
	}
	c.mu.Unlock()
	if n == 0 {
		return
	}
	it.pc.node, it.pc.x = pc.node, pc.x
	call := it.call
	call.Outcome, call.Answer, call.Run, call.Times, call.Skipped, call.Count = checker.Unknown, nil, job.RunKey{}, nil,
		nil, 0
	if call.Kind == checker.CallCancelRun {
		call.Run = it.call.Run
	}
	if call.Kind == checker.CallCreate {
		call.Job = 0
	}
	c.ask(it.pc, call, it.do)
}

// rebirth deletes a job and creates another one of the same name. What was of the old one stays its own.
func (c *cluster) rebirth(pc plannedCall) {
	name, id := c.current(pc.job)
	if id == 0 || !c.remove(pc, name, id) {
		return
	}
	rng := rand.New(rand.NewPCG(pc.x, 7))
	if rng.IntN(2) == 0 {
		time.Sleep(between(rng, 0, 20*time.Second))
	}
	spec := c.p.jobs[rng.IntN(len(c.p.jobs))].spec
	spec.Namespace, spec.Name = placeOf(name)
	c.create(pc, spec)
}

// remove deletes a job and says whether it is surely gone.
func (c *cluster) remove(pc plannedCall, name string, id job.ID) bool {
	err := c.ask(pc, checker.Call{Kind: checker.CallDelete, Job: id},
		func(ctx context.Context, cl *client.Client, _ *checker.Call) error {
			return cl.DeleteJob(ctx, id.String(), 0)
		})
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names[pc.job] == name {
		delete(c.names, pc.job)
	}
	return true
}

// changeCalendar gives a calendar another window, or none.
func (c *cluster) changeCalendar(pc plannedCall) {
	if len(c.p.calendars) == 0 {
		return
	}
	rng := rand.New(rand.NewPCG(pc.x, 8))
	old := &c.p.calendars[pc.job%len(c.p.calendars)]
	cal := schedule.Calendar{Namespace: old.Namespace, Name: old.Name}
	if from := c.t.now().Add(between(rng, -c.o.length/10, c.o.length/5)); rng.IntN(4) > 0 {
		cal.Windows = []schedule.Window{{From: from.UTC().Truncate(time.Second),
			To: from.Add(between(rng, c.o.length/30, c.o.length/5)).UTC().Truncate(time.Second)}}
	} else {
		cal.Timezone, cal.Weekdays, cal.Daily = "Europe/Berlin", []string{"sun"}, []string{"02:10-02:20"}
	}
	c.putCalendar(pc, cal)
}

// putCalendar has a calendar be as it is given. The only warning of that is that a node may not know of it.
func (c *cluster) putCalendar(pc plannedCall, cal schedule.Calendar) {
	c.ask(pc, checker.Call{Kind: checker.CallCalendar, Name: checker.In(cal.Namespace, cal.Name), Calendar: &cal},
		func(ctx context.Context, cl *client.Client, call *checker.Call) error {
			call.Unheard = false // in an earlier try
			_, err := cl.PutCalendar(client.WithWarnings(ctx, func(string) { call.Unheard = true }), cal)
			return err
		})
}
