package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/names"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

// homes are other groups, as a keeper sees them.
type homes struct {
	t     *testing.T
	mu    sync.Mutex
	asked []string // kind, name and request of what was to be reserved
	calls int
	say   map[string]names.Outcome // by name; default: it is reserved
}

func (h *homes) call(_ context.Context, group uint32, q *names.Ask, a *names.Answer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	for _, it := range q.Reserve {
		h.asked = append(h.asked, fmt.Sprint(it.Name.Kind, " ", it.Name.Name, " ", it.Request))
		o, ok := h.say[it.Name.Name]
		if !ok {
			o = names.Outcome{Code: fsm.CodeOK, Number: uint64(100 + len(h.asked)), Group: it.Group}
		}
		if it.Name.Kind == job.NameQueue && it.Group != group {
			h.t.Errorf("%+v is asked for at group %d", it, group)
		}
		a.Outcomes = append(a.Outcomes, o)
	}
	return nil
}

// groupService is the service of group 3 of a cluster that began with some groups and has 3.
func groupService(t *testing.T, began uint32) (*Service, *homes) {
	st, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{NoSync: true, MmapSize: 1 << 24})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	apply(t, st, 1, &fsm.Init{Head: fsm.Head{Now: 1, Term: 1}, ClusterID: "c", Group: 3, GroupID: "g", Homes: began, Groups: 3})
	h := &homes{t: t, say: map[string]names.Outcome{}}
	k := names.New(names.Options{Store: st, Call: h.call, Logger: slog.New(slog.DiscardHandler)})
	b := &Service{o: Options{Store: st, Names: k}, src: &view.Source{Store: st}}
	return b, h
}

func apply(t *testing.T, st *store.Store, index uint64, cmd fsm.Command) fsm.Outcome {
	data, err := fsm.Encode(cmd)
	if err != nil {
		t.Fatal(err)
	}
	r := fsm.New(st, fsm.Options{}).ApplyBatch([]*raft.Log{{Index: index, Term: 1, Type: raft.LogCommand, Data: data}})[0]
	reply, ok := r.(*fsm.Reply)
	if !ok || reply.Items[0].Code != fsm.CodeOK {
		t.Fatalf("%T: %+v", cmd, r)
	}
	return reply.Items[0]
}

// homed is a name of a kind whose home is the service's group, or another one.
func homed(kind job.NameKind, began uint32, here bool) string {
	for i := 0; ; i++ {
		name := fmt.Sprint("n", i)
		if (job.HomeOf(kind, job.DefaultNamespace, name, began) == 3) == here {
			return name
		}
	}
}

func newJob(name string, change func(*creation)) *creation {
	spec := &job.Spec{Name: name, Type: job.TypeHTTP, Schedule: "* * * * *", Payload: []byte(`{"url":"http://x/"}`)}
	c := &creation{spec: spec, request: fsm.Request{ID: "s:1", Fingerprint: 7}}
	if change != nil {
		change(c)
	}
	spec.Normalize()
	return c
}

func inQueue(name string) func(*creation) {
	return func(c *creation) { c.spec.Type, c.spec.Payload = job.TypeQueue, []byte(`{"queue":"`+name+`"}`) }
}

func keyed(c *creation) { c.again, c.request.ID = "k:1", "k:1" }

// Only what could be taken in another group is asked for there, once for all jobs of a chunk.
func TestNamesAreReservedAwayFromHome(t *testing.T) {
	b, h := groupService(t, 3)
	near, far := homed(job.NameJob, 3, true), homed(job.NameJob, 3, false)
	items := []*creation{newJob(near, nil), newJob("", nil), newJob("", keyed), newJob(far, keyed)}
	if got := b.reserve(t.Context(), items); !slices.Equal(got, items) {
		t.Errorf("%d of %d jobs can be created", len(got), len(items))
	}
	if want := []string{"1 " + far + " k:1"}; !slices.Equal(h.asked, want) {
		t.Errorf("%q was asked for, want %q", h.asked, want)
	}
	cmd, _ := newBatcher(&forward.Epoch{}, &scheduler.Schedules{}, 0).command(items, 0, 1)
	for i, it := range cmd.Items {
		if want := i == 3; (it.Reservation == 101) != want || (it.Home != 0) != want {
			t.Errorf("job %d has reservation %d of group %d", i, it.Reservation, it.Home)
		}
	}

	b, h = groupService(t, 2) // it grew: a request that is repeated may come to another group than at first
	items = []*creation{newJob("", nil), newJob("", keyed), newJob("n1", nil), newJob("n2", nil), newJob("n3", nil)}
	b.reserve(t.Context(), items)
	if len(h.asked) != 4 || h.calls != 2 || !slices.Contains(h.asked, "2 k:1 k:1") {
		t.Errorf("%q was asked for in %d calls", h.asked, h.calls)
	}
}

