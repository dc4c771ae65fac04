package scheduler

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

// What is due and waits is claimed as soon as an edit lets a worker take it, and goes on firing, whatever the edit
// changed: also if the store never tells of changes, or if the guard never looks.
func TestAnEditChangesWhoMayRun(t *testing.T) {
	web := func(s *job.Spec) {
		s.Type, s.Payload, s.Workers = job.TypeHTTP, []byte(`{"url":"http://target.example/"}`), nil
	}
	mars := func(s *job.Spec) { web(s); s.Workers = map[string]string{"region": "mars"} }
	shell := func(s *job.Spec) { s.Type, s.Payload = job.TypeShell, []byte(`{"command":"true"}`) }
	queue := func(name string) func(*job.Spec) { return func(s *job.Spec) { inQueue(name)(s); s.Workers = nil } }
	for name, tc := range map[string]struct {
		job, edit func(*job.Spec) // before, when no worker takes it, and after
		between   func(*world, job.ID)
	}{
		"a missing tag":  {job: mars, edit: web},
		"a one-off":      {job: func(s *job.Spec) { mars(s); s.Schedule = "2000-01-01T01:00:20Z" }, edit: web},
		"queue to queue": {job: queue("mars"), edit: queue("q")},
		"queue to http":  {job: queue("mars"), edit: web},
		"shell to http":  {job: shell, edit: web},
		"a paused queue": {job: queue("paused"), edit: queue("q")},
		"two edits":      {job: mars, edit: web, between: func(w *world, id job.ID) { w.edit(id, queue("mars")) }},
		"edited while paused": {job: mars, edit: web, between: func(w *world, id job.ID) {
			w.pause(id)
			w.edit(id, queue("mars"))
			time.Sleep(time.Second)
			w.resume(id)
		}},
		"a healthy one":        {job: web, edit: web, between: func(w *world, id job.ID) { w.edit(id, mars) }},
		"beside a run by hand": {job: mars, edit: web, between: func(w *world, id job.ID) { w.trigger(id) }},
	} {
		for _, how := range []string{"", "no events", "no guard"} {
			t.Run(name+" "+how, func(t *testing.T) {
				run(t, func(t *testing.T, w *world) {
					w.opts.noEvents, w.opts.noGuard = how == "no events", how == "no guard"
					s := w.lead()
					w.setQueue(fsm.PutQueue{Name: "paused", Set: fsm.QueuePaused, Paused: true})
					w.worker("w", 4, func(f *fakeWorker) {
						f.is.Types = []job.Type{job.TypeHTTP, job.TypeQueue}
						f.is.Tags = map[string]string{"queue": "q,paused"}
					}).mustJoin()
					id := w.create("*/2 * * * * *", tc.job)
					time.Sleep(20 * time.Second)
					if tc.between != nil {
						tc.between(w, id)
						time.Sleep(5 * time.Second)
					}
					if s.WaitReason(id) == "" {
						t.Error("it waits for nothing")
					}
					ran := func() (n int) {
						for _, r := range w.history(id) {
							if r.Status == job.RunSucceeded {
								n++
							}
						}
						return n
					}
					before := ran()
					w.edit(id, tc.edit)
					time.Sleep(1500 * time.Millisecond)
					if ran() == before {
						t.Errorf("it did not run within a second and a half; why: %q", s.WaitReason(id))
					}
					want := before + 5
					if d := w.definition(id); d.Spec.OneOff() {
						want = 1
					}
					time.Sleep(10 * time.Second)
					if n := ran(); n < want {
						t.Errorf("%d ran before, %d ten seconds later: %q", before, n, w.summary(id))
					}
				})
			})
		}
	}
}
