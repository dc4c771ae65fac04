package fsm

import (
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

func notifies(s *job.Spec) { s.Notify = &job.Notify{Webhook: "ops"} }

func (w *world) notices(id job.ID) (out []store.Notice) {
	w.Helper()
	err := w.st.View(func(v *store.View) (err error) {
		out, err = v.JobNotices(id)
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *world) lastNotice(id job.ID) (n store.Notice, ok bool) {
	w.Helper()
	err := w.st.View(func(v *store.View) (err error) {
		n, ok, err = v.LastNotice(id)
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return n, ok
}

// wantTold holds a job's part of the outbox against kinds.
func (w *world) wantTold(id job.ID, kinds ...store.NotifyOn) {
	w.Helper()
	var got []store.NotifyOn
	for _, n := range w.notices(id) {
		got = append(got, n.Kind)
	}
	if !slices.Equal(got, kinds) {
		w.Fatalf("%s tells %v, want %v", id, got, kinds)
	}
}

// claimNotice claims a job's oldest notification for its webhook.
func (w *world) claimNotice(id job.ID) *ClaimNotices {
	w.Helper()
	n := w.notices(id)[0]
	return &ClaimNotices{Node: "n1", Jobs: []uint64{uint64(id)}, Seqs: []uint64{n.Seq}, Want: []byte{1}, Try: []byte{1}}
}

func (w *world) settleNotice(id job.ID, sent, unknown, failed store.Channels, retryAt int64) *SettleNotices {
	w.Helper()
	n := w.notices(id)[0]
	return &SettleNotices{Jobs: []uint64{uint64(id)}, Seqs: []uint64{n.Seq}, Attempt: []uint32{n.Attempts}, Sent: []byte{byte(sent)}, Unknown: []byte{byte(unknown)},
		Failed: []byte{byte(failed)}, RetryAt: []int64{retryAt}, Error: []string{"the webhook answered 503"}}
}

// run makes a run of a job end, by hand.
func (w *world) run(id job.ID, res Result) job.RunKey {
	w.Helper()
	w.now += 1000
	k := w.want(CodeOK, &Trigger{Job: uint64(id)}).Run
	w.complete(w.claimRun(k), res, w.now)
	return k
}

const (
	failure  = store.NotifyFailure
	recovery = store.NotifyRecovery
)

func allow(s *job.Spec) { notifies(s); s.Overlap = job.OverlapAllow }

func TestAChangeIsToldOnce(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100_000), allow)
	w.run(id, ResultSucceeded)
	w.wantTold(id) // healthy, and stays so
	k := w.run(id, ResultDead)
	w.run(id, ResultDead)
	w.wantTold(id, failure)
	n := w.notices(id)[0]
	if run, ok := n.Run(); !ok || run != k || n.Status != job.RunDead || n.Job != id || n.At == 0 || n.Attempts != 0 {
		t.Errorf("%+v", n)
	}
	if s, _ := w.state(id); !s.Failing {
		t.Errorf("%+v", s)
	}
	w.run(id, ResultSucceeded)
	w.run(id, ResultSucceeded)
	w.wantTold(id, failure, recovery)
	w.run(id, ResultDead)
	w.wantTold(id, failure, recovery, failure)

	silent := w.create(T(100_000), nil)
	w.run(silent, ResultDead)
	w.run(silent, ResultSucceeded)
	w.wantTold(silent)
	if n := w.st.NoticeCount(); n != 3 {
		t.Errorf("%d notifications", n)
	}
	// All of it is in the file.
	if err := w.st.Close(); err != nil {
		t.Fatal(err)
	}
	w.open()
	w.wantTold(id, failure, recovery, failure)
	if n := w.st.NoticeCount(); n != 3 {
		t.Errorf("%d notifications", n)
	}
	w.check()
}

// What is a failure, and what is not.
func TestWhatAFailureIs(t *testing.T) {
	for name, c := range map[string]struct {
		spec func(*job.Spec)
		do   func(w *world, id job.ID)
		want []store.NotifyOn
	}{
		"an attempt that is retried": {allow, func(w *world, id job.ID) { w.complete(w.claim(id, T(70)), ResultRetry, T(20)) }, nil},
		"the last attempt":           {allow, func(w *world, id job.ID) { w.complete(w.claim(id, T(70)), ResultDead, 0) }, []store.NotifyOn{failure}},
		"at most once, and its worker is lost": {func(s *job.Spec) { notifies(s); s.Delivery = job.DeliverAtMostOnce },
			func(w *world, id job.ID) { w.want(CodeOK, expireOf(w.claim(id, T(70)))) }, []store.NotifyOn{failure}},
		"a lost worker":  {allow, func(w *world, id job.ID) { w.want(CodeOK, expireOf(w.claim(id, T(70)))) }, nil},
		"a canceled run": {allow, func(w *world, id job.ID) { w.complete(w.claim(id, T(70)), ResultCanceled, 0) }, nil},
		"quarantine":     {allow, func(w *world, id job.ID) { w.want(CodeOK, &Quarantine{Job: uint64(id), Gen: 1, Why: "no such zone"}) }, []store.NotifyOn{failure}},
		"an occurrence that expired": {allow, func(w *world, id job.ID) {
			w.want(CodeOK, w.advanceOf(id, T(70), gap(T(10), T(10), 1, job.RunExpired, job.ReasonDeadline)))
		}, []store.NotifyOn{failure}},
		"an occurrence that was missed": {allow, func(w *world, id job.ID) {
			w.want(CodeOK, w.advanceOf(id, T(70), gap(T(10), T(10), 1, job.RunMissed, job.ReasonOutage)))
		}, nil},
		"an occurrence in a blackout": {allow, func(w *world, id job.ID) {
			w.want(CodeOK, w.advanceOf(id, T(70), gap(T(10), T(10), 1, job.RunSkipped, job.ReasonBlackout)))
		}, nil},
		"a pending run that expired": {allow, func(w *world, id job.ID) {
			k := w.want(CodeOK, &Trigger{Job: uint64(id)}).Run
			row, _ := w.row(k)
			d, _ := row.Due(k)
			w.want(CodeOK, &Advance{Lane: []byte{byte(d.Lane)}, Kind: []byte{byte(d.Kind)<<4 | byte(d.Origin)}, Ready: []int64{d.Ready}, Jobs: []uint64{uint64(id)}, At: []int64{d.At},
				Gen: []uint32{0}, Next: []int64{0}, NextReady: []int64{0}, Gaps: []Gap{gap(d.At, d.At, 1, job.RunExpired, job.ReasonDeadline)}})
		}, []store.NotifyOn{failure}},
		"five lost workers": {allow, func(w *world, id job.ID) {
			o := w.claim(id, T(70))
			w.want(CodeOK, expireOf(o))
			for range 4 {
				w.want(CodeOK, expireOf(w.claimRun(o.Run)))
			}
		}, []store.NotifyOn{failure}},
		"a late success of a canceled run": {allow, func(w *world, id job.ID) {
			o := w.claim(id, T(70))
			w.run(id, ResultDead)
			w.want(CodeOK, &Cancel{Job: uint64(id), At: o.Run.At, Origin: byte(o.Run.Origin)})
			w.complete(o, ResultSucceeded, 0)
		}, []store.NotifyOn{failure, recovery}},
		"failures only": {func(s *job.Spec) {
			s.Overlap = job.OverlapAllow
			s.Notify = &job.Notify{Webhook: "ops", On: []string{"failure"}}
		}, func(w *world, id job.ID) {
			w.run(id, ResultDead)
			w.run(id, ResultSucceeded)
			w.run(id, ResultDead)
		}, []store.NotifyOn{failure, failure}},
		"recoveries only": {func(s *job.Spec) {
			s.Overlap = job.OverlapAllow
			s.Notify = &job.Notify{Webhook: "ops", On: []string{"recovery"}}
		}, func(w *world, id job.ID) {
			w.run(id, ResultSucceeded)
			w.run(id, ResultDead)
			w.run(id, ResultSucceeded)
		}, []store.NotifyOn{recovery}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := w.create(T(10), c.spec)
			w.now = T(10)
			c.do(w, id)
			w.wantTold(id, c.want...)
		})
	}
}

// Runs that are open at the same time change the job in the order in which their ends are committed.
func TestSeveralOpenRunsChangeTheJobInCommitOrder(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), allow)
	w.now = T(10)
	a, b, c, d := w.claim(id, T(70)), w.claim(id, T(130)), w.claim(id, T(190)), w.claim(id, T(250))
	batch := &Complete{}
	for _, x := range []struct {
		o   Outcome
		res Result
	}{{b, ResultDead}, {a, ResultDead}, {d, ResultSucceeded}, {c, ResultDead}} {
		addResult(batch, x.o.Run, x.o.Fence, x.res, 0)
	}
	w.do(batch)
	w.wantTold(id, failure, recovery, failure)
	if runs := w.notices(id); runs[0].RunAt != b.Run.At || runs[1].RunAt != d.Run.At || runs[2].RunAt != c.Run.At {
		t.Errorf("%+v", runs)
	}
	w.do(batch) // reported again: stale, and nothing is sent again
	w.wantTold(id, failure, recovery, failure)
}

