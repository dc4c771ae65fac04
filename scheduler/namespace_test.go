package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// of puts a job into a namespace.
func of(namespace string, more ...func(*job.Spec)) func(*job.Spec) {
	return func(s *job.Spec) {
		s.Namespace, s.Name, s.Overlap = namespace, "mail", job.OverlapAllow
		for _, f := range more {
			f(s)
		}
	}
}

// A worker of a namespace gets runs of that one only; one without a namespace gets those of all.
func TestWorkersOfANamespace(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := w.lead()
		jobs := map[string]job.ID{}
		for _, space := range []string{"team-a", "team-b", job.DefaultNamespace} {
			jobs[space] = w.create("@manual", of(space))
		}
		inSpace := func(space string) func(*fakeWorker) {
			return func(f *fakeWorker) { f.is.Namespace = space }
		}
		a := w.worker("wa", 4, inSpace("team-a")).mustJoin()
		for range 3 {
			for _, id := range jobs {
				w.trigger(id)
			}
		}
		time.Sleep(time.Minute)
		if got := fmt.Sprint(len(a.ran()), w.summary(jobs["team-a"]), len(w.summary(jobs["team-b"])),
			len(w.summary(jobs[job.DefaultNamespace]))); got != "3 [succeeded succeeded succeeded] 0 0" {
			t.Error(got)
		}
		for _, r := range a.ran() {
			if r.Run.Job != jobs["team-a"] || r.Namespace != "team-a" {
				t.Errorf("the worker of team-a got %+v", r)
			}
		}
		if why := s.WaitReason(jobs["team-b"]); why != "no worker has executor shell enabled for namespace team-b" {
			t.Error(why)
		}
		if why := s.WaitReason(jobs[job.DefaultNamespace]); why != "no worker has executor shell enabled" {
			t.Error(why)
		}
		d := w.worker("wd", 4, inSpace(job.DefaultNamespace)).mustJoin()
		time.Sleep(time.Minute)
		all := w.worker("w", 4, nil).mustJoin()
		time.Sleep(time.Minute)
		if len(d.ran()) != 3 || len(all.ran()) != 3 || all.ran()[0].Run.Job != jobs["team-b"] {
			t.Errorf("that of the usual one got %d, that of all %d", len(d.ran()), len(all.ran()))
		}
	})
}

// Two queues of one name in two namespaces share no runs.
func TestPollAQueueOfANamespace(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		for _, space := range []string{"team-a", "team-b"} {
			w.trigger(w.queueJob(of(space)))
		}
		for i, space := range []string{"team-a", "team-b"} {
			r, _ := w.pullOne(job.Poll{Queue: job.QueueKey{Namespace: space, Name: "q"}, Worker: "w", Free: 5})
			if r.Run.Job != job.ID(i+1) || r.Namespace != space {
				t.Errorf("%s: %+v", space, r)
			}
		}
		_, err := w.s.Poll(t.Context(), onQueue(job.Poll{Free: 1}))
		wantCode(t, err, job.CodeUnknownQueue)
	})
}

// The backlog of one namespace does not keep another one from its share of the slots.
func TestNamespacesTakeTurns(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		a, b := w.create("@manual", of("team-a")), w.create("@manual", of("team-b"))
		for range 400 {
			w.trigger(a)
		}
		for range 40 {
			w.trigger(b)
		}
		w.worker("w", 4, func(f *fakeWorker) { f.handle = takes(time.Second) }).mustJoin()
		time.Sleep(25 * time.Second) // some eighty runs: a slot is kept free
		if n := len(w.summary(b)); n < 30 {
			t.Errorf("%d of 40 runs of team-b while team-a had %d", n, len(w.summary(a)))
		}
	})
}
