package store

import (
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/job"
)

// A batch sees its own counts, others see them after the commit, and a batch that is dropped leaves nothing.
func TestQueueCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	row := Row{Status: job.RunClaimed, Worker: "w", Fence: 1, Attempt: 1}
	k := job.RunKey{Job: 1, At: 5, Origin: job.OriginManual}
	fill := func(b *Batch) {
		class, err := b.Class("queue\x00mail\x00zone=eu")
		must(t, err)
		row.Class = class
		must(t, b.PutState(1, &State{Class: class}, Place{Parked: true}))
		must(t, b.PutState(1, &State{Class: class, Gen: 1}, Place{Lane: 2, Ready: 9, At: 9})) // moving is not making
		must(t, b.PutRun(k, nil, &row))
		canceling := row
		canceling.Status = job.RunCanceling
		must(t, b.PutRun(k, &row, &canceling))
		must(t, b.PutQueue(Queue{Namespace: job.DefaultNamespace, Name: "mail", Concurrency: 1, Version: 1}))
		if u, ok := b.ClassQueue(class); !ok || u.Jobs != 1 || u.Claimed != 1 || u.Room() || !u.Declared {
			t.Errorf("%+v %v", u, ok)
		}
		if u := b.Queue(inDefault("mail")); u.Claimed != 1 {
			t.Errorf("%+v", u)
		}
		if u := b.Queue(inDefault("other")); u.Known() || u.Name != "other" {
			t.Errorf("%+v", u)
		}
		shell, err := b.Class("shell\x00")
		must(t, err)
		if _, ok := b.ClassQueue(shell); ok {
			t.Error("a shell job is in no queue")
		}
	}
	b, err := s.Begin()
	must(t, err)
	fill(b)
	b.Rollback()
	if u := s.Queue(inDefault("mail")); u.Known() {
		t.Errorf("%+v", u)
	}
	var moves uint64
	look := func() (known []string) {
		must(t, s.View(func(v *View) error {
			v.EachQueue(func(u QueueUse) bool { known = append(known, u.Name); return true })
			moves = v.QueueMoves()
			return nil
		}))
		return known
	}
	look()
	before := moves
	update(t, s, fill)
	if names := look(); len(names) != 1 || names[0] != "mail" || moves == before {
		t.Errorf("%q, %d moves after %d", names, moves, before)
	}
	want := s.Queue(inDefault("mail"))
	must(t, s.Close())
	s = openTest(t, path)
	if got := s.Queue(inDefault("mail")); got != want {
		t.Errorf("%+v, before %+v", got, want)
	}
	update(t, s, func(b *Batch) {
		other, err := b.Class("queue\x00video")
		must(t, err)
		b.Reclassed(Place{Parked: true}, row.Class, other)
		must(t, b.PutState(1, &State{Class: other}, Place{Parked: true}))
		canceling := row
		canceling.Status = job.RunCanceling
		must(t, b.DeleteRun(k, &canceling))
		must(t, b.DeleteQueue(inDefault("mail")))
	})
	if m, v := s.Queue(inDefault("mail")), s.Queue(inDefault("video")); m.Known() || v.Jobs != 1 {
		t.Errorf("%+v %+v", m, v)
	}
	update(t, s, func(b *Batch) { must(t, b.DeleteState(1)) })
	if names := look(); len(names) != 0 {
		t.Errorf("%q", names)
	}
}

func TestCheckFindsBadQueues(t *testing.T) {
	for name, c := range map[string]struct{ value, want string }{
		"another name": {`{"name":"b","version":1}`, "is about"},
		"negative":     {`{"name":"a","concurrency":-1,"version":1}`, "makes no sense"},
		"future":       {`{"name":"a","version":77}`, "makes no sense"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			s := openTest(t, path)
			update(t, s, func(b *Batch) { b.C.Index = 5 })
			must(t, s.Close())
			tamper(t, path, func(tx *bolt.Tx) error { return tx.Bucket(bucketQueues).Put([]byte("\x00a"), []byte(c.value)) })
			problems, _, err := CheckFile(path)
			if err != nil || len(problems) != 1 || !strings.Contains(problems[0], c.want) {
				t.Errorf("%q %v", problems, err)
			}
		})
	}
	// A limit that cannot be read is not one that may be ignored.
	path := filepath.Join(t.TempDir(), "state.db")
	must(t, openTest(t, path).Close())
	tamper(t, path, func(tx *bolt.Tx) error { return tx.Bucket(bucketQueues).Put([]byte("\x00a"), []byte("{")) })
	if _, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), "carillon check") {
		t.Error(err)
	}
}

