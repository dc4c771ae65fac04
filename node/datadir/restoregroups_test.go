package datadir

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// testState is the state of a group, as its leader makes it.
type testState struct {
	*testing.T
	st    *store.Store
	f     *fsm.FSM
	index uint64
	now   int64
}

func newState(t *testing.T, info fsm.Init) *testState {
	t.Helper()
	st, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	s := &testState{T: t, st: st, f: fsm.New(st, fsm.Options{Logger: quiet}), now: 1_700_000_000_000}
	s.apply(&info)
	return s
}

func (s *testState) apply(cmd fsm.Command) fsm.Outcome {
	s.Helper()
	data, err := fsm.Encode(cmd)
	if err != nil {
		s.Fatal(err)
	}
	s.index++
	reply, ok := s.f.Apply(&raft.Log{Index: s.index, Type: raft.LogCommand, Data: data}).(*fsm.Reply)
	if !ok {
		s.Fatalf("%T was not applied", cmd)
	}
	return reply.Items[0]
}

// must is apply of what is done.
func (s *testState) must(cmd fsm.Command) fsm.Outcome {
	s.Helper()
	o := s.apply(cmd)
	if o.Code != fsm.CodeOK {
		s.Fatalf("%T: %+v", cmd, o)
	}
	return o
}

func (s *testState) head() fsm.Head {
	s.now++
	return fsm.Head{Now: s.now}
}

// create makes a job, under a reservation of its name at another group if there is one.
func (s *testState) create(name string, home uint32, number uint64) job.ID {
	s.Helper()
	h := s.head()
	spec := job.Spec{Name: name, Type: job.TypeHTTP, Schedule: "* * * * *", Payload: []byte(`{"url":"http://x/"}`)}
	spec.Normalize()
	def := store.Definition{Spec: spec, Version: 1, CreatedAt: h.Now, UpdatedAt: h.Now}
	at := fsm.When{At: 1_800_000_000_000, Ready: 1_800_000_000_000}
	return s.must(&fsm.Create{Head: h, Items: []fsm.CreateItem{{Job: s.st.Counters().NextJob + 1, Def: def.Append(nil),
		Next: at, Home: home, Reservation: number}}}).Job
}

func refOf(name string) job.NameRef {
	return job.NameRef{Kind: job.NameJob, Namespace: job.DefaultNamespace, Name: name}
}

// reserve keeps a name for a job of a group.
func (s *testState) reserve(name string, group uint32) uint64 {
	s.Helper()
	s.now++
	o := s.must(&fsm.Reserve{Head: s.head(), Items: []fsm.ReserveItem{{Name: refOf(name), Request: fmt.Sprint("r", s.now),
		Fingerprint: 1, Group: group}}})
	return o.Version
}

func (s *testState) stream() []byte {
	s.Helper()
	_, _, rc, err := fsm.Stream(s.st, s.TempDir())
	if err != nil {
		s.Fatal(err)
	}
	defer rc.Close()
	data, err := io.ReadAll(rc)
	if err != nil {
		s.Fatal(err)
	}
	return data
}

const testGroups = 3

// newStates are the states of a cluster with three groups of jobs.
func newStates(t *testing.T) []*testState {
	t.Helper()
	all := []*testState{newState(t, fsm.Init{ClusterID: "c", Homes: testGroups})}
	for n := uint32(1); n <= testGroups; n++ {
		id := fmt.Sprint("g", n)
		all[0].must(&fsm.PutGroup{Head: all[0].head(), Row: store.GroupRow{Number: n, ID: id, Begin: "n9",
			State: store.GroupActive, Replicas: []store.GroupReplica{{Node: "n9", Number: 1}, {Node: "n8", Number: 4}}}})
		all = append(all, newState(t, fsm.Init{ClusterID: "c", Group: n, GroupID: id, Homes: testGroups}))
	}
	all[0].must(&fsm.ActivateGroups{Head: all[0].head(), Groups: testGroups})
	return all
}

