package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

func inQueue(name string) func(*job.Spec) {
	return func(s *job.Spec) {
		s.Type, s.Payload, s.Overlap = job.TypeQueue, fmt.Appendf(nil, `{"queue":%q}`, name), job.OverlapAllow
	}
}

func inDefault(name string) job.QueueKey {
	return job.QueueKey{Namespace: job.DefaultNamespace, Name: name}
}

func limit(name string, n int) *PutQueue {
	return &PutQueue{Name: name, Set: QueueConcurrency, Concurrency: n}
}

func paused(name string, yes bool) *PutQueue {
	return &PutQueue{Name: name, Set: QueuePaused | QueueKnown, Paused: yes}
}

func TestQueueRows(t *testing.T) {
	w := newWorld(t)
	w.unchanged(CodeNotFound, paused("mail", true), &DeleteQueue{Name: "mail"}, &DeleteQueue{Name: "no name"})
	w.unchanged(CodeRefused, limit("", 1), limit("a b", 1), limit(strings.Repeat("x", 101), 1), limit("mail", -1), limit("mail", job.MaxQueueConcurrency+1))
	w.unchanged(CodeConflict, &PutQueue{Name: "mail", Version: 7, Set: QueueConcurrency, Concurrency: 1})

	o := w.want(CodeOK, limit("mail", 5))
	q := w.st.Queue(inDefault("mail"))
	if !q.Declared || q.Concurrency != 5 || q.Paused || q.Version != o.Version || q.Version == 0 || q.UpdatedAt != w.now || q.Jobs != 0 {
		t.Fatalf("%+v", q)
	}
	w.now += 1000
	w.unchanged(CodeOK, limit("mail", 5)) // it says nothing new
	w.unchanged(CodeConflict, &PutQueue{Name: "mail", Version: q.Version + 1, Set: QueuePaused, Paused: true}, &DeleteQueue{Name: "mail", Version: 1 << 40})
	w.want(CodeOK, paused("mail", true)) // only what it names
	if q := w.st.Queue(inDefault("mail")); q.Concurrency != 5 || !q.Paused || q.Version <= o.Version || q.UpdatedAt != w.now {
		t.Errorf("%+v", q)
	}

	// A queue that a job uses is known; what is said about it makes the row.
	id := w.create(T(10), inQueue("video"))
	if q := w.st.Queue(inDefault("video")); q.Declared || q.Jobs != 1 || !q.Known() {
		t.Errorf("%+v", q)
	}
	w.want(CodeOK, paused("video", true))
	w.want(CodeOK, &DeleteQueue{Name: "mail", Version: w.st.Queue(inDefault("mail")).Version})
	if q := w.st.Queue(inDefault("mail")); q.Known() || q.Paused || q.Concurrency != 0 {
		t.Errorf("%+v", q)
	}
	// A row that is made anew has a version that no earlier one had.
	if again := w.want(CodeOK, limit("mail", 5)); again.Version <= o.Version {
		t.Errorf("version %d after %d", again.Version, o.Version)
	}
	w.want(CodeOK, &Delete{Job: uint64(id)})
	w.want(CodeOK, &DeleteQueue{Name: "video"})
	if q := w.st.Queue(inDefault("video")); q.Known() {
		t.Errorf("%+v", q)
	}
	// All of it is in the file.
	if err := w.st.Close(); err != nil {
		t.Fatal(err)
	}
	w.open()
	if q := w.st.Queue(inDefault("mail")); !q.Declared || q.Concurrency != 5 {
		t.Errorf("%+v", q)
	}
	w.check()
}

func TestARequestAboutAQueueIsDoneOnce(t *testing.T) {
	w := newWorld(t)
	first := limit("mail", 5)
	first.Request = Request{ID: "r", Fingerprint: 1, Expires: T(99)}
	o := w.want(CodeOK, first)
	w.want(CodeOK, limit("mail", 6))
	again := limit("mail", 5)
	again.Request = first.Request
	if r := w.one(again); r.Code != CodeOK || !r.Replay || r.Version != o.Version || w.st.Queue(inDefault("mail")).Concurrency != 6 {
		t.Errorf("%+v", r)
	}
}

