package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

// creditor is a worker that has other leaders too.
type creditor struct {
	*world
	ref   job.SessionRef
	polls uint64
	acked uint64
}

func (w *world) creditor(name string) *creditor {
	w.t.Helper()
	reg := w.worker(name, 10, nil).reg
	reg.Credit = true
	session, err := w.s.Register(context.Background(), reg)
	if err != nil {
		w.t.Fatal(err)
	}
	return &creditor{world: w, ref: session.SessionRef}
}

// poll asks with the next number.
func (c *creditor) poll(free int, wait time.Duration, told bool) job.PollReply {
	c.t.Helper()
	c.polls++
	r, err := c.s.Poll(context.Background(), job.Poll{Session: c.ref, Acked: c.acked, Free: free, Wait: job.Duration(wait),
		Number: c.polls, Told: told})
	if err != nil {
		c.t.Fatal(err)
	}
	c.acked += uint64(len(r.Assignments))
	return r
}

func (c *creditor) want(r job.PollReply, assignments int, number uint64, ready int) {
	c.t.Helper()
	if len(r.Assignments) != assignments || r.Number != number || r.Ready != ready {
		c.t.Fatalf("%d assignments, number %d, ready %d; want %d, %d, %d", len(r.Assignments), r.Number, r.Ready,
			assignments, number, ready)
	}
}

func (w *world) triggers(n int) {
	for range n {
		w.trigger(w.create("@manual", nil))
	}
	time.Sleep(time.Second)
}

// Only numbered polls offer anything: not the registration, not a heartbeat, and not a result that frees a slot.
func TestCreditTravelsInPolls(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		c := w.creditor("w1")
		w.triggers(6)
		c.want(c.poll(0, 0, false), 0, 1, 6)
		if _, err := s.Heartbeat(context.Background(), job.Heartbeat{Session: c.ref, Free: 5}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		c.want(c.poll(0, 0, false), 0, 2, 6)
		r := c.poll(2, time.Minute, true)
		c.want(r, 2, 3, 4)
		// The worker has them, and says so in a heartbeat: the credit is used up all the same.
		held := []job.Held{{Run: r.Assignments[0].Run, Fence: r.Assignments[0].Fence, StartedAt: 1}}
		if _, err := s.Heartbeat(context.Background(), job.Heartbeat{Session: c.ref, Acked: 2, Free: 9, Held: held}); err != nil {
			t.Fatal(err)
		}
		for _, a := range r.Assignments {
			res := job.Result{Run: a.Run, Fence: a.Fence, Outcome: job.OutcomeSucceeded}
			if _, err := s.Report(context.Background(), job.Report{Session: c.ref, Results: []job.Result{res}}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		c.want(c.poll(0, 0, true), 0, 4, 4)
		// What is lost on the way is sent again on the account of the next poll.
		c.want(c.poll(3, time.Minute, true), 3, 5, 1)
		c.acked -= 3
		c.want(c.poll(3, time.Minute, true), 3, 6, 1)
	})
}

// A poll that takes credit back is answered when nothing is on its way above what it leaves. What took too long may
// still come, and the answer says so by having no number.
func TestCreditIsTakenBack(t *testing.T) {
	for name, slow := range map[string]time.Duration{"soon": drainLimit / 2, "late": 3 * drainLimit} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				s := w.lead()
				c := w.creditor("w1")
				ctx, giveUp := context.WithCancel(context.Background())
				c.polls++
				ended := make(chan job.PollReply)
				go func() {
					r, _ := s.Poll(ctx, job.Poll{Session: c.ref, Free: 4, Wait: job.Duration(time.Minute), Number: c.polls})
					ended <- r
				}()
				id := w.create("@manual", nil)
				time.Sleep(time.Second)
				w.setFault(func(cmd fsm.Command) (error, bool) {
					if _, ok := cmd.(*fsm.Claim); ok {
						time.Sleep(slow)
					}
					return nil, true
				})
				w.trigger(id)
				time.Sleep(50 * time.Millisecond)
				giveUp()
				if r := <-ended; len(r.Assignments) > 0 {
					t.Fatalf("%+v", r)
				}
				if slow < drainLimit {
					c.want(c.poll(0, 0, false), 1, 2, 0)
					return
				}
				c.want(c.poll(0, 0, false), 0, 0, 0)
				time.Sleep(slow)
				c.want(c.poll(0, 0, false), 1, 3, 0)
			})
		})
	}
}

// A poll that comes late, after one with a higher number, offers nothing and takes nothing back; one that waits ends
// when it is superseded.
func TestLatePollsGrantNothing(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		c := w.creditor("w1")
		old := job.Poll{Session: c.ref, Free: 5, Wait: job.Duration(time.Minute), Number: 1}
		ended := make(chan job.PollReply)
		go func() {
			r, _ := s.Poll(context.Background(), old)
			ended <- r
		}()
		time.Sleep(time.Second)
		c.polls = 1
		c.want(c.poll(0, 0, false), 0, 2, 0)
		if r := <-ended; r.Number != 0 {
			t.Fatalf("%+v", r)
		}
		if r, err := s.Poll(context.Background(), old); err != nil || r.Number != 0 {
			t.Fatalf("%+v %v", r, err)
		}
		w.triggers(1)
		c.want(c.poll(0, 0, false), 0, 3, 1)
	})
}

// A worker without credit hears that runs wait, once; and that they do not any more with the next answer.
func TestReadyIsHinted(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		c := w.creditor("w1")
		answer := make(chan job.PollReply)
		go func() { answer <- c.poll(0, time.Minute, false) }()
		time.Sleep(time.Second)
		w.triggers(3)
		select {
		case r := <-answer:
			c.want(r, 0, 1, 1) // at the first of them
		case <-time.After(time.Second):
			t.Fatal("the poll was not answered")
		}
		began := time.Now()
		c.want(c.poll(0, 10*time.Second, true), 0, 2, 3)
		if time.Since(began) != 10*time.Second {
			t.Errorf("who knows was told again after %s", time.Since(began))
		}
		w.worker("w2", 5, nil).mustJoin() // an ordinary one takes them
		time.Sleep(5 * time.Second)
		c.want(c.poll(0, 0, false), 0, 3, 0)
	})
}

// What an earlier leader claimed comes with the first answers, on the account of their polls.
func TestCreditAfterALeaderChange(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		c := w.creditor("w1")
		w.triggers(2)
		c.poll(2, time.Minute, false)
		reg := w.worker("w1", 10, nil).reg
		reg.Credit, reg.Incarnation = true, c.ref.Incarnation
		session, err := w.lead().Register(context.Background(), reg)
		if err != nil {
			t.Fatal(err)
		}
		c.ref, c.acked, c.polls = session.SessionRef, 0, 0
		c.want(c.poll(0, 0, false), 2, 1, 0)
		w.triggers(3)
		c.want(c.poll(1, time.Minute, true), 1, 2, 2)
	})
}

// One that leaves asks without a number and gets no more.
func TestLastPollWithCredit(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		c := w.creditor("w1")
		c.poll(5, 0, false)
		last := job.Poll{Session: c.ref}
		if r, err := s.Poll(context.Background(), last); err != nil || len(r.Assignments) != 0 {
			t.Fatalf("%+v %v", r, err)
		}
		w.triggers(1)
		if r, err := s.Poll(context.Background(), last); err != nil || len(r.Assignments) != 0 {
			t.Fatalf("%+v %v", r, err)
		}
	})
}
