package store

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-scheduler/carillon/job"
)

func TestNoticesRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ch := func() Channels { return Channels(rapid.Byte().Draw(rt, "c")) }
		n := Notice{Seq: rapid.Uint64().Draw(rt, "s"), Job: job.ID(rapid.Uint64().Draw(rt, "j")), Kind: NotifyOn(rapid.Byte().Draw(rt, "k")), At: genTime().Draw(rt, "at"),
			RunAt: genTime().Draw(rt, "ra"), Origin: job.Origin(rapid.Byte().Draw(rt, "o")), Status: job.RunStatus(rapid.Byte().Draw(rt, "st")), Reason: job.Reason(rapid.Byte().Draw(rt, "re")),
			Error: rapid.String().Draw(rt, "e"), Attempts: rapid.Uint32().Draw(rt, "a"), Want: ch(), Trying: ch(), Sent: ch(), Unknown: ch(), Failed: ch(), Term: rapid.Uint64().Draw(rt, "t"),
			Node: rapid.String().Draw(rt, "n"), TriedAt: genTime().Draw(rt, "tr"), NextTry: genTime().Draw(rt, "nt"), Note: rapid.String().Draw(rt, "no"), DoneAt: genTime().Draw(rt, "d")}
		data := n.encode()
		if got, err := parseNotice(noticeKey(n.Job, n.Seq), data); err != nil || got != n {
			rt.Fatalf("\n got %+v\nwant %+v (%v)", got, n, err)
		}
		if _, err := parseNotice(noticeKey(n.Job, n.Seq), data[:len(data)-1]); err == nil {
			rt.Fatal("a part was read")
		}
	})
}

// The outbox is kept in order by job, counted, and found again; numbers are never given out twice.
func TestOutbox(t *testing.T) {
	s := newTest(t)
	add := func(b *Batch, id job.ID) *Notice {
		n := &Notice{Job: id, Kind: NotifyFailure, At: 5, RunAt: 4, Origin: job.OriginManual, Status: job.RunDead}
		must(t, b.AddNotice(n))
		return n
	}
	update(t, s, func(b *Batch) {
		for _, id := range []job.ID{1, 2} {
			addJob(t, b, id, func(s *job.Spec) { s.Schedule, s.Notify = "@manual", &job.Notify{Webhook: "ops"} }, Place{Parked: true}, nil)
		}
		first := add(b, 1)
		add(b, 2)
		add(b, 1)
		first.DoneAt = 9
		must(t, b.FinishNotice(first))
		if b.Notices() != 2 {
			t.Errorf("%d in the batch", b.Notices())
		}
	})
	look := func(want ...uint64) {
		t.Helper()
		var got []uint64
		must(t, s.View(func(v *View) error {
			return v.EachNotice(func(n Notice) bool { got = append(got, n.Seq); return true })
		}))
		if len(got) != len(want) || s.NoticeCount() != len(want) {
			t.Fatalf("%v in the outbox, want %v", got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%v in the outbox, want %v", got, want)
			}
		}
	}
	look(3, 2)
	must(t, s.View(func(v *View) error {
		if n, ok, err := v.LastNotice(1); err != nil || !ok || n.Seq != 3 {
			t.Errorf("%+v %v %v", n, ok, err)
		}
		if _, ok, err := v.LastNotice(9); err != nil || ok {
			t.Errorf("%v %v", ok, err)
		}
		return nil
	}))
	b, err := s.Begin() // what is rolled back leaves nothing
	must(t, err)
	add(b, 1)
	b.Rollback()
	look(3, 2)
	update(t, s, func(b *Batch) {
		n, ok, err := b.Notice(1, 3)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		n.DoneAt = 9
		must(t, b.FinishNotice(&n))
		must(t, b.DropNotices(2))
		if n := add(b, 2); n.Seq != 4 {
			t.Errorf("number %d", n.Seq)
		}
	})
	must(t, s.Close())
	s = openTest(t, s.path)
	look(4)
	must(t, s.View(func(v *View) error {
		if n, ok, err := v.LastNotice(1); err != nil || !ok || n.Seq != 3 || n.DoneAt != 9 {
			t.Errorf("%+v %v %v", n, ok, err)
		}
		return nil
	}))
	sound(t, s)
}
