package fsm

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// in puts a job of a name into a namespace.
func in(namespace, name string, more ...func(*job.Spec)) func(*job.Spec) {
	return func(s *job.Spec) {
		s.Namespace, s.Name = namespace, name
		for _, f := range more {
			f(s)
		}
	}
}

func (w *world) named(namespace, name string) (id job.ID) {
	w.Helper()
	if err := w.st.View(func(v *store.View) error { id, _ = v.Named(namespace, name); return nil }); err != nil {
		w.Fatal(err)
	}
	return id
}

// A name belongs to one job of a namespace; one of another namespace may have it, too.
func TestNamesAreUniqueInANamespace(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.create(T(60), in("team-a", "mail")), w.create(T(60), in("team-b", "mail")), w.create(T(60), in("", "mail"))
	if w.named("team-a", "mail") != a || w.named("team-b", "mail") != b || w.named(job.DefaultNamespace, "mail") != c ||
		w.named("team-c", "mail") != 0 {
		t.Error("a name leads elsewhere")
	}
	next := w.st.Counters().NextJob + 1
	other := testSpec(in("team-a", "mail", overlap(job.OverlapAllow)))
	w.unchanged(CodeDuplicate, &Create{Items: []CreateItem{{Job: next, Def: w.def(other, 1), Next: When{T(60), T(60)}}}})
	for _, bad := range []string{"*", "A", "-a", "a/b", "a\x00b"} {
		spec := testSpec(in(bad, "x"))
		w.unchanged(CodeRefused, &Create{Items: []CreateItem{{Job: next, Def: w.def(spec, 1), Next: When{T(60), T(60)}}}})
	}
	w.want(CodeOK, &Delete{Job: uint64(a)})
	if w.named("team-a", "mail") != 0 || w.named("team-b", "mail") != b {
		t.Error("a delete took the name of another namespace, or left its own")
	}
	w.create(T(60), in("team-a", "mail"))
}

// A job stays where it is: what is recorded of it is of that namespace.
func TestAJobStaysInItsNamespace(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(60), in("team-a", "mail"))
	s, p := w.state(id)
	move := testSpec(in("team-b", "mail"))
	w.unchanged(CodeRefused, &Update{Job: uint64(id), Version: 1, Seen: Seen{Gen: s.Gen, At: p.At, Ready: p.Ready},
		Def: w.def(move, 2), Next: When{p.At, p.Ready}})
	rename := testSpec(in("team-a", "post"))
	w.want(CodeOK, &Update{Job: uint64(id), Version: 1, Seen: Seen{Gen: s.Gen, At: p.At, Ready: p.Ready},
		Def: w.def(rename, 2), Next: When{p.At, p.Ready}})
	if w.named("team-a", "post") != id || w.named("team-a", "mail") != 0 || w.named("team-b", "mail") != 0 {
		t.Error("the names do not follow the edit")
	}
}

// The history of a job says its namespace also when the job is gone: attempts, intervals, and what its worker had in
// hand when it was deleted.
func TestHistoryKeepsTheNamespace(t *testing.T) {
	w := newWorld(t)
	for _, space := range []string{job.DefaultNamespace, "team-a"} {
		id := w.create(T(60), in(space, "mail", overlap(job.OverlapAllow)))
		w.now = T(70)
		w.complete(w.claim(id, T(120)), ResultSucceeded, 0)
		w.now = T(130)
		inHand := w.claim(id, T(180))
		w.want(CodeOK, &Pause{Job: uint64(id)})
		w.now = T(300)
		w.want(CodeOK, &Delete{Job: uint64(id)})
		w.complete(inHand, ResultCanceled, 0)
		records := w.history(id)
		if len(records) != 3 {
			t.Fatalf("%+v", records)
		}
		for _, r := range records {
			if r.Namespace != space {
				t.Errorf("%s in %q, want %q", r.Status, r.Namespace, space)
			}
		}
		w.now = T(0)
	}
}

