package store_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

// A census of a state finds each job whose entry is gone, or that has one too many, and only those.
func TestCensusFindsWhatIsMissingOrDoubled(t *testing.T) {
	s, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{NoSync: true, MmapSize: 1 << 26})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	place := func(at int64) store.Place { return store.Place{Ready: at, At: at} }
	change := func(do func(b *store.Batch) error) {
		t.Helper()
		b, err := s.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if err := do(b); err != nil {
			t.Fatal(err)
		}
		if err := b.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	const jobs = 3000 // more than one view
	change(func(b *store.Batch) error {
		for i := range job.ID(jobs) {
			id := i + 1
			spec := job.Spec{Name: fmt.Sprint("job-", uint64(id)), Type: job.TypeShell, Schedule: "* * * * *",
				Payload: []byte(`{"command":"true"}`)}
			spec.Normalize()
			def := store.Definition{Spec: spec, Version: 1, CreatedAt: 1}
			if err := b.PutDefinition(id, def.Append(nil)); err != nil {
				return err
			}
			p := place(60_000 * int64(id))
			p.Lane = job.Lane(id % job.Lanes)
			if err := b.PutState(id, &store.State{Gen: 1, Lane: p.Lane, Paused: id%2 == 0}, // as it would be after a pause
				store.Place{Parked: id%2 == 0, Lane: p.Lane, Ready: p.Ready, At: p.At}); err != nil {
				return err
			}
		}
		return nil
	})
	find := func() string {
		t.Helper()
		n, first, err := scheduler.FindUnscheduled(s, 2)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d%v", n, first)
	}
	if got := find(); got != "0[]" {
		t.Fatalf("nothing is wrong: %s", got)
	}
	change(func(b *store.Batch) error { return b.PutState(2001, &store.State{Gen: 1}, store.Place{Parked: true}) })
	if got := find(); !strings.HasPrefix(got, "1[") || !strings.Contains(got, "(job-2001) has no next occurrence; it should "+
		"have one at 1970-01-01T00:01:00Z") {
		t.Errorf("parked: %s", got)
	}
	change(func(b *store.Batch) error { return b.LoseEntry(1001) })
	if got := find(); !strings.HasPrefix(got, "2[") || !strings.Contains(got, "(job-1001) has no next occurrence: ") {
		t.Errorf("the entry is gone: %s", got)
	}
	change(func(b *store.Batch) error { return b.PutStray(501, place(7), &store.State{Gen: 1}) })
	if got := find(); !strings.HasPrefix(got, "3[") { // two of them are named
		t.Errorf("two entries: %s", got)
	}
	change(func(b *store.Batch) error {
		for id, at := range map[job.ID]int64{1001: 5, 2001: 6} {
			if err := b.PutState(id, &store.State{Gen: 1}, place(at)); err != nil {
				return err
			}
		}
		return nil
	})
	if got := find(); !strings.HasPrefix(got, "1[") || !strings.Contains(got, "(job-501) has a next occurrence at "+
		"1970-01-01T00:00:00.007Z that is not its own") {
		t.Errorf("only the two entries: %s", got)
	}
}
