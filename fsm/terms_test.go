package fsm

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// A claim keeps what the attempt was started with; an edit does not change it.
func TestAClaimKeepsItsTerms(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	w.now = T(10)
	c := w.claimOf(id, T(70))
	c.Timeout[0], c.Version[0] = 5_000, 1
	o := w.want(CodeClaimed, c)
	w.want(CodeOK, w.updateOf(id, T(70), func(s *job.Spec) { s.Timeout = 60e9 }))
	if row, _ := w.row(o.Run); row.Timeout != 5_000 || row.Version != 1 || row.Ready != T(10) {
		t.Errorf("%+v", row)
	}
	w.complete(o, ResultSucceeded, 0)
	if r := w.history(id)[0]; r.Version != 1 || r.Ready != T(10) {
		t.Errorf("%+v", r)
	}
}

// An assignment of a run that is open already is made from a definition as well: if that was edited since, the claim is stale.
func TestAClaimOfAnOpenRunNamesItsGeneration(t *testing.T) {
	w := newWorld(t)
	id := w.create(T(10), nil)
	run := w.want(CodeOK, &Trigger{Job: uint64(id)}).Run
	row, _ := w.row(run)
	due, _ := row.Due(run)
	s, _ := w.state(id)
	early := &Claim{}
	addClaim(early, due, s.Gen, 0)
	w.want(CodeOK, w.updateOf(id, T(10), func(s *job.Spec) { s.Payload = []byte(`{"url":"http://h/other"}`) }))
	if o := w.one(early); o.Code != CodeStale {
		t.Errorf("claimed with the definition before the edit: %+v", o)
	}
	if o := w.claimRun(run); o.Attempt != 1 {
		t.Errorf("%+v", o)
	}
}
