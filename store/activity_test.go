package store

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// What happens in a namespace is known as that of this one alone, once it is committed.
func TestActivity(t *testing.T) {
	s := newTest(t)
	const mine, theirs = "mine", "theirs"
	key := job.RunKey{Job: 1, At: 1000, Origin: job.OriginManual}
	var st State
	var row Row
	var letter uint64
	dead := func() *Dead { return &Dead{Run: key, Row: row} }
	for i, c := range []struct {
		name string
		do   func(b *Batch)
		want touch
	}{
		{"a job", func(b *Batch) {
			st = addJob(t, b, 1, func(s *job.Spec) { s.Namespace = mine }, Place{Parked: true}, nil)
			addJob(t, b, 2, func(s *job.Spec) { s.Namespace = theirs }, Place{Parked: true}, nil)
		}, 0},
		{"a run that comes", func(b *Batch) {
			row = Row{Status: job.RunPending, Class: st.Class, Lane: st.Lane}
			must(t, b.PutRun(key, nil, &row))
		}, touchRuns},
		{"one that is held", func(b *Batch) {
			held := row
			held.Status, held.Held = job.RunWaiting, job.RunPending
			must(t, b.PutRun(key, &row, &held))
			row = held
		}, 0},
		{"a claim", func(b *Batch) {
			claimed := row
			claimed.Status, claimed.Held, claimed.Fence = job.RunClaimed, job.RunNone, 7
			must(t, b.PutRun(key, &row, &claimed))
			row = claimed
		}, touchRuns},
		{"its end", func(b *Batch) {
			must(t, b.DeleteRun(key, &row))
			var err error
			letter, err = b.Append(&Record{Job: 1, Status: job.RunDead, Recorded: 1}, &st)
			must(t, err)
			must(t, b.PutDead(letter, dead()))
		}, touchRuns | touchDead},
		{"a purge", func(b *Batch) { must(t, b.DeleteDead(letter, dead())) }, touchDead},
	} {
		before, others := s.Activity(mine), s.Activity(theirs)
		update(t, s, func(b *Batch) {
			b.C.Index = uint64(i + 1)
			c.do(b)
		})
		var got touch
		a := s.Activity(mine)
		if a.Runs != before.Runs {
			got |= touchRuns
		}
		if a.Dead != before.Dead {
			got |= touchDead
		}
		if got != c.want {
			t.Errorf("%s: %d changed, want %d", c.name, got, c.want)
		}
		if s.Activity(theirs) != others {
			t.Errorf("%s counts in another namespace", c.name)
		}
	}
	before := s.Activity(mine)
	b, err := s.Begin()
	must(t, err)
	b.C.Index++
	must(t, b.PutRun(key, nil, &row))
	b.Rollback()
	update(t, s, func(b *Batch) { b.C.Index++ })
	if s.Activity(mine) != before {
		t.Error("a batch that was dropped counts")
	}
}