func TestARedriveThatSucceedsIsARecovery(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100_000), allow)
	k := w.run(id, ResultDead)
	seqs := w.look().dead
	w.want(CodeOK, &Redrive{Seqs: seqs})
	w.wantTold(id, failure)
	w.complete(w.claimRun(k), ResultSucceeded, 0)
	w.wantTold(id, failure, recovery)
}

func TestEditsOfNotify(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100_000), func(s *job.Spec) { s.Overlap = job.OverlapAllow })
	edit := func(f func(*job.Spec)) { w.want(CodeOK, w.updateOf(id, T(100_000), f)) }
	w.run(id, ResultDead)
	edit(notifies) // it begins with a clean sheet
	w.run(id, ResultSucceeded)
	w.wantTold(id)
	w.run(id, ResultDead)
	w.wantTold(id, failure)
	// Who else is told is no change.
	edit(func(s *job.Spec) { s.Notify = &job.Notify{Webhook: "other", Email: []string{"a@example.com"}} })
	w.run(id, ResultDead)
	w.wantTold(id, failure)
	w.want(CodeOK, w.claimNotice(id))
	claimed := w.settleNotice(id, store.ChannelWebhook, 0, 0, 0)
	edit(func(s *job.Spec) { s.Notify = nil }) // while it is being sent
	w.wantTold(id)
	if _, ok := w.lastNotice(id); ok || w.st.NoticeCount() != 0 {
		t.Error("something is left")
	}
	w.unchanged(CodeStale, claimed)
	if s, _ := w.state(id); s.Failing || s.Notify != 0 {
		t.Errorf("%+v", s)
	}
	w.run(id, ResultSucceeded)
	edit(notifies)
	w.run(id, ResultDead)
	w.wantTold(id, failure)
}