// Two queues of one name in two namespaces have a limit, a pause and counts of their own.
func TestQueuesOfANamespace(t *testing.T) {
	w := newWorld(t)
	put := func(namespace string, set uint8, n int, yes bool) *PutQueue {
		return &PutQueue{Namespace: namespace, Name: "mail", Set: set, Concurrency: n, Paused: yes}
	}
	a, b := w.create(T(60), in("team-a", "x", inQueue("mail"))), w.create(T(60), in("team-b", "x", inQueue("mail")))
	w.want(CodeOK, put("team-a", QueueConcurrency, 1, false))
	w.unchanged(CodeNotFound, put("", QueuePaused|QueueKnown, 0, true)) // there is none of that name
	w.unchanged(CodeRefused, put("no such", QueuePaused, 0, true))
	w.now = T(70)
	w.claim(a, T(71))
	if o := w.claim(a, T(72)); o.Code != CodeBusy {
		t.Errorf("a second run of team-a: %+v", o)
	}
	for i := range int64(3) {
		if o := w.claim(b, T(71+i)); o.Code != CodeClaimed {
			t.Errorf("a run of team-b: %+v", o)
		}
	}
	w.want(CodeOK, put("team-b", QueuePaused|QueueKnown, 0, true))
	qa, qb := w.st.Queue(job.QueueKey{Namespace: "team-a", Name: "mail"}), w.st.Queue(job.QueueKey{Namespace: "team-b", Name: "mail"})
	if qa.Claimed != 1 || qa.Jobs != 1 || qa.Paused || qb.Claimed != 3 || qb.Jobs != 1 || !qb.Paused || qb.Concurrency != 0 {
		t.Errorf("\na %+v\nb %+v", qa, qb)
	}
	if err := w.st.Close(); err != nil {
		t.Fatal(err)
	}
	w.open()
	if a, b := w.st.Queue(qa.Key()), w.st.Queue(qb.Key()); a != qa || b != qb {
		t.Errorf("opened again:\na %+v\nb %+v", a, b)
	}
	w.want(CodeOK, &DeleteQueue{Namespace: "team-a", Name: "mail"})
	if b := w.st.Queue(qb.Key()); !b.Declared {
		t.Error("the row of another namespace is gone")
	}
}

// What is said of dead letters of one namespace is not done to those of another, whatever numbers are named.
func TestDeadLettersOfANamespace(t *testing.T) {
	w := newWorld(t)
	var seqs []uint64
	for i, space := range []string{"team-a", "team-b", "team-a"} {
		id := w.create(T(60), in(space, "", overlap(job.OverlapAllow)))
		w.now = T(int64(70 + i))
		w.complete(w.claim(id, T(600)), ResultDead, 0)
		seqs = append(seqs, w.st.Counters().HistSeq)
	}
	if o := w.want(CodeOK, &Redrive{Seqs: seqs[:2], Namespace: "team-b"}); o.Count != 1 || w.st.Counters().Dead != 2 {
		t.Errorf("%+v, %d are left", o, w.st.Counters().Dead)
	}
	if o := w.want(CodeOK, &Purge{Seqs: seqs, Namespace: "team-b"}); o.Count != 0 || w.st.Counters().Dead != 2 {
		t.Errorf("%+v, %d are left", o, w.st.Counters().Dead)
	}
	if o := w.want(CodeOK, &Purge{Seqs: seqs, Namespace: "team-a"}); o.Count != 2 || w.st.Counters().Dead != 0 {
		t.Errorf("%+v, %d are left", o, w.st.Counters().Dead)
	}
}

func TestCalendarsOfANamespace(t *testing.T) {
	w := newWorld(t)
	w.want(CodeOK, &Calendar{Namespace: "team-a", Name: "days", Data: []byte("{}")})
	w.unchanged(CodeNotFound, &Calendar{Name: "days"}, &Calendar{Namespace: "team-b", Name: "days"})
	w.unchanged(CodeRefused, &Calendar{Namespace: "*", Name: "days", Data: []byte("{}")})
	w.want(CodeOK, &Calendar{Namespace: "team-a", Name: "days"})
}
