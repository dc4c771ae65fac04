package store

import (
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/job"
)

// groupStore is the state of group 2 of two, with a reservation for group 1 and a job that group 1 has reserved the name of.
func groupStore(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "state.db"), Options{NoSync: true, MmapSize: 1 << 28})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	b, err := s.Begin()
	must(t, err)
	b.SetInfo(Info{Format: Format, Level: 1, Group: 2, Homes: 2, Groups: 2})
	b.C.Index = 10
	must(t, b.Reserve(&Reservation{NameRef: refAt(2, "a"), Group: 1, Request: "r", Fingerprint: 7, At: 5}))
	r := Reservation{NameRef: refAt(2, "b"), Group: 1, Request: "q"}
	must(t, b.Reserve(&r))
	must(t, b.ConfirmName(r, 1<<job.GroupShift|9))
	id := job.ID(2<<job.GroupShift | 1)
	b.C.NextJob, b.C.Jobs = uint64(id), 1
	spec := job.Spec{Name: refAt(1, "c").Name, Type: job.TypeHTTP, Schedule: "@manual", Payload: []byte(`{}`)}
	spec.Normalize()
	class, err := b.Class(spec.Class())
	must(t, err)
	lane, _ := job.LaneOf(spec.Priority)
	must(t, b.PutName(spec.Namespace, spec.Name, id))
	must(t, b.PutDefinition(id, (&Definition{Spec: spec, Version: 1}).Append(nil)))
	must(t, b.PutState(id, &State{Gen: 1, Class: class, Lane: lane, Manual: true}, Place{Parked: true}))
	must(t, b.HoldName(Held{NameRef: refAt(1, "c"), Home: 1, Number: 4, Job: id}))
	must(t, b.SpendNumber(1, 3))
	must(t, b.PutGroup(GroupRow{Number: 1, ID: "x", Begin: "n1", State: GroupActive, Version: 10}))
	must(t, b.Commit())
	if problems, _, err := s.Check(); err != nil || len(problems) > 0 {
		t.Fatalf("%v %q", err, problems)
	}
	return s
}

// refAt is a job's name of a prefix that has its home in one of two groups.
func refAt(home uint32, prefix string) job.NameRef {
	for job.HomeOf(job.NameJob, "", prefix, 2) != home {
		prefix += "x"
	}
	return job.NameRef{Kind: job.NameJob, Namespace: job.DefaultNamespace, Name: prefix}
}

func TestReservationsComeBack(t *testing.T) {
	s := groupStore(t)
	must(t, s.View(func(v *View) error {
		r, ok, err := v.Reservation(job.NameRef{Kind: job.NameJob, Name: refAt(2, "a").Name}) // of the usual namespace
		if want := (Reservation{NameRef: refAt(2, "a"), Number: 1, Group: 1, Request: "r", Fingerprint: 7, At: 5}); err != nil || !ok || r != want {
			t.Errorf("%+v %v", r, err)
		}
		h, ok, err := v.Held(1, 4)
		if want := (Held{refAt(1, "c"), 1, 4, 2<<job.GroupShift | 1}); err != nil || !ok || h != want {
			t.Errorf("%+v %v", h, err)
		}
		if !v.NumberOver(1, 3) || v.NumberOver(1, 4) || v.NumberOver(2, 3) {
			t.Error("another number is spent")
		}
		for group, want := range map[uint32]uint64{1: 1, 2: 3} {
			if n, err := v.SettledBelow(group); err != nil || n != want {
				t.Errorf("group %d is settled below %d: %v", group, n, err)
			}
		}
		return nil
	}))
}

// What a restored or recovered group gives out is above all that it gave out before, and says its group.
func TestRaiseEpoch(t *testing.T) {
	s := groupStore(t)
	b, err := s.Begin()
	must(t, err)
	info := b.Info()
	must(t, b.RaiseEpoch(&info, 3))
	b.SetInfo(info)
	r := Reservation{NameRef: refAt(2, "d"), Group: 1, Request: "z"}
	must(t, b.Reserve(&r))
	must(t, b.Commit())
	c := s.Counters()
	if want := uint64(2)<<job.GroupShift | 3<<job.EpochShift; c.NextJob != want || c.Fence != 3<<job.EpochShift ||
		r.Number != 3<<job.EpochShift+1 || s.Info().Epoch != 3 {
		t.Errorf("%+v, reservation %d, %+v", c, r.Number, s.Info())
	}
}

func TestCheckFindsWrongReservations(t *testing.T) {
	held := numberKey(1, 4)
	for _, c := range []struct {
		name  string
		plant func(*bolt.Tx) error
		want  string
	}{
		{"a reservation that cannot be read", put(bucketReserved, refKey(refAt(2, "a")), []byte{1}), "cannot be read"},
		{"a number twice", put(bucketReserved, refKey(refAt(2, "a")), (&Reservation{Number: 2, Group: 1}).encode()), "not given out for it"},
		{"a number to come", put(bucketReserved, refKey(refAt(2, "e")), (&Reservation{Number: 9, Job: 1}).encode()), "not given out for it"},
		{"away from home", put(bucketReserved, refKey(refAt(1, "e")), (&Reservation{Number: 2, Job: 1}).encode()), "not at its home"},
		{"not listed as pending", del(bucketPending, u64(1)), "listed as such: false"},
		{"listed for nothing", put(bucketPending, u64(7), []byte{1}), "listed as pending"},
		{"held and spent", put(bucketSpent, held, []byte{1}), "that is over"},
		{"held and owed", put(bucketOwed, held, refKey(refAt(1, "c"))), "that is over"},
		{"held for another", put(bucketHeld, held, append(u64(8), refKey(refAt(1, "c"))...)), "does not have that name"},
		{"held by no job", del(bucketHeldBy, append(u64(2<<job.GroupShift|1), 1)), "names are held"},
		{"a name that nothing is reserved for", func(tx *bolt.Tx) error {
			if err := del(bucketHeld, held)(tx); err != nil {
				return err
			}
			return del(bucketHeldBy, append(u64(2<<job.GroupShift|1), 1))(tx)
		}, "without a reservation of group 1"},
		{"held unreadably", put(bucketHeld, held, []byte{1}), "cannot be read"},
		{"a group without sense", put(bucketGroups, appendClass(9), []byte(`{"number":8}`)), "makes no sense"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := groupStore(t)
			must(t, s.db.Update(func(tx *bolt.Tx) error {
				for _, b := range groupBuckets {
					if _, err := tx.CreateBucketIfNotExists(b); err != nil {
						return err
					}
				}
				return c.plant(tx)
			}))
			problems, _, err := s.Check()
			if err != nil || !strings.Contains(strings.Join(problems, "\n"), c.want) {
				t.Errorf("%q %v", problems, err)
			}
		})
	}
}
