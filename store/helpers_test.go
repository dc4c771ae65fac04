package store

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/job"
)

var quick = Options{NoSync: true, MmapSize: 1 << 26}

func openTest(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path, quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newTest(t testing.TB) *Store {
	t.Helper()
	return openTest(t, filepath.Join(t.TempDir(), "state.db"))
}

// update commits a batch.
func update(t testing.TB, s *Store, fn func(b *Batch)) {
	t.Helper()
	b, err := s.Begin()
	if err != nil {
		t.Fatal(err)
	}
	fn(b)
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
}

func view(t testing.TB, s *Store, fn func(v *View)) {
	t.Helper()
	if err := s.View(func(v *View) error { fn(v); return nil }); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sound(t testing.TB, s *Store) {
	t.Helper()
	problems, _, err := s.Check()
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v %q", err, problems)
	}
}

func testSpec(mut func(*job.Spec)) job.Spec {
	s := job.Spec{Type: job.TypeHTTP, Schedule: "* * * * *", Payload: json.RawMessage(`{"url":"http://localhost/"}`)}
	if mut != nil {
		mut(&s)
	}
	s.Normalize()
	return s
}

// addJob puts a job with a state that fits it.
func addJob(t testing.TB, b *Batch, id job.ID, mut func(*job.Spec), p Place, edit func(*State)) State {
	t.Helper()
	spec := testSpec(mut)
	def := Definition{Spec: spec, Version: 1}
	must(t, b.PutDefinition(id, def.Append(nil)))
	if spec.Name != "" {
		must(t, b.PutName(spec.Namespace, spec.Name, id))
	}
	class, err := b.Class(spec.Class())
	must(t, err)
	lane, _ := job.LaneOf(spec.Priority)
	s := State{Gen: 1, Class: class, Lane: lane, Overlap: OverlapOf(spec.Overlap), OneOff: spec.OneOff(), Manual: spec.Manual(),
		AtMostOnce: spec.Delivery == job.DeliverAtMostOnce, Notify: NotifyOnOf(spec.Notify)}
	if edit != nil {
		edit(&s)
	}
	p.Lane = lane
	must(t, b.PutState(id, &s, p))
	b.C.NextJob = max(b.C.NextJob, uint64(id))
	b.C.Jobs++
	return s
}

const (
	jobClaimed  job.ID = 1 // named "a"; due at 2000, a claimed run of 1000
	jobPaused   job.ID = 2 // a held retry, a waiting run
	jobOneOff   job.ID = 3 // finished; a dead letter
	jobManual   job.ID = 4 // a pending manual run at 500, a retrying one at 501
	jobBad      job.ID = 5 // in quarantine
	jobNotifies job.ID = 6 // failing; notification 1 is done with, 2 is to be sent
	histClaimed uint64 = 2 // the newest record of jobClaimed; it leads to 1
)

// populate writes a state with something of every kind in it.
func populate(t testing.TB, s *Store) {
	t.Helper()
	update(t, s, func(b *Batch) {
		b.C.Index, b.C.Term, b.C.Fence, b.C.Mark = 7, 2, 9, 5000
		st := addJob(t, b, jobClaimed, func(s *job.Spec) { s.Name = "a" }, Place{Ready: 2005, At: 2000}, func(s *State) {
			s.LastNominal, s.Active = 1000, 1
			for i := range 2 {
				_, err := b.Append(&Record{Job: jobClaimed, Status: job.RunSucceeded, Recorded: 100, At: int64(i), Origin: job.OriginSchedule, Attempt: 1, Fence: 1}, s)
				must(t, err)
			}
		})
		must(t, b.PutRun(job.RunKey{Job: jobClaimed, At: 1000, Origin: job.OriginSchedule}, nil,
			&Row{Status: job.RunClaimed, Attempt: 1, Lane: st.Lane, Class: st.Class, Fence: 9, Worker: "w"}))

		st = addJob(t, b, jobPaused, nil, Place{Parked: true}, func(s *State) {
			s.Paused, s.ParkedAt, s.ParkedReady, s.LastNominal, s.Active, s.Waiting = true, 3000, 3000, 1500, 1, 1
		})
		must(t, b.PutRun(job.RunKey{Job: jobPaused, At: 1400, Origin: job.OriginSchedule}, nil,
			&Row{Status: job.RunWaiting, Held: job.RunRetrying, Attempt: 1, Lane: st.Lane, Class: st.Class, Fence: 3}))
		must(t, b.PutRun(job.RunKey{Job: jobPaused, At: 1500, Origin: job.OriginSchedule}, nil, &Row{Status: job.RunWaiting, Lane: st.Lane, Class: st.Class}))

		var seq uint64
		st = addJob(t, b, jobOneOff, func(s *job.Spec) { s.Schedule = "2030-01-01T00:00:00Z" }, Place{Parked: true}, func(s *State) {
			var err error
			s.LastNominal, s.Dead = 100, 1
			seq, err = b.Append(&Record{Job: jobOneOff, Status: job.RunDead, Recorded: 100, At: 100, Origin: job.OriginSchedule, Attempt: 1, Fence: 2}, s)
			must(t, err)
		})
		must(t, b.PutDead(seq, &Dead{Run: job.RunKey{Job: jobOneOff, At: 100, Origin: job.OriginSchedule}, Row: Row{Fence: 2, Class: st.Class}}))
		must(t, b.PutCleanup(DueKey{Lane: 3, Ready: 9000, Job: jobOneOff, Kind: KindCleanup}))

		st = addJob(t, b, jobManual, func(s *job.Spec) { s.Schedule, s.Overlap, s.Priority = "@manual", "allow", "high" }, Place{Parked: true}, func(s *State) { s.LastManual, s.Active = 501, 2 })
		must(t, b.PutRun(job.RunKey{Job: jobManual, At: 500, Origin: job.OriginManual}, nil, &Row{Status: job.RunPending, Ready: 500, Lane: st.Lane, Class: st.Class}))
		must(t, b.PutRun(job.RunKey{Job: jobManual, At: 501, Origin: job.OriginManual}, nil,
			&Row{Status: job.RunRetrying, Ready: 700, Lane: st.Lane, Class: st.Class, Attempt: 1, Failures: 1, Fence: 4}))

		addJob(t, b, jobBad, nil, Place{Parked: true}, func(s *State) { s.Quarantined = true })
		must(t, b.PutNote(jobBad, "cannot be read"))
		addJob(t, b, jobNotifies, func(s *job.Spec) { s.Schedule, s.Notify = "@manual", &job.Notify{Webhook: "ops"} }, Place{Parked: true}, func(s *State) { s.Failing = true })
		for range 2 {
			must(t, b.AddNotice(&Notice{Job: jobNotifies, Kind: NotifyFailure, At: 100, RunAt: 90, Origin: job.OriginManual, Status: job.RunDead}))
		}
		must(t, b.FinishNotice(&Notice{Job: jobNotifies, Seq: 1, Kind: NotifyFailure, At: 100, RunAt: 90, Origin: job.OriginManual, Status: job.RunDead, Want: 1, Sent: 1, Attempts: 1, DoneAt: 200}))
		must(t, b.PutRequest("r1", []byte("outcome"), 8000))
		must(t, b.PutCalendar(job.DefaultNamespace, "c", []byte("{}")))
	})
	sound(t, s)
}

// tamper changes a file behind the store's back.
func tamper(t testing.TB, path string, fn func(tx *bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true})
	must(t, err)
	defer db.Close()
	must(t, db.Update(fn))
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return write(f)
}