func TestADeletedJobTellsNothing(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100_000), allow)
	w.run(id, ResultDead)
	o := w.claimRun(w.want(CodeOK, &Trigger{Job: uint64(id)}).Run)
	w.want(CodeOK, w.claimNotice(id))
	settle := w.settleNotice(id, store.ChannelWebhook, 0, 0, 0)
	w.want(CodeOK, &Delete{Job: uint64(id)})
	w.wantTold(id)
	w.unchanged(CodeStale, settle)
	w.complete(o, ResultDead, 0) // what its worker had in hand
	w.wantTold(id)
	if w.st.NoticeCount() != 0 {
		t.Error("something is left")
	}
}

// A one-off job whose retention ends is kept until what is to be told about it is told.
func TestCleanupWaitsForNotifications(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), func(s *job.Spec) {
		oneOff(s)
		notifies(s)
		s.Delivery, s.Retention = job.DeliverAtMostOnce, job.Duration(1e9)
	})
	w.now = T(10)
	w.want(CodeOK, expireOf(w.claim(id, 0)))
	cleanup := func() *Cleanup {
		for _, e := range w.look().due {
			if e.Kind == store.KindCleanup {
				return &Cleanup{Lane: []byte{byte(e.Lane)}, Ready: []int64{e.Ready}, Jobs: []uint64{uint64(e.Job)}, Later: w.now + 1000}
			}
		}
		t.Fatal("nothing will ever remove it")
		return nil
	}
	w.now = T(100)
	w.want(CodeRefused, cleanup())
	w.want(CodeOK, w.claimNotice(id))
	w.want(CodeOK, w.settleNotice(id, store.ChannelWebhook, 0, 0, 0))
	w.now = T(200)
	w.want(CodeOK, cleanup())
	if _, ok := w.lastNotice(id); ok || len(w.look().jobs) != 0 {
		t.Error("something is left")
	}
}