func TestRefusedNames(t *testing.T) {
	b, h := groupService(t, 2)
	h.say["taken"] = names.Outcome{Code: fsm.CodeExists, Job: 9, Group: 1}
	h.say["pending"] = names.Outcome{Code: fsm.CodePending}
	h.say["reused"] = names.Outcome{Code: fsm.CodeKeyReused}
	for name, code := range map[string]job.Code{"taken": job.CodeOtherGroup, "pending": job.CodeUnavailable,
		"reused": job.CodeKeyReused} {
		c := newJob(name, nil)
		if open := b.reserve(t.Context(), []*creation{c}); len(open) != 0 || job.CodeOf(c.err) != code {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if err := outcomeError(fsm.Outcome{Code: fsm.CodePending}, "x"); job.CodeOf(err) != job.CodeUnavailable {
		t.Error(err)
	}
}

// A job whose reservation was given up meanwhile gets another one; one with an unknown outcome is left alone.
func TestAbortedReservationIsMadeAgain(t *testing.T) {
	b, _ := groupService(t, 2)
	items := []*creation{newJob("a", nil), newJob("b", nil), newJob("c", nil)}
	b.reserve(t.Context(), items)
	items[0].outcome = fsm.Outcome{Code: fsm.CodeOK, Job: 1}
	items[1].outcome = fsm.Outcome{Code: fsm.CodeAborted}
	items[2].err = errors.New("unknown")
	if got := b.decided(items); len(got) != 1 || got[0] != items[1] {
		t.Errorf("%d jobs come again", len(got))
	}
	tries := 0
	o, err := b.changeReserved(t.Context(), func(held *reserved) (fsm.Outcome, error) {
		tries++
		if *held != (reserved{}) {
			t.Errorf("it begins with %+v", held)
		}
		if tries < 2 {
			return fsm.Outcome{Code: fsm.CodeAborted}, errors.New("aborted")
		}
		return fsm.Outcome{Code: fsm.CodeOK}, nil
	})
	if tries != 2 || o.Code != fsm.CodeOK || err != nil {
		t.Errorf("%+v, %v after %d tries", o, err, tries)
	}
}

// The jobs of a queue are in its group. One that is edited does not leave its own.
func TestQueueOfAnotherGroup(t *testing.T) {
	b, h := groupService(t, 2)
	h.say["mail"] = names.Outcome{Code: fsm.CodeOK, Group: 1}
	items := []*creation{newJob("", inQueue("mail")), newJob("", inQueue("mail")), newJob("", inQueue("here"))}
	h.say["here"] = names.Outcome{Code: fsm.CodeOK, Group: 3}
	if open := b.reserve(t.Context(), items); len(open) != 1 || open[0] != items[2] || h.calls != 2 {
		t.Errorf("%d jobs can be created after %d calls", len(open), h.calls)
	}
	for _, c := range items[:2] {
		var known *job.Error
		if !errors.As(c.err, &known) || known.Code != job.CodeOtherGroup || known.Field != "1" {
			t.Errorf("%v", c.err)
		}
	}
	old := view.Held{Def: store.Definition{Spec: *newJob("old", nil).spec}}
	_, err := b.renamed(t.Context(), &old, newJob("old", inQueue("mail")).spec, fsm.Request{ID: "r"})
	var known *job.Error
	if !errors.As(err, &known) || known.Code != job.CodeInvalid || known.Remedy == "" {
		t.Errorf("an edit into it: %v", err)
	}
	if _, err := b.renamed(t.Context(), &old, newJob("old", inQueue("here")).spec, fsm.Request{ID: "r"}); err != nil {
		t.Errorf("an edit into a queue of its group: %v", err)
	}
	got, err := b.renamed(t.Context(), &old, newJob("new", nil).spec, fsm.Request{ID: "r"})
	if err != nil || got.grant.Number == 0 || got.name.Name != "new" {
		t.Errorf("a new name: %+v, %v", got, err)
	}
}

// The home of a name sends those who look for its job to the group that it is kept for.
func TestJobIsLookedForInItsGroup(t *testing.T) {
	b, _ := groupService(t, 3)
	name := homed(job.NameJob, 3, true)
	ref := job.NameRef{Kind: job.NameJob, Namespace: job.DefaultNamespace, Name: name}
	look := func() error {
		_, err := b.look(name, api.Space{})
		return err
	}
	if err := look(); job.CodeOf(err) != job.CodeNotFound {
		t.Errorf("before: %v", err)
	}
	head := fsm.Head{Now: 1, Term: 1}
	o := apply(t, b.o.Store, 2, &fsm.Reserve{Head: head, Items: []fsm.ReserveItem{{Name: ref, Request: "r", Group: 1}}})
	for i := range uint64(2) { // pending, and confirmed
		var known *job.Error
		if err := look(); !errors.As(err, &known) || known.Code != job.CodeOtherGroup || known.Field != "1" {
			t.Errorf("while it is kept: %v", err)
		}
		apply(t, b.o.Store, 3+i, &fsm.ConfirmNames{Head: head, Items: []fsm.NameItem{{Name: ref, Number: o.Version,
			Job: 1<<job.GroupShift | 1}}})
	}
	apply(t, b.o.Store, 5, &fsm.ReleaseNames{Head: head, Items: []fsm.NameItem{{Name: ref, Number: o.Version}}})
	if err := look(); job.CodeOf(err) != job.CodeNotFound {
		t.Errorf("after: %v", err)
	}
}
