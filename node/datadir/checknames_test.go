package datadir

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// named is a name that has its home in one of two groups.
func named(home uint32, name string) job.NameRef {
	for job.HomeOf(job.NameJob, "", name, 2) != home {
		name += "x"
	}
	return job.NameRef{Kind: job.NameJob, Namespace: job.DefaultNamespace, Name: name}
}

// putJob writes a job as far as its name needs it.
func putJob(b *store.Batch, id job.ID, name string) error {
	spec := job.Spec{Name: name, Type: job.TypeHTTP, Schedule: "@manual", Payload: []byte(`{}`)}
	spec.Normalize()
	class, err := b.Class(spec.Class())
	if err == nil {
		err = b.PutName(spec.Namespace, spec.Name, id)
	}
	if err == nil {
		err = b.PutDefinition(id, (&store.Definition{Spec: spec, Version: 1}).Append(nil))
	}
	if err == nil {
		err = b.PutState(id, &store.State{Gen: 1, Class: class, Manual: true}, store.Place{Parked: true})
	}
	return err
}

// A name that two jobs have, and a reservation that is kept for ever, are found over the groups of a directory, with
// the groups and the job. What a keeper settles, and what a group that is behind cannot know, is no problem.
func TestCheckNamesOverGroups(t *testing.T) {
	id := job.ID(1<<job.GroupShift | 5)
	reserve := func(b *store.Batch, r store.Reservation) store.Reservation {
		r.Group, r.NameRef = 1, named(2, "a")
		if err := b.Reserve(&r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	hold := func(b *store.Batch) error {
		return b.HoldName(store.Held{NameRef: named(2, "a"), Home: 2, Number: 1, Job: id})
	}
	confirmed := func(b *store.Batch) error { return b.ConfirmName(reserve(b, store.Reservation{}), id) }
	for _, c := range []struct {
		name     string
		one, two func(*store.Batch) error // what is written in group 1 and in group 2
		want     string
	}{
		{"a name away from home", hold, confirmed, ""},
		{"not confirmed yet", hold, func(b *store.Batch) error { reserve(b, store.Reservation{}); return nil }, ""},
		{"the home is behind", hold, nil, ""},
		{"the job's group is behind", func(b *store.Batch) error { b.C.NextJob = 1 << job.GroupShift; return nil },
			confirmed, ""},
		{"to be released", func(b *store.Batch) error {
			if err := hold(b); err != nil {
				return err
			}
			return b.OweName(id, job.NameJob)
		}, confirmed, ""},
		{"released, and the home is behind", func(b *store.Batch) error { return b.SpendNumber(2, 1) }, confirmed, ""},
		{"two jobs have it", hold, func(b *store.Batch) error {
			if err := b.ReleaseName(reserve(b, store.Reservation{})); err != nil {
				return err
			}
			return putJob(b, 2<<job.GroupShift|7, named(2, "a").Name)
		}, "job " + id.String() + " of group 1 and job " + job.ID(2<<job.GroupShift|7).String() + " of group 2 both have"},
		{"nothing keeps it", hold, func(b *store.Batch) error {
			return b.ReleaseName(reserve(b, store.Reservation{}))
		}, "which its home, group 2, does not keep for it"},
		{"kept for another", hold, func(b *store.Batch) error {
			if err := b.ReleaseName(reserve(b, store.Reservation{})); err != nil {
				return err
			}
			return b.ConfirmName(reserve(b, store.Reservation{}), id+1)
		}, "keeps for job " + (id + 1).String() + " of group 1"},
		{"kept for ever", nil, confirmed, "group 2 keeps the name"},
		{"a queue elsewhere", nil, func(b *store.Batch) error {
			return b.Reserve(&store.Reservation{NameRef: job.NameRef{Kind: job.NameQueue, Name: "q"}, Group: 1})
		}, "is pinned to group 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDir(t)
			for group, write := range map[uint32]func(*store.Batch) error{1: c.one, 2: c.two} {
				add(t, d, group, 1)
				f, err := d.OpenFiles(group, FileOptions{State: store.Options{NoSync: true}, Logger: quiet})
				if err != nil {
					t.Fatal(err)
				}
				b, err := f.State.Begin()
				if err != nil {
					t.Fatal(err)
				}
				b.SetInfo(store.Info{Format: store.Format, Level: 1, Group: group, Homes: 2, Groups: 2})
				b.C.NextJob = uint64(group)<<job.GroupShift | 9
				if write != nil {
					err = write(b)
				}
				if err == nil {
					err = b.Commit()
				}
				if err == nil {
					err = f.Close()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			problems, err := d.checkNames([]uint32{0, 1, 2})
			got := strings.Join(problems, "\n")
			if err != nil || (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q %v, want %q", problems, err, c.want)
			}
		})
	}
}