func TestNoticesAreClaimedAndSettled(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100_000), func(s *job.Spec) { s.Notify = &job.Notify{Webhook: "ops", Email: []string{"a@example.com"}} })
	w.run(id, ResultDead)
	claim := func(want, try byte) *ClaimNotices {
		c := w.claimNotice(id)
		c.Want, c.Try = []byte{want}, []byte{try}
		return c
	}
	w.unchanged(CodeRefused, claim(3, 0), claim(1, 2), claim(4, 4))
	w.unchanged(CodeStale, w.settleNotice(id, 1, 0, 0, 0), &ClaimNotices{Node: "n1", Jobs: []uint64{uint64(id)}, Seqs: []uint64{99}, Want: []byte{1}, Try: []byte{1}})
	other := claim(3, 3)
	other.Head = Head{Now: w.now, Term: w.term + 1}
	w.unchanged(CodeStale, other) // of another leadership

	if o := w.want(CodeOK, claim(3, 3)); o.Count != 1 {
		t.Errorf("%+v", o)
	}
	w.unchanged(CodeStale, claim(3, 3)) // it is claimed, under any leader
	w.unchanged(CodeRefused, w.settleNotice(id, 1, 1, 0, 0), w.settleNotice(id, 1, 0, 4, 0), w.settleNotice(id, 0, 2, 2, 0))
	first := w.settleNotice(id, store.ChannelWebhook, 0, 0, w.now+5000)
	w.want(CodeOK, first)
	n := w.notices(id)[0]
	if n.Sent != store.ChannelWebhook || n.Trying != 0 || n.NextTry != w.now+5000 || n.Note == "" || n.DoneAt != 0 || n.Node != "n1" || n.Term != w.term {
		t.Errorf("%+v", n)
	}
	w.unchanged(CodeStale, first, claim(3, 3)) // what was sent is not sent again
	if o := w.want(CodeOK, claim(3, 2)); o.Count != 2 {
		t.Errorf("%+v", o)
	}
	w.unchanged(CodeStale, first) // of the claim before
	w.want(CodeOK, w.settleNotice(id, 0, store.ChannelEmail, 0, 0))
	w.wantTold(id)
	n, ok := w.lastNotice(id)
	if !ok || n.Sent != store.ChannelWebhook || n.Unknown != store.ChannelEmail || n.DoneAt != w.now || n.Kind != failure {
		t.Errorf("%+v", n)
	}
	// An edit may take away the only channel that was left.
	w.run(id, ResultSucceeded)
	w.want(CodeOK, claim(3, 3))
	w.want(CodeOK, w.settleNotice(id, store.ChannelWebhook, 0, 0, w.now))
	w.unchanged(CodeRefused, claim(3, 0), claim(0, 0))
	w.want(CodeOK, claim(1, 0))
	w.wantTold(id)
	if last, _ := w.lastNotice(id); last.Sent != store.ChannelWebhook || last.DoneAt == 0 {
		t.Errorf("%+v", last)
	}
	w.run(id, ResultDead)
	w.run(id, ResultSucceeded)
	if last, _ := w.lastNotice(id); last.Kind != recovery || last.Seq <= n.Seq {
		t.Errorf("%+v", last)
	}
}

