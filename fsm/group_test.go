package fsm

import (
	"fmt"
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// groupWorld is a group of a cluster that began with four.
func groupWorld(t *testing.T, group uint32) *world {
	w := newWorld(t)
	w.want(CodeOK, &Init{ClusterID: "c", Group: group, GroupID: "g", Homes: 4, Groups: 4})
	return w
}

// nameAt is a name whose home is a group, the n-th of those.
func nameAt(group uint32, n int) job.NameRef {
	for i := 0; ; i++ {
		r := job.NameRef{Kind: job.NameJob, Namespace: "team-a", Name: fmt.Sprint("x", i)}
		if job.HomeOf(r.Kind, r.Namespace, r.Name, 4) == group {
			if n--; n < 0 {
				return r
			}
		}
	}
}

func called(r job.NameRef) func(*job.Spec) {
	return func(s *job.Spec) { s.Namespace, s.Name = r.Namespace, r.Name }
}

// createUnder is a create with a reservation.
func (w *world) createUnder(r job.NameRef, home uint32, number uint64) *Create {
	return &Create{Items: []CreateItem{{Job: w.st.Counters().NextJob + 1, Def: w.def(testSpec(called(r)), 1), Next: When{T(10), T(10)},
		Home: home, Reservation: number}}}
}

// What a group gives out says which group it is where it must be unique over all of them, and only there.
func TestNumbersOfAGroup(t *testing.T) {
	w := groupWorld(t, 3)
	info := w.st.Info()
	if info.Group != 3 || info.GroupID != "g" || info.Homes != 4 || info.Groups != 4 {
		t.Errorf("%+v", info)
	}
	id := w.create(T(10), called(nameAt(3, 0)))
	if id != 3<<56+1 || id.Group() != 3 {
		t.Errorf("the first job is %s", id)
	}
	if back, err := job.ParseID(id.String()); err != nil || back != id {
		t.Errorf("%s was read as %s: %v", id, back, err)
	}
	o := w.claim(id, T(70))
	if o.Run.Job.Group() != 3 || o.Fence != 1 {
		t.Errorf("%+v", o)
	}
	if back, err := job.ParseRunKey(o.Run.String()); err != nil || back != o.Run {
		t.Errorf("%s was read as %s: %v", o.Run, back, err)
	}
	w.complete(o, ResultDead, 0)
	if c := w.st.Counters(); c.HistSeq != 1 || c.NextJob != uint64(id) || c.Dead != 1 {
		t.Errorf("%+v", c)
	}
	w.want(CodeOK, w.by(ci, &Pause{Job: uint64(id)}))
	if a := w.audits(); len(a) != 1 || a[0].ID != id.String() {
		t.Errorf("%+v", a)
	}
	for _, other := range []uint64{2<<56 + 9, 4<<56 + 1, 1 << 60} {
		create := &Create{Items: []CreateItem{{Job: other, Def: w.def(testSpec(nil), 1)}}}
		if o := w.one(create); o.Code != CodeStale && o.Code != CodeRefused {
			t.Errorf("the number %x of another group was taken: %+v", other, o)
		}
	}
	w.reopen() // what is built from the file at open takes these numbers too
	if got := w.named("team-a", nameAt(3, 0).Name); got != id {
		t.Errorf("the name leads to %s", got)
	}
}

// reopen opens the file again.
func (w *world) reopen() {
	w.Helper()
	if err := w.st.Close(); err != nil {
		w.Fatal(err)
	}
	w.open()
	w.check()
}

func TestInitRefusesTooManyGroups(t *testing.T) {
	w := newWorld(t)
	for _, c := range []Init{{Group: job.MaxGroups + 1}, {Homes: job.MaxGroups + 1}, {Groups: job.MaxGroups + 1}} {
		c.ClusterID = "c"
		w.unchanged(CodeRefused, &c)
	}
}

// A log that has jobs is not made that of another group, nor are their names given homes elsewhere: nothing reserved them.
func TestInitRefusesGroupsForJobs(t *testing.T) {
	w := newWorld(t)
	w.create(T(10), func(s *job.Spec) { s.Name = "a" })
	w.unchanged(CodeRefused, &Init{ClusterID: "c", Homes: 7}, &Init{ClusterID: "c", Group: 3, GroupID: "g"})
	w.want(CodeOK, &Init{ClusterID: "c", Homes: 1})
	w.check()
}

// A group that is begun after a recovery is of the cluster's epoch from its first entry on, and so is what it gives out.
func TestGroupOfALaterEpoch(t *testing.T) {
	w := newWorld(t)
	w.want(CodeOK, &Init{ClusterID: "c", Group: 3, GroupID: "g", Homes: 1, Groups: 4, Epoch: 2})
	const first = 2 << job.EpochShift
	if c := w.st.Counters(); w.st.Info().Epoch != 2 || c.Fence != first || c.NextJob != 3<<job.GroupShift|first {
		t.Errorf("epoch %d, %+v", w.st.Info().Epoch, c)
	}
	w.check()
}

// With one group names have no homes: nothing of all this is there.
func TestOneGroupReservesNothing(t *testing.T) {
	w := newWorld(t)
	w.want(CodeOK, &Init{ClusterID: "c"})
	r := job.NameRef{Kind: job.NameJob, Name: "x"}
	w.unchanged(CodeRefused, &Reserve{Items: []ReserveItem{{r, "r1", 1, 1}}})
	w.unchanged(CodeNotFound, &ConfirmNames{Items: []NameItem{{r, 1, 1}}}, &ReleaseNames{Items: []NameItem{{r, 1, 0}}})
	id := w.want(CodeOK, w.createUnder(job.NameRef{Namespace: "team-a", Name: "x"}, 0, 7)).Job
	w.want(CodeOK, &Delete{Job: uint64(id)})
	err := w.st.View(func(v *store.View) error {
		return v.EachOwed(func(h store.Held) bool { t.Errorf("%+v is owed", h); return true })
	})
	if err != nil {
		t.Error(err)
	}
}

func TestReserve(t *testing.T) {
	w := groupWorld(t, 2)
	own, r := nameAt(2, 0), nameAt(2, 1)
	ask := func(name job.NameRef, req string, fp uint64, group uint32) *Reserve {
		return &Reserve{Items: []ReserveItem{{name, req, fp, group}}}
	}
	has := w.create(T(10), called(own))
	if o := w.want(CodeExists, ask(own, "r1", 1, 3)); o.Job != has || o.Group != 2 {
		t.Errorf("%+v", o)
	}
	for _, bad := range []*Reserve{ask(nameAt(1, 0), "r1", 1, 3), ask(r, "", 1, 3), ask(r, "r1", 1, 65), ask(r, "r1", 1, 0),
		ask(job.NameRef{Kind: 9, Name: "x"}, "r1", 1, 3), ask(job.NameRef{Kind: job.NameJob}, "r1", 1, 3),
		ask(job.NameRef{Kind: job.NameJob, Namespace: "no space", Name: "x"}, "r1", 1, 3)} {
		w.unchanged(CodeRefused, bad)
	}
	first := w.want(CodeOK, ask(r, "r1", 1, 3))
	if first.Version != 1 || first.Group != 3 || first.Job != 0 {
		t.Fatalf("%+v", first)
	}
	w.unchanged(CodeOK, ask(r, "r1", 1, 4)) // it resumes, where it began
	if o := w.one(ask(r, "r1", 1, 4)); o.Version != 1 || o.Group != 3 {
		t.Errorf("%+v", o)
	}
	w.unchanged(CodeKeyReused, ask(r, "r1", 2, 3))
	w.unchanged(CodePending, ask(r, "r2", 1, 3), w.createUnder(r, 0, 0))

	jobID := uint64(3<<56 + 5)
	item := func(n, id uint64) []NameItem { return []NameItem{{r, n, id}} }
	w.unchanged(CodeNotFound, &ConfirmNames{Items: item(2, jobID)}, &ReleaseNames{Items: item(2, 0)})
	w.unchanged(CodeRefused, &ConfirmNames{Items: item(1, 4<<56+5)})
	w.want(CodeOK, &ConfirmNames{Items: item(1, jobID)})
	w.unchanged(CodeOK, &ConfirmNames{Items: item(1, jobID)})
	w.unchanged(CodeRefused, &ConfirmNames{Items: item(1, jobID+1)})
	if o := w.want(CodeExists, ask(r, "r2", 1, 4)); o.Job != job.ID(jobID) || o.Group != 3 {
		t.Errorf("%+v", o)
	}
	if o := w.want(CodeOK, ask(r, "r1", 1, 4)); o.Job != job.ID(jobID) || o.Version != 1 {
		t.Errorf("%+v", o)
	}
	w.unchanged(CodeDuplicate, w.createUnder(r, 0, 0))
	u := w.updateOf(has, T(10), called(r))
	w.unchanged(CodeDuplicate, u)
	w.want(CodeOK, &ReleaseNames{Items: item(1, 0)})
	if o := w.want(CodeOK, ask(r, "r2", 1, 2)); o.Version != 0 || o.Group != 2 {
		t.Errorf("a job at home needs no reservation: %+v", o)
	}
	if o := w.want(CodeOK, ask(r, "r2", 1, 4)); o.Version != 2 || o.Group != 4 {
		t.Errorf("%+v", o)
	}
	w.reopen()
	if o := w.want(CodePending, ask(r, "r3", 1, 4)); o.Group != 4 {
		t.Errorf("%+v", o)
	}
}

// The first to use a queue pins it to a group.
func TestQueuesArePinned(t *testing.T) {
	w := groupWorld(t, 2)
	var q job.NameRef
	for i := 0; q.Name == ""; i++ {
		if n := fmt.Sprint("mail", i); job.HomeOf(job.NameQueue, "team-a", n, 4) == 2 {
			q = job.NameRef{Kind: job.NameQueue, Namespace: "team-a", Name: n}
		}
	}
	first := w.want(CodeOK, &Reserve{Items: []ReserveItem{{q, "r1", 1, 2}}})
	if first.Group != 2 || first.Version == 0 {
		t.Errorf("%+v", first)
	}
	w.unchanged(CodeOK, &Reserve{Items: []ReserveItem{{q, "r2", 2, 4}}})
	if o := w.one(&Reserve{Items: []ReserveItem{{q, "r2", 2, 4}}}); o.Group != 2 {
		t.Errorf("%+v", o)
	}
}

// A job away from its name's home: nothing is made under a number that was aborted, spent or settled.
func TestNumbersOfReservations(t *testing.T) {
	w := groupWorld(t, 3)
	r, home := nameAt(1, 0), uint32(1)
	number := func(n uint64) []NameItem { return []NameItem{{Name: r, Number: n}} }
	w.unchanged(CodeAborted, w.createUnder(r, 0, 0))
	w.unchanged(CodeRefused, w.createUnder(r, 2, 5), w.createUnder(nameAt(3, 0), 3, 5))
	if o := w.want(CodeOK, &AbortNames{Home: home, Items: number(5)}); o.Job != 0 {
		t.Errorf("%+v", o)
	}
	w.unchanged(CodeAborted, w.createUnder(r, home, 5))
	id := w.want(CodeOK, w.createUnder(r, home, 6)).Job
	if o := w.want(CodeExists, &AbortNames{Home: home, Items: number(6)}); o.Job != id {
		t.Errorf("%+v", o)
	}
	w.unchanged(CodeExists, w.createUnder(r, home, 6), w.createUnder(r, home, 7)) // the same job
	w.unchanged(CodeRefused, &PaidNames{Home: home, Items: number(6)})

	to := nameAt(2, 0)
	rename := w.updateOf(id, T(10), called(to))
	w.unchanged(CodeAborted, rename)
	w.want(CodeOK, &AbortNames{Home: 2, Items: []NameItem{{Name: to, Number: 1}}})
	rename.Home, rename.Reservation = 2, 1
	w.unchanged(CodeAborted, rename)
	rename.Reservation = 2
	w.want(CodeOK, rename)
	owed := func() (out []uint64) {
		w.st.View(func(v *store.View) error {
			return v.EachOwed(func(h store.Held) bool { out = append(out, uint64(h.Home)<<32|h.Number); return true })
		})
		return out
	}
	if got := owed(); !slices.Equal(got, []uint64{1<<32 | 6}) {
		t.Errorf("%x is owed", got)
	}
	w.unchanged(CodeAborted, w.createUnder(r, home, 6)) // the home has it until it is told
	w.unchanged(CodeOK, &AbortNames{Home: home, Items: number(6)})
	w.want(CodeOK, &PaidNames{Home: home, Below: 6, Items: number(6)})
	w.unchanged(CodeAborted, w.createUnder(r, home, 6), w.createUnder(r, home, 4), w.createUnder(r, home, 5))
	w.want(CodeOK, &PaidNames{Home: home, Below: 9, Items: number(6)})
	w.unchanged(CodeAborted, w.createUnder(r, home, 8))
	w.want(CodeOK, w.createUnder(r, home, 9))
	w.want(CodeOK, &Delete{Job: uint64(id)})
	if got := owed(); !slices.Equal(got, []uint64{2<<32 | 2}) {
		t.Errorf("%x is owed", got)
	}
}

// A job without a name is known at the home of its request's key.
func TestReservationOfARequest(t *testing.T) {
	w := groupWorld(t, 3)
	key := ""
	for i := 0; key == ""; i++ {
		if k := fmt.Sprint("req-", i); job.HomeOf(job.NameRequest, "", k, 4) == 1 {
			key = k
		}
	}
	create := func(home uint32, number uint64, request Request) *Create {
		return &Create{Items: []CreateItem{{Job: w.st.Counters().NextJob + 1, Def: w.def(testSpec(nil), 1), Next: When{T(10), T(10)},
			Request: request, Home: home, Reservation: number}}}
	}
	q := Request{ID: key, Fingerprint: 1, Expires: T(5)}
	id := w.want(CodeOK, create(1, 4, q)).Job
	if o := w.want(CodeOK, create(1, 4, q)); o.Job != id || !o.Replay {
		t.Errorf("%+v", o)
	}
	if o := w.want(CodeExists, &AbortNames{Home: 1, Items: []NameItem{{Number: 4}}}); o.Job != id {
		t.Errorf("%+v", o)
	}
	w.now = T(6)
	w.want(CodeOK, &Trim{Limit: 10}) // the outcome is forgotten, the job is not, and the key is free
	w.unchanged(CodeAborted, create(1, 4, q))
	w.want(CodeOK, &AbortNames{Home: 1, Items: []NameItem{{Number: 4}}})
	w.want(CodeOK, &Delete{Job: uint64(id)})
	w.unchanged(CodeAborted, create(1, 4, q))
}

// A group keeps the newest row that it was told of: an older one, which a leader may still see, changes nothing.
func TestGroupKeepsItsNewestRow(t *testing.T) {
	w := groupWorld(t, 3)
	row := func(epoch, version uint64) store.GroupRow {
		return store.GroupRow{Number: 3, ID: w.st.Info().GroupID, Begin: "n1", State: store.GroupActive, Epoch: epoch,
			Version: version, Last: version, Replicas: []store.GroupReplica{{Node: "n1", Number: version}}}
	}
	put := func(epoch, version uint64) *PutGroup { return &PutGroup{Row: row(epoch, version), Version: version} }
	other, stranger := put(0, 5), put(0, 5)
	other.Row.Number, stranger.Row.ID = 2, "other"
	w.unchanged(CodeRefused, other, stranger)
	for _, v := range []struct{ epoch, version uint64 }{{0, 5}, {0, 9}, {1, 2}, {1, 3}} {
		w.want(CodeOK, put(v.epoch, v.version))
		w.unchanged(CodeConflict, put(v.epoch, v.version), put(v.epoch, v.version-1), put(0, 5))
		w.reopen()
		if got := w.st.Info().Row; got.Epoch != v.epoch || got.Version != v.version || len(got.Replicas) != 1 {
			t.Fatalf("%+v", got)
		}
	}
}

// A node that is to leave goes on leaving, whatever it says of itself, until it is removed.
func TestNodeGoesOnLeaving(t *testing.T) {
	w := newWorld(t)
	node := store.Node{ID: "n2", Instance: "i", Address: "h:1", Level: 1}
	leaving := func() bool {
		var n store.Node
		if err := w.st.View(func(v *store.View) (err error) { n, _, err = v.Node("n2"); return err }); err != nil {
			t.Fatal(err)
		}
		return n.Leaving
	}
	w.want(CodeOK, &PutNode{Node: node})
	node.Leaving = true
	w.want(CodeOK, &PutNode{Node: node})
	w.unchanged(CodeOK, &PutNode{Node: node})
	node.Leaving, node.Address = false, "h:2"
	if w.want(CodeOK, &PutNode{Node: node}); !leaving() {
		t.Error("it came back at another address and stays")
	}
	w.want(CodeOK, &RemoveNode{ID: "n2"})
	node.Instance = "j"
	if w.want(CodeOK, &PutNode{Node: node}); leaving() {
		t.Error("one that joins anew is leaving")
	}
}

func TestPutGroup(t *testing.T) {
	w := newWorld(t)
	w.want(CodeOK, &Init{ClusterID: "c", Homes: 2})
	rep := func(node string, n uint64) store.GroupReplica { return store.GroupReplica{Node: node, Number: n} }
	row := store.GroupRow{Number: 1, ID: "aaa", Begin: "n1", State: store.GroupPreparing,
		Replicas: []store.GroupReplica{rep("n1", 1), rep("n2", 2)}}
	with := func(change func(*store.GroupRow)) store.GroupRow {
		r := row
		r.Replicas = slices.Clone(r.Replicas)
		change(&r)
		return r
	}
	wrong := func(version uint64, changes ...func(*store.GroupRow)) {
		t.Helper()
		for _, c := range changes {
			w.unchanged(CodeRefused, &PutGroup{Row: with(c), Version: version})
		}
	}
	wrong(0, func(r *store.GroupRow) { r.Number = 0 }, func(r *store.GroupRow) { r.Number = 65 }, func(r *store.GroupRow) { r.ID = "" },
		func(r *store.GroupRow) { r.Begin = "" }, func(r *store.GroupRow) { r.State = "done" },
		func(r *store.GroupRow) { r.Replicas[1].Number = 1 }, func(r *store.GroupRow) { r.Replicas[1].Node = "n1" },
		func(r *store.GroupRow) { r.Replicas[0].Number = 0 })
	w.unchanged(CodeConflict, &PutGroup{Row: row, Version: 7})
	v := w.want(CodeOK, &PutGroup{Row: row}).Version
	w.unchanged(CodeConflict, &PutGroup{Row: row}, &PutGroup{Row: row, Version: v + 1})
	wrong(v, func(r *store.GroupRow) { r.ID = "bbb" }, func(r *store.GroupRow) { r.Begin = "n2" },
		func(r *store.GroupRow) { r.Replicas[0].Node = "n3" })
	wrong(0, func(r *store.GroupRow) { r.Number = 2 }) // the id is that of group 1
	w.unchanged(CodeRefused, &ActivateGroups{Groups: 2}, &ActivateGroups{Groups: 1}, &ActivateGroups{Groups: 65})

	row.State = store.GroupActive
	row.Replicas = []store.GroupReplica{{Node: "n1", Number: 1, Instance: "i1"}, rep("n3", 3)} // n2 goes
	v = w.want(CodeOK, &PutGroup{Row: row, Version: v}).Version
	wrong(v, func(r *store.GroupRow) { r.State = store.GroupPreparing }, func(r *store.GroupRow) { r.Replicas[0].Instance = "i2" },
		func(r *store.GroupRow) { r.Replicas = append(r.Replicas, rep("n2", 2)) })
	w.unchanged(CodeRefused, &ActivateGroups{Groups: 2})
	two := store.GroupRow{Number: 2, ID: "bbb", Begin: "n2", State: store.GroupActive}
	w.want(CodeOK, &PutGroup{Row: two})
	w.want(CodeOK, &ActivateGroups{Groups: 2})
	w.unchanged(CodeOK, &ActivateGroups{Groups: 2})
	w.reopen()
	var rows []store.GroupRow
	err := w.st.View(func(v *store.View) (err error) {
		rows, err = v.Groups()
		return err
	})
	if err != nil || len(rows) != 2 || rows[0].Last != 3 || rows[0].Version != v || len(rows[0].Replicas) != 2 || w.st.Info().Groups != 2 {
		t.Errorf("%+v %v", rows, err)
	}
	other := groupWorld(t, 1)
	other.unchanged(CodeRefused, &PutGroup{Row: row}) // it has another id
	other.want(CodeOK, &ActivateGroups{Groups: 5})    // it follows group 0, which has looked
}

// The number of groups that are wanted only rises, one growth at a time, in group 0.
func TestGrowGroups(t *testing.T) {
	w := groupWorld(t, 0)
	w.unchanged(CodeRefused, &GrowGroups{Groups: 3}, &GrowGroups{Groups: 0}, &GrowGroups{Groups: 65})
	w.want(CodeOK, w.by(ci, &GrowGroups{Groups: 4}))
	w.want(CodeOK, w.by(ci, &GrowGroups{Groups: 8}))
	w.unchanged(CodeConflict, &GrowGroups{Groups: 9}, &GrowGroups{Groups: 4})
	w.want(CodeOK, &GrowGroups{Groups: 8})
	if i := w.st.Info(); i.Want != 8 || i.Groups != 4 {
		t.Errorf("%+v", i)
	}
	if a := w.audits(); len(a) != 2 || a[1].ID != "8" && a[0].ID != "8" || a[0].Action != "cluster.grow-groups" {
		t.Errorf("%+v", a)
	}
	w.unchanged(CodeRefused, &ActivateGroups{Groups: 8, List: true}) // there are no such groups yet
	for n := range uint32(8) {
		w.want(CodeOK, &PutGroup{Row: store.GroupRow{Number: n + 1, ID: fmt.Sprint("g", n), Begin: "n1",
			State: store.GroupActive}})
	}
	w.want(CodeOK, &ActivateGroups{Groups: 8, List: true})
	if i := w.st.Info(); i.Listed != 8 || i.Groups != 4 {
		t.Errorf("%+v", i)
	}
	w.unchanged(CodeRefused, &ActivateGroups{Groups: 8, Known: true}) // they take no jobs yet
	w.want(CodeOK, &ActivateGroups{Groups: 8})
	if i := w.st.Info(); i.Listed != 8 || i.Groups != 8 || i.Known != 0 {
		t.Errorf("%+v", i)
	}
	w.want(CodeOK, &ActivateGroups{Groups: 8, Known: true})
	if i := w.st.Info(); i.Groups != 8 || i.Known != 8 {
		t.Errorf("%+v", i)
	}
	groupWorld(t, 2).unchanged(CodeRefused, &GrowGroups{Groups: 8})
	one := newWorld(t)
	for _, cmd := range []Command{&Init{ClusterID: "c"}, &GrowGroups{Groups: 1}, &GrowGroups{Groups: 2}} {
		one.want(CodeOK, cmd)
	}
	if i := one.st.Info(); i.Want != 2 || i.Homes != 0 {
		t.Errorf("%+v", i)
	}
}

// The key of a request is kept at its home until the outcome of the request is forgotten, whatever becomes of the job.
func TestRequestKeysOutliveJobs(t *testing.T) {
	w := groupWorld(t, 2)
	key := job.NameRef{Kind: job.NameRequest, Namespace: "team-a", Name: "k:x"}
	for i := 0; job.HomeOf(key.Kind, key.Namespace, key.Name, 4) != 3; i++ {
		key.Name = fmt.Sprint("k:", i)
	}
	spec := testSpec(func(s *job.Spec) { s.Namespace, s.Name = "team-a", "" })
	id := w.want(CodeOK, &Create{Items: []CreateItem{{Job: w.st.Counters().NextJob + 1, Def: w.def(spec, 1),
		Next: When{T(10), T(10)}, Home: 3, Reservation: 7,
		Request: Request{ID: key.Name, Fingerprint: 1, Expires: w.now + 1000}}}}).Job
	owed := func() (n int) {
		err := w.st.View(func(v *store.View) error { return v.EachOwed(func(store.Held) bool { n++; return true }) })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	w.want(CodeOK, &Trigger{Job: uint64(id), Request: Request{ID: "k:other", Expires: w.now + 1}})
	w.want(CodeOK, &Delete{Job: uint64(id)})
	w.now += 10
	w.want(CodeOK, &Trim{Limit: 100})
	if n := owed(); n != 0 {
		t.Fatalf("%d are owed", n)
	}
	w.check()
	w.now += 10_000
	w.want(CodeOK, &Trim{Limit: 100})
	if n := owed(); n != 1 {
		t.Fatalf("%d are owed", n)
	}
	w.check()
}