// Counts that have drifted away from the file are found.
func TestCheckFindsWrongQueueCounts(t *testing.T) {
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"))
	update(t, s, func(b *Batch) {
		b.C.Index = 5
		must(t, b.PutQueue(Queue{Namespace: job.DefaultNamespace, Name: "a", Version: 1}))
	})
	for _, spoil := range []func(*QueueUse){func(u *QueueUse) { u.Claimed++ }, func(u *QueueUse) { u.Jobs-- }, func(u *QueueUse) { u.Concurrency = 9 }} {
		u := &s.idx.queues.all[1]
		was := *u
		spoil(u)
		if problems, _, err := s.Check(); err != nil || len(problems) != 1 || !strings.Contains(problems[0], `queue "a"`) {
			t.Errorf("%q %v", problems, err)
		}
		*u = was
	}
	s.idx.queues.rows++
	if problems, _, err := s.Check(); err != nil || len(problems) != 1 || !strings.Contains(problems[0], "rows of queues") {
		t.Errorf("%q %v", problems, err)
	}
}

// How many queues are declared is counted, in the batch, after it and after opening again. A batch sees its own rows: where batches
// end differs from node to node, and whether one more queue is refused must not.
func TestDeclaredQueues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path)
	want := func(b *Batch, n int) {
		t.Helper()
		if got := b.DeclaredQueues(); got != n {
			t.Errorf("%d queues are declared, want %d", got, n)
		}
	}
	change := func(b *Batch) {
		want(b, 0)
		must(t, b.PutQueue(Queue{Namespace: job.DefaultNamespace, Name: "a", Version: 1}))
		must(t, b.PutQueue(Queue{Namespace: job.DefaultNamespace, Name: "b", Version: 1}))
		must(t, b.PutQueue(Queue{Namespace: job.DefaultNamespace, Name: "b", Version: 1, Paused: true}))
		want(b, 2)
		must(t, b.DeleteQueue(inDefault("b")))
		must(t, b.DeleteQueue(inDefault("b")))
		must(t, b.DeleteQueue(inDefault("never")))
		want(b, 1)
		b.C.Index = 5
	}
	b, err := s.Begin()
	must(t, err)
	change(b)
	b.Rollback()
	update(t, s, change)
	update(t, s, func(b *Batch) { want(b, 1) })
	if problems, _, err := s.Check(); err != nil || len(problems) != 0 {
		t.Errorf("%q %v", problems, err)
	}
	must(t, s.Close())
	s = openTest(t, path)
	update(t, s, func(b *Batch) {
		want(b, 1)
		must(t, b.DeleteQueue(inDefault("a")))
		want(b, 0)
	})
}

// What a claim and its end cost for their queue's sake.
func BenchmarkQueueOfAClaim(b *testing.B) {
	s, err := Open(filepath.Join(b.TempDir(), "state.db"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var classes []uint32
	for _, texts := range [][]string{{"queue\x00mail\x00zone=eu", "queue\x00video", "shell\x00"}, {"queue\x00new"}} {
		batch, err := s.Begin()
		if err != nil {
			b.Fatal(err)
		}
		for _, text := range texts {
			c, err := batch.Class(text)
			if err != nil {
				b.Fatal(err)
			}
			classes = append(classes, c)
		}
		if len(texts) > 1 {
			if err := batch.Commit(); err != nil {
				b.Fatal(err)
			}
			continue
		}
		defer batch.Rollback()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			c := classes[i%len(classes)]
			if q, ok := batch.ClassQueue(c); ok && !q.Room() {
				b.Fatal("no room")
			}
			batch.countClaim(c, 1)
			batch.countClaim(c, -1)
		}
	}
}

func inDefault(name string) job.QueueKey {
	return job.QueueKey{Namespace: job.DefaultNamespace, Name: name}
}