// A full outbox puts a change off instead of losing it: as no failure was sent, its next failure is the change.
func TestAFullOutboxPutsChangesOff(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100_000), allow)
	for range maxJobNotices {
		w.run(id, ResultDead)
		w.run(id, ResultSucceeded)
	}
	if n := len(w.notices(id)); n != maxJobNotices {
		t.Fatalf("%d notifications", n)
	}
	w.run(id, ResultDead)
	if s, _ := w.state(id); s.Failing || len(w.notices(id)) != maxJobNotices {
		t.Errorf("%+v", s)
	}
	w.want(CodeOK, w.claimNotice(id))
	w.want(CodeOK, w.settleNotice(id, 0, 0, store.ChannelWebhook, 0))
	w.run(id, ResultDead)
	if s, _ := w.state(id); !s.Failing || len(w.notices(id)) != maxJobNotices {
		t.Errorf("%+v", s)
	}
	w.run(id, ResultSucceeded) // no room for the recovery
	if s, _ := w.state(id); !s.Failing {
		t.Errorf("%+v", s)
	}
}

func TestOnlyTheHeadOfAnErrorIsTold(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(100_000), allow)
	c := addResult(&Complete{}, w.want(CodeOK, &Trigger{Job: uint64(id)}).Run, 0, ResultDead, 0)
	c.Fence[0] = w.claimRun(job.RunKey{Job: id, At: c.At[0], Origin: job.Origin(c.Origin[0])}).Fence
	c.Error = []string{strings.Repeat("ü", 4000)}
	w.want(CodeOK, c)
	if e := w.notices(id)[0].Error; len(e) > store.MaxNoticeText+4 || !strings.HasPrefix(e, "üü") || !strings.HasSuffix(e, "ü…") {
		t.Errorf("%q", e)
	}
}

// The cluster that a backup was taken from goes on telling what the backup says is to be told: a restored one tells none of it.
func TestARestoredClusterTellsOnlyItsOwn(t *testing.T) {
	w := newWorld(t)
	waits, claimed, later, open := w.create(T(100_000), allow), w.create(T(100_000), allow), w.create(T(100_000), allow), w.create(T(100_000), allow)
	w.run(waits, ResultDead)
	w.run(waits, ResultSucceeded)
	w.run(claimed, ResultDead)
	w.want(CodeOK, w.claimNotice(claimed))
	o := w.claimRun(w.want(CodeOK, &Trigger{Job: uint64(later)}).Run)
	w.claimRun(w.want(CodeOK, &Trigger{Job: uint64(open)}).Run)
	w.now += 1000
	w.hold()
	w.unchanged(CodeStale, w.claimNotice(waits))
	w.now += 1000
	w.complete(o, ResultDead, 0) // reported here
	w.want(CodeOK, &Release{})
	w.wantTold(waits)
	w.wantTold(claimed)
	w.wantTold(later, failure)
	if n, _ := w.lastNotice(waits); n.Kind != recovery || n.Unknown != store.AllChannels || n.DoneAt != w.now || n.Note == "" {
		t.Errorf("%+v", n)
	}
	w.want(CodeOK, &CloseRestored{Limit: 10})
	w.wantTold(open, failure)
	w.want(CodeOK, w.claimNotice(later))
}