func archive(all ...*testState) (out []byte) {
	for _, s := range all {
		out = append(out, s.stream()...)
	}
	return out
}

// homed is a name whose home is a group.
func homed(home uint32, beginning string) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint(beginning, i); job.HomeOf(job.NameJob, "", name, testGroups) == home {
			return name
		}
	}
}

func restoreOf(t *testing.T, data []byte) RestoreConfig {
	return RestoreConfig{Backup: bytes.NewReader(data), Name: "x.bak", DataDir: filepath.Join(t.TempDir(), "data"),
		NodeID: "n1", Advertise: "127.0.0.1:9", Version: "v", Now: time.Now()}
}

// restoredStates restores a backup, checks the directory and opens what is in it.
func restoredStates(t *testing.T, data []byte) (Restored, *Dir, []*store.Store) {
	t.Helper()
	c := restoreOf(t, data)
	r, err := Restore(c)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := Check(c.DataDir); err != nil || len(res.Problems) > 0 {
		t.Fatalf("%+v %v", res, err)
	}
	d, err := readDir(c.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	var all []*store.Store
	for _, g := range d.groups() {
		st, err := store.Open(d.groupFile(g, stateName), store.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		all = append(all, st)
	}
	return r, d, all
}

// All groups are restored: with one new identity and one epoch, on hold, each with one replica that no node had before.
func TestRestoreOfGroups(t *testing.T) {
	t.Parallel()
	all := newStates(t)
	var last job.ID
	for _, s := range all[1:] {
		last = s.create(homed(s.st.Info().Group, "job-"), 0, 0)
	}
	data := archive(all...)
	b, err := CopyBackup(io.Discard, bytes.NewReader(data))
	if err != nil || b.Groups != testGroups || b.Jobs != 3 || b.ClusterID != "c" || b.At == 0 {
		t.Fatalf("%+v %v", b, err)
	}
	r, d, states := restoredStates(t, data)
	if r.Groups != testGroups || r.Jobs != 3 || r.Epoch != 1 || r.FromCluster != "c" || len(r.Renamed) > 0 || r.At != b.At {
		t.Errorf("%+v", r)
	}
	if len(states) != testGroups+1 || len(d.Replicas) != testGroups {
		t.Fatalf("%d states, replicas %+v", len(states), d.Replicas)
	}
	for n, st := range states {
		info, c := st.Info(), st.Counters()
		if info.ClusterID != r.ClusterID || info.Epoch != 1 || !info.Hold.On || info.Hold.Cluster != "c" ||
			c.Fence < 1<<EpochShift || info.Group != uint32(n) {
			t.Errorf("group %d: %+v %+v", n, info, c)
		}
	}
	if next := states[3].Counters().NextJob; next <= uint64(last) || job.ID(next).Group() != 3 {
		t.Errorf("the next job after %s is above %d", last, next)
	}
	err = states[0].View(func(v *store.View) error {
		rows, err := v.Groups()
		for i, row := range rows {
			want := store.GroupReplica{Node: "n1", Number: 5, Instance: d.Instance}
			if len(row.Replicas) != 1 || row.Replicas[0] != want || row.Last != 5 || row.State != store.GroupActive ||
				d.Replicas[i] != (Replica{Group: row.Number, GroupID: row.ID, Number: 5}) {
				t.Errorf("%+v, and node.json has %+v", row, d.Replicas[i])
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// What is not the whole backup of one cluster is refused, and leaves nothing.
func TestRestoreOfGroupsRefusals(t *testing.T) {
	t.Parallel()
	all, other := newStates(t), newStates(t)
	third := newState(t, fsm.Init{ClusterID: "c", Group: 3, GroupID: "another", Homes: testGroups})
	strange := newState(t, fsm.Init{ClusterID: "d", Group: 2, GroupID: "g2", Homes: testGroups})
	unready := newState(t, fsm.Init{ClusterID: "c", Homes: testGroups})
	whole := archive(all...)
	end := len(whole) - len(all[3].stream())
	for name, tt := range map[string]struct {
		data  []byte
		words string
	}{
		"the last group is missing":    {archive(all[:3]...), "2 of the 3 groups"},
		"all groups are missing":       {archive(all[0]), "0 of the 3 groups"},
		"a group is missing":           {archive(all[0], all[1], all[3]), "group 3 of cluster c in place of that of group 2"},
		"a group twice":                {archive(all[0], all[1], all[1], all[2]), "in place of that of group 2"},
		"one too many":                 {archive(all[0], all[1], all[2], all[3], all[1]), "group 3"},
		"cut off in the last":          {whole[:len(whole)-100], "group 3"},
		"cut off in a header":          {whole[:end+20], "2 of the 3 groups"},
		"cut off in the first":         {whole[:1000], "x.bak"},
		"of another cluster":           {archive(all[0], all[1], strange, all[3]), "of cluster d in place"},
		"another group of that number": {archive(all[0], all[1], all[2], third), "group 3 is not the one"},
		"a group alone":                {archive(other[2]), "in place of that of group 0"},
		"before the groups were made":  {archive(unready), "being created"},
		"a flipped bit":                {flipped(whole, end-300), "group 2"},
	} {
		c := restoreOf(t, tt.data)
		_, err := Restore(c)
		if err == nil || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := filepath.Glob(c.DataDir); len(left) > 0 {
			t.Errorf("%s left %v", name, left)
		}
		if _, err := CopyBackup(io.Discard, bytes.NewReader(tt.data)); err == nil &&
			name != "another group of that number" && name != "before the groups were made" {
			t.Errorf("%s was taken for whole", name)
		}
	}
	// Cut off, and begun again with less: nothing of the first try is left.
	c := restoreOf(t, whole)
	c.Step = cutOffAt("snapshot made")
	if _, err := Restore(c); err == nil {
		t.Fatal("it was not cut off")
	}
	c.Step, c.Backup = nil, bytes.NewReader(newState(t, fsm.Init{ClusterID: "one"}).stream())
	if _, err := Restore(c); err != nil {
		t.Fatal(err)
	}
	if d, err := readDir(c.DataDir); err != nil || dirs(t, d) != "group-0" || len(d.Replicas) > 0 {
		t.Errorf("%s %+v %v", dirs(t, d), d.Replicas, err)
	}
}

func flipped(data []byte, at int) []byte {
	out := bytes.Clone(data)
	out[at] ^= 4
	return out
}

// holder is the group and number under which a job has a name, as both sides say it.
func holder(t *testing.T, states []*store.Store, name string) (id job.ID) {
	t.Helper()
	home := job.HomeOf(job.NameJob, "", name, testGroups)
	for n, st := range states[1:] {
		err := st.View(func(v *store.View) error {
			has, ok := v.Named(job.DefaultNamespace, name)
			if !ok {
				return nil
			}
			if id != 0 {
				t.Errorf("%q is %s and %s", name, id, has)
			}
			id = has
			var held store.Held
			err := v.EachHeld(func(h store.Held) bool {
				if h.Job == id {
					held = h
				}
				return true
			})
			there := held.Number != 0
			if there == (uint32(n+1) == home) || err != nil {
				t.Errorf("%q is held: %v %v", name, there, err)
			}
			return states[home].View(func(v *store.View) error {
				r, reserved, err := v.Reservation(refOf(name))
				if reserved != there || reserved && (r.Job != id || r.Number != held.Number || r.Group != uint32(n+1)) {
					t.Errorf("%q is reserved: %v %+v, and held %+v", name, reserved, r, held)
				}
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return id
}

// Groups are copied at different moments. After a restore each name has one job, and a reservation exactly if it is
// away from home; what was reserved for none is free.
func TestRestoreSettlesNames(t *testing.T) {
	t.Parallel()
	all := newStates(t)
	one, two, three := all[1], all[2], all[3]
	home := homed(1, "home-")
	both, late, early := homed(2, "both-"), homed(2, "late-"), homed(2, "early-")
	lost, gone := homed(3, "lost-"), homed(3, "gone-")

	atHome := one.create(home, 0, 0)
	// Two jobs got one name, one after the other: group 1 was copied before it gave the name up.
	first := one.create(both, 2, two.reserve(both, 1))
	two.must(&fsm.ReleaseNames{Head: two.head(), Items: []fsm.NameItem{{Name: refOf(both), Number: 1}}})
	second := three.create(both, 2, two.reserve(both, 3))
	// One of them at home: there the last number that it knows of says which one was later.
	old := one.create(late, 2, two.reserve(late, 1))
	two.must(&fsm.ReleaseNames{Head: two.head(), Items: []fsm.NameItem{{Name: refOf(late), Number: 3}}})
	later := two.create(late, 0, 0)
	before := two.create(early, 0, 0)
	after := three.create(early, 2, 4) // group 2 was copied before it gave out that number
	// Its home was copied before the reservation; and a reservation whose job never came.
	unknown := one.create(lost, 3, 7)
	three.reserve(gone, 2)

	r, _, states := restoredStates(t, archive(all...))
	for name, want := range map[string]job.ID{home: atHome, both: second, late: later, early: after, lost: unknown, gone: 0} {
		if got := holder(t, states, name); got != want {
			t.Errorf("%s is of %s, want %s", name, got, want)
		}
	}
	losers := map[job.ID]job.ID{first: second, old: later, before: after}
	for _, x := range r.Renamed {
		if losers[x.Job] != x.Keeper || !strings.HasPrefix(x.Name, x.Was+"-restored-") || holder(t, states, x.Name) != x.Job {
			t.Errorf("%+v", x)
		}
		delete(losers, x.Job)
		err := states[x.Job.Group()].View(func(v *store.View) error {
			s, p, ok, err := v.State(x.Job)
			if !ok || !s.Paused || !p.Parked || s.ParkedAt != 1_800_000_000_000 {
				t.Errorf("%+v: %+v", x, s)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if len(losers) > 0 {
		t.Errorf("not renamed: %v", losers)
	}
	err := states[3].View(func(v *store.View) error {
		_, kept, err := v.Reservation(refOf(gone))
		if kept {
			t.Error("a name is kept for no job")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A node that has no state of a group does not begin again without it; one that has all of them does, also if that was
// cut off before.
func TestRecoverNeedsAllGroups(t *testing.T) {
	t.Parallel()
	all := newStates(t)
	name := homed(2, "away-")
	id := all[1].create(name, 2, all[2].reserve(name, 1))
	c := restoreOf(t, archive(all...))
	if _, err := Restore(c); err != nil {
		t.Fatal(err)
	}
	peers := map[string]string{"n1": "127.0.0.1:9"}
	for i := range 2 { // the second time as after a crash
		r, err := Recover(c.DataDir, peers, quiet)
		if err != nil || !r.Alone || r.Epoch != uint64(i+2) || len(r.Renamed) > 0 {
			t.Fatalf("%+v %v", r, err)
		}
		if res, err := Check(c.DataDir); err != nil || len(res.Problems) > 0 {
			t.Fatalf("%+v %v", res, err)
		}
		d, err := readDir(c.DataDir)
		if err != nil {
			t.Fatal(err)
		}
		for n := range uint32(testGroups + 1) {
			st, err := store.Open(d.groupFile(n, stateName), store.Options{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			if info := st.Info(); info.Epoch != r.Epoch || n == 1 && st.Counters().NextJob <= uint64(id) {
				t.Errorf("group %d: %+v", n, info)
			}
			st.Close()
		}
		d.Recovering = true
		if err := d.Save(); err != nil {
			t.Fatal(err)
		}
	}
	d, err := readDir(c.DataDir)
	if err == nil {
		d.Recovering = false
		err = d.RemoveReplica(2, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = Recover(c.DataDir, peers, quiet)
	wants(t, err, "no state of group 2", "restore a backup")
	if d, err := readDir(c.DataDir); err != nil || d.Recovering {
		t.Errorf("it was begun: %v", err)
	}
}
