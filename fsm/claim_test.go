package fsm

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

func TestClaimGivesFenceAttemptAndMovesOn(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	w.now = T(11)
	o := w.claim(id, T(70))
	if o.Code != CodeClaimed || o.Fence != 1 || o.Attempt != 1 || o.Run != scheduled(id, T(10)) {
		t.Fatalf("%+v", o)
	}
	s, p := w.state(id)
	if p.At != T(70) || s.LastNominal != T(10) || s.Active != 1 || s.Runs != 1 {
		t.Fatalf("%+v %+v", s, p)
	}
	row, _ := w.row(o.Run)
	if row.Status != job.RunClaimed || row.Worker != "w1" || row.Incarnation != 1 || row.ClaimedAt != T(11) {
		t.Fatalf("%+v", row)
	}
	w.complete(o, ResultSucceeded, 0)
	w.wantHistory(id, line{Status: job.RunSucceeded, At: T(10), Attempt: 1})
}

// Two leaders, or one twice: an occurrence is claimed once.
func TestAnOccurrenceIsClaimedOnce(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapAllow))
	c := w.claimOf(id, T(70))
	again := *c
	w.want(CodeClaimed, c)
	again.Head = Head{}
	w.unchanged(CodeStale, &again)

	// In one batch, and in one command.
	twice := w.claimOf(id, T(130))
	addClaim(twice, store.DueKey{Lane: job.Lane(twice.Lane[0]), Ready: T(70), Job: id, Kind: store.KindOccurrence, Origin: job.OriginSchedule, At: T(70)}, twice.Gen[0], T(130))
	items := w.do(twice)[0].Items
	if items[0].Code != CodeClaimed || items[1].Code != CodeStale {
		t.Fatalf("%+v", items)
	}
}

// Whatever a proposer got wrong or saw too late changes nothing, apart from the applied index and the mark.
func TestStaleClaimsChangeNothing(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	paused := w.create(T(10), nil)
	w.want(CodeOK, &Pause{Job: uint64(paused)})
	w.now = T(20)
	base := func() *Claim { return w.claimOf(id, T(70)) }
	for name, mutate := range map[string]func(*Claim){
		"generation":     func(c *Claim) { c.Gen[0]++ },
		"lane":           func(c *Claim) { c.Lane[0]++ },
		"ready":          func(c *Claim) { c.Ready[0]++ },
		"time":           func(c *Claim) { c.At[0]++ },
		"kind":           func(c *Claim) { c.Kind[0] = byte(store.KindExtra)<<4 | byte(job.OriginSchedule) },
		"unknown kind":   func(c *Claim) { c.Kind[0] = 0xf1 },
		"unknown job":    func(c *Claim) { c.Jobs[0] = 999 },
		"paused job":     func(c *Claim) { c.Jobs[0] = uint64(paused) },
		"next = now":     func(c *Claim) { c.Next[0], c.NextReady[0] = c.At[0], c.At[0] },
		"next goes back": func(c *Claim) { c.Next[0], c.NextReady[0] = T(5), T(5) },
	} {
		c := base()
		mutate(c)
		t.Log(name)
		w.unchanged(CodeStale, c)
	}
	for name, mutate := range map[string]func(*Claim){
		"ready before its time": func(c *Claim) { c.NextReady[0] = c.Next[0] - 1 },
		"beyond all times":      func(c *Claim) { c.Next[0], c.NextReady[0] = 1<<60, 1<<60 },
		"ready beyond":          func(c *Claim) { c.NextReady[0] = 1 << 60 },
	} {
		c := base()
		mutate(c)
		t.Log(name)
		w.unchanged(CodeRefused, c)
	}
	w.want(CodeClaimed, base())
}