// Whatever the leader thought when it proposed: a claim that would exceed the limit as it is when the claim is applied changes nothing.
func TestQueueLimitHoldsInApply(t *testing.T) {
	w := newWorld(t)
	var ids []job.ID
	for range 5 {
		ids = append(ids, w.create(T(10), inQueue("mail")))
	}
	other := w.create(T(10), inQueue("other"))
	w.want(CodeOK, limit("mail", 2))
	w.now = T(10)
	claim := func(id job.ID) Outcome { return w.claim(id, T(70)) }
	claimRun := func(k job.RunKey) Outcome {
		row, _ := w.row(k)
		due, _ := row.Due(k)
		s, _ := w.state(k.Job)
		c := &Claim{}
		addClaim(c, due, s.Gen, 0)
		return w.one(c)
	}
	a, b := claim(ids[0]), claim(ids[1])
	full := claim(ids[2])
	if a.Code != CodeClaimed || b.Code != CodeClaimed || full.Code != CodeBusy || !strings.Contains(full.Text, "2 of 2") {
		t.Fatalf("%+v %+v %+v", a, b, full)
	}
	if o := claim(other); o.Code != CodeClaimed {
		t.Errorf("another queue: %+v", o)
	}
	// A batch stops at the limit in its middle.
	w.complete(a, ResultSucceeded, 0)
	batch := &Claim{Workers: []WorkerRef{worker1}}
	for _, id := range ids[2:] {
		s, p := w.state(id)
		addClaim(batch, p.Due(id), s.Gen, T(70))
	}
	r := w.do(batch)[0].Items
	if r[0].Code != CodeClaimed || r[1].Code != CodeBusy || r[2].Code != CodeBusy {
		t.Errorf("%+v", r)
	}
	// A canceled run is its worker's until that says so.
	w.want(CodeOK, &Cancel{Job: uint64(b.Run.Job), At: b.Run.At, Origin: byte(b.Run.Origin)})
	if o := claim(ids[3]); o.Code != CodeBusy {
		t.Errorf("%+v", o)
	}
	w.complete(b, ResultCanceled, 0)
	w.want(CodeOK, paused("mail", true))
	if o := claim(ids[3]); o.Code != CodeBusy || !strings.Contains(o.Text, "paused") {
		t.Errorf("%+v", o)
	}
	w.want(CodeOK, paused("mail", false))
	if o := claim(ids[3]); o.Code != CodeClaimed {
		t.Errorf("%+v", o)
	}
	// So are retries and manual runs.
	w.complete(r[0], ResultRetry, T(10))
	if o := claimRun(r[0].Run); o.Code != CodeClaimed {
		t.Errorf("%+v", o)
	}
	m := w.want(CodeOK, &Trigger{Job: uint64(ids[4])})
	if o := claimRun(m.Run); o.Code != CodeBusy {
		t.Errorf("%+v", o)
	}
	w.want(CodeOK, limit("mail", 0))
	if o := claimRun(m.Run); o.Code != CodeClaimed {
		t.Errorf("%+v", o)
	}
	if q := w.st.Queue(inDefault("mail")); q.Claimed != 3 || q.Jobs != 5 {
		t.Errorf("%+v", q)
	}
	// The counts are found again.
	if err := w.st.Close(); err != nil {
		t.Fatal(err)
	}
	w.open()
	if q := w.st.Queue(inDefault("mail")); q.Claimed != 3 || q.Jobs != 5 {
		t.Errorf("%+v", q)
	}
}

// An edit moves a job to another queue; what a worker has in hand stays where it was counted.
func TestEditMovesAJobToAnotherQueue(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), inQueue("a"))
	w.now = T(10)
	o := w.claim(id, T(70))
	w.want(CodeOK, w.updateOf(id, T(70), inQueue("b")))
	a, b := w.st.Queue(inDefault("a")), w.st.Queue(inDefault("b"))
	if a.Jobs != 0 || a.Claimed != 1 || b.Jobs != 1 || b.Claimed != 0 {
		t.Errorf("%+v %+v", a, b)
	}
	w.complete(o, ResultRetry, T(11)) // and comes back under the new one
	w.now = T(11)
	w.claimRun(o.Run)
	if a, b := w.st.Queue(inDefault("a")), w.st.Queue(inDefault("b")); a.Known() || b.Claimed != 1 {
		t.Errorf("%+v %+v", a, b)
	}
}