// The runtime state's generation makes an edit and a claim exclude each other: whichever comes first wins, the other is told.
func TestEditRacingWithAClaim(t *testing.T) {
	slower := func(s *job.Spec) { s.Schedule = "0 * * * *" }

	t.Run("the claim comes first", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(10), nil)
		w.now = T(10)
		edit := w.updateOf(id, T(3600), slower) // computed from the entry at T(10)
		o := w.claim(id, T(70))
		w.unchanged(CodeMoved, edit)
		w.complete(o, ResultSucceeded, 0)
		w.want(CodeOK, w.updateOf(id, T(3600), slower)) // recomputed
		w.wantHistory(id, line{Status: job.RunSucceeded, At: T(10), Attempt: 1})
	})
	t.Run("the edit comes first", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(10), nil)
		w.now = T(10)
		claim := w.claimOf(id, T(70))
		edit := w.updateOf(id, T(3600), slower)
		edit.Dropped = gap(T(10), T(10), 1, job.RunSkipped, job.ReasonEdited)
		w.want(CodeOK, edit)
		w.unchanged(CodeStale, claim)
		w.wantHistory(id, line{Status: job.RunSkipped, Reason: job.ReasonEdited, At: T(10), Count: 1})
	})
	t.Run("an edit that keeps the due time still has a new generation", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(10), nil)
		claim := w.claimOf(id, T(70))
		w.want(CodeOK, w.updateOf(id, T(10), func(s *job.Spec) { s.Timeout = job.Duration(1e9) }))
		w.unchanged(CodeStale, claim)
		if o := w.claim(id, T(70)); o.Code != CodeClaimed {
			t.Fatalf("%+v", o)
		}
	})
	t.Run("both in one batch", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(10), nil)
		claim, edit := w.claimOf(id, T(70)), w.updateOf(id, T(10), func(s *job.Spec) { s.Timeout = job.Duration(1e9) })
		r := w.do(claim, edit)
		if r[0].Items[0].Code != CodeClaimed || r[1].Items[0].Code != CodeMoved {
			t.Fatalf("%+v %+v", r[0], r[1])
		}
	})
	t.Run("an occurrence that was claimed is never scheduled again", func(t *testing.T) {
		w := newWorld(t)
		id := w.create(T(10), nil)
		w.complete(w.claim(id, T(70)), ResultSucceeded, 0)
		w.unchanged(CodeMoved, w.updateOf(id, T(10), slower))
		w.unchanged(CodeMoved, w.updateOf(id, T(5), slower))
	})
}

func TestEntriesAtOrBelowTheAppliedIndexAreSkipped(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), overlap(job.OverlapAllow))
	w.claim(id, T(70))
	before, err := w.st.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range w.f.ApplyBatch(w.log) {
		if r != errReplayed {
			t.Fatalf("%v", r)
		}
	}
	if after, _ := w.st.Digest(); after != before {
		t.Fatal("a replay changed the state")
	}
	// A replay that ends in something new applies only that.
	next := w.entry(w.claimOf(id, T(130)))
	out := w.f.ApplyBatch(w.log)
	if out[0] != errReplayed || out[1] != errReplayed || out[2].(*Reply).Items[0].Code != CodeClaimed {
		t.Fatalf("%v", out)
	}
	if index, term := w.f.Applied(); index != next.Index || term != next.Term {
		t.Fatalf("%d %d", index, term)
	}
}

func TestATermThatIsNotTheEntrysOwnIsRefused(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	w.now = T(20)
	s, _ := w.state(id)
	old := Head{Now: T(1_000_000), Term: 7}
	claim := w.claimOf(id, T(70))
	claim.Head = old
	mark := w.st.Counters().Mark
	w.unchanged(CodeStale, claim, &Stamp{Head: old, Takeover: true}, &Init{Head: old, ClusterID: "x"}, &Delete{Head: old, Job: uint64(id)},
		&Pause{Head: old, Job: uint64(id)}, &Trigger{Head: old, Job: uint64(id)}, &ClockReset{Head: old}, &Trim{Head: old, Limit: 10},
		&Quarantine{Head: old, Job: uint64(id), Gen: s.Gen}, &Calendar{Head: old, Name: "a", Data: []byte("{}")},
		&Create{Head: old, Items: []CreateItem{{Job: 9, Def: w.def(testSpec(nil), 1)}, {Job: 10, Def: w.def(testSpec(nil), 1)}}})
	if got := w.st.Counters().Mark; got != mark {
		t.Fatalf("the mark moved from %d to %d", mark, got)
	}
}

func TestConfigurationEntriesOnlyMoveTheIndex(t *testing.T) {
	w := newWorld(t)
	w.create(T(10), nil)
	before := w.digest()
	out := w.f.ApplyBatch([]*raft.Log{{Index: w.index + 1, Term: 2, Type: raft.LogConfiguration, Data: []byte("whatever")}})
	if out[0] != nil || w.digest() != before {
		t.Fatalf("%v", out)
	}
	if index, term := w.f.Applied(); index != w.index+1 || term != 2 {
		t.Fatalf("%d %d", index, term)
	}
}

// The columns carry many items; each has its own outcome, whatever becomes of its neighbours.
func TestEveryItemHasItsOwnOutcome(t *testing.T) {
	w := newWorld(t)
	var ids []job.ID
	for range 5 {
		ids = append(ids, w.create(T(10), nil))
	}
	c := w.claimOf(ids[0], T(70))
	for _, id := range ids[1:] {
		s, p := w.state(id)
		addClaim(c, p.Due(id), s.Gen, T(70))
	}
	c.Gen[1] = 99
	c.Next[3] = 1
	got := w.do(c)[0].Items
	want := []Code{CodeClaimed, CodeStale, CodeClaimed, CodeStale, CodeClaimed}
	for i, o := range got {
		if o.Code != want[i] {
			t.Errorf("item %d: %d, want %d", i, o.Code, want[i])
		}
	}
	if got[0].Fence != 1 || got[2].Fence != 2 || got[4].Fence != 3 {
		t.Errorf("fences %d %d %d", got[0].Fence, got[2].Fence, got[4].Fence)
	}
}

// The last run by max_runs leaves nothing behind it, if it becomes a run. One that is skipped did not use max_runs up.
func TestLastClaimParksTheJobOnlyIfItCounts(t *testing.T) {
	for policy, code := range map[string]Code{job.OverlapSkip: CodeSkipped, job.OverlapQueue: CodeQueued, job.OverlapAllow: CodeClaimed, job.OverlapReplace: CodeQueued} {
		for _, open := range []bool{false, true} {
			w := newWorld(t)
			id := w.create(T(10), overlap(policy))
			want := CodeClaimed
			if open {
				w.claim(id, T(70))
				want = code
			}
			c := w.claimOf(id, T(130))
			c.Flags = []byte{ClaimLast}
			o := w.want(want, c)
			if s, p := w.state(id); p.Parked != (o.Code != CodeSkipped) || !p.Parked && p.At != T(130) || s.ParkedAt != 0 {
				t.Errorf("%s, open %v: %+v %+v", policy, open, s, p)
			}
		}
	}
}

// Fences stay below 2^53, whatever the epoch: a claim that would have a higher one is refused.
func TestFencesEndBeforeReadersLoseDigits(t *testing.T) {
	w := newWorld(t)
	first, second := w.create(T(10), nil), w.create(T(10), nil)
	b, err := w.st.Begin()
	if err != nil {
		t.Fatal(err)
	}
	b.C.Fence = 1<<FenceBits - 2
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	if o := w.claim(first, T(70)); o.Code != CodeClaimed || o.Fence != 1<<FenceBits-1 || float64(o.Fence) == float64(o.Fence-1) {
		t.Fatalf("%+v", o)
	}
	if o := w.claim(second, T(70)); o.Code != CodeRefused {
		t.Fatalf("%+v", o)
	}
}
