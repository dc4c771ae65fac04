package fsm

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

var ci = Caller{Token: "abcdefghijkm", Name: "ci", Address: "192.0.2.7"}

// by is a command that a caller asked for.
func (w *world) by(c Caller, cmd Command) Command {
	h := Head{Now: w.now, Term: w.term, By: &c}
	reflect.ValueOf(cmd).Elem().FieldByName("Head").Set(reflect.ValueOf(h))
	return cmd
}

func (w *world) audits() (out []store.Audit) {
	w.Helper()
	next := uint64(0)
	err := w.st.View(func(v *store.View) error {
		return v.EachAudit(0, func(seq uint64, a store.Audit) bool {
			if next++; seq != next {
				w.Fatalf("record %d follows %d", seq, next-1)
			}
			out = append(out, a)
			return true
		})
	})
	if err != nil {
		w.Fatal(err)
	}
	return out
}

// The table says of every command what a record calls it, and then the command names its object; or that no caller asks
// for it.
func TestEveryCommandHasAnAction(t *testing.T) {
	for i := range commands {
		k := &commands[i]
		if k.make == nil {
			continue
		}
		_, records := k.make().(recorded)
		_, creates := k.make().(*Create)
		_, several := k.make().(acting)
		switch actions := strings.Fields(k.actions); {
		case len(actions) == 0:
			t.Errorf("%s has no action: name it in commands, or say that it is unrecorded", k.typ)
		case records == (k.actions == unrecorded) && !creates:
			t.Errorf("%s: the table says %q, and whether it names an object is %v", k.typ, k.actions, records)
		case several != (len(actions) > 1):
			t.Errorf("%s: the table says %q, and whether it chooses among several is %v", k.typ, k.actions, several)
		case k.actions != unrecorded && slices.ContainsFunc(actions, func(a string) bool {
			kind, verb, ok := strings.Cut(a, ".")
			return !ok || kind == "" || verb == ""
		}):
			t.Errorf("%s: %q is not a kind of object, a dot and a verb", k.typ, k.actions)
		}
	}
}

// Each kind of object is in its ring because it was put there: what gives access must not be pushed out by
// edits of jobs because its kind is a new word.
func TestEveryKindHasItsRing(t *testing.T) {
	ordinary := []string{"job", "run", "dead", "calendar", "queue"}
	for _, action := range Actions() {
		a := store.Audit{Action: action}
		if slices.Contains(ordinary, a.Kind()) == a.Guarded() {
			t.Errorf("%s: add %q to guarded in store/audit.go if it is about who may do what, otherwise to this test", action, a.Kind())
		}
	}
}

// Each recorded command leaves exactly one record, with its caller, and none when it is repeated under its key.
func TestEveryRecordedCommandLeavesOneRecord(t *testing.T) {
	for i := range commands {
		k := &commands[i]
		if k.make == nil || k.actions == unrecorded {
			continue
		}
		if _, creates := k.make().(*Create); creates {
			continue
		}
		t.Run(k.typ.Elem().Name(), func(t *testing.T) {
			w := newWorld(t)
			cmd := k.make()
			fillSample(reflect.ValueOf(cmd).Elem())
			if n, ok := cmd.(*Note); ok {
				n.Action = "backup.create"
			}
			if b, ok := cmd.(*Backfill); ok {
				b.At, b.Keys, b.Left = nil, nil, nil
			}
			if u, ok := cmd.(*Update); ok {
				u.Def = w.def(testSpec(nil), 2)
			}
			w.now = T(1)
			w.by(ci, cmd)
			o := w.one(cmd)
			w.one(cmd)
			got := w.audits()
			want := 1
			if o.Code != CodeOK || cmd.(recorded) != nil && !hasRequest(cmd) {
				want = 2 // what was refused, or has no key, was tried twice
			}
			if o.Code == CodeOK {
				if _, ok := cmd.(*PutNode); ok {
					want = 1
				}
			}
			if len(got) != want {
				t.Fatalf("%d records: %+v", len(got), got)
			}
			a := got[0]
			if a.Token != ci.Token || a.Name != ci.Name || a.Address != ci.Address || a.At != T(1) ||
				!slices.Contains(strings.Fields(k.actions), a.Action) || (a.Outcome == "") != (o.Code == CodeOK) {
				t.Errorf("%+v, outcome %+v", a, o)
			}
			if hasRequest(cmd) && a.Request == "" {
				t.Errorf("%+v does not name its request", a)
			}
		})
	}
}

func hasRequest(cmd Command) bool {
	return reflect.ValueOf(cmd).Elem().FieldByName("Request").IsValid()
}

func TestRecordsNameWhatWasDone(t *testing.T) {
	w := newWorld(t)
	def := func(name string) []byte {
		return w.def(testSpec(func(s *job.Spec) { s.Name, s.Namespace = name, "team-a" }), 1)
	}
	local := Caller{Name: "admin socket of n1"}
	bulk := Caller{Token: "t2", Name: "loader", Bulk: true, Request: "load-1"}
	w.do(&Create{Callers: []Caller{ci, bulk}, Items: []CreateItem{
		{Job: 1, Def: def("a"), By: 1, Request: Request{ID: "t:abcdefghijkm:k1", Fingerprint: 1, Expires: T(99)}},
		{Job: 2, Def: def("b"), By: 2}, {Job: 3, Def: def("c"), By: 2}, {Job: 4, Def: def("a"), By: 2},
		{Job: 5, Def: def("d")}, // no request asked for it
		{Job: 6, Def: w.def(testSpec(func(s *job.Spec) { s.Name, s.Schedule = "a", "@manual"; s.Namespace = "team-a" }), 1), By: 1},
	}})
	// A repetition, by key and by name.
	w.do(&Create{Callers: []Caller{ci, bulk}, Items: []CreateItem{
		{Job: 7, Def: def("a"), By: 1, Request: Request{ID: "t:abcdefghijkm:k1", Fingerprint: 1, Expires: T(99)}},
		{Job: 8, Def: def("b"), By: 2}}})
	w.want(CodeOK, w.by(local, &Pause{Job: 1, Request: Request{ID: "s:k2", Expires: T(99)}}))
	w.want(CodeOK, w.by(ci, &Delete{Job: 2}))
	w.want(CodeNotFound, w.by(ci, &Delete{Job: 2}))
	w.want(CodeMoved, w.by(ci, &Resume{Job: 1})) // it is proposed again
	w.want(CodeOK, w.by(ci, &PutQueue{Name: "mail", Set: QueuePaused, Paused: true}))
	w.want(CodeOK, w.by(ci, &PutQueue{Name: "mail", Set: QueuePaused}))
	w.want(CodeOK, w.by(ci, &PutQueue{Name: "mail", Set: QueuePaused | QueueConcurrency, Concurrency: 3}))
	w.want(CodeOK, w.by(ci, &Calendar{Name: "off", Namespace: "team-a", Data: []byte("{}")}))
	w.want(CodeOK, w.by(ci, &Calendar{Name: "off", Namespace: "team-a"}))
	w.want(CodeOK, w.by(ci, &Trigger{Job: 3}))
	w.want(CodeOK, w.by(ci, &Cancel{Job: 3, All: true}))
	w.want(CodeOK, &Pause{Job: 3}) // no request asked for it

	at := job.ID(1).String()
	want := []string{
		"ci job.create " + at + " a team-a  k1 0/0/0",
		"ci job.create " + at + " a team-a duplicate_name  0/0/0",
		"loader job.create   team-a  load-1 2/1/0",
		"admin socket of n1 job.pause " + at + " a team-a  k2 0/0/0",
		"ci job.delete " + job.ID(2).String() + " b team-a   0/0/0",
		"ci job.delete " + job.ID(2).String() + "   not_found  0/0/0",
		"ci queue.pause  mail default   0/0/0",
		"ci queue.resume  mail default   0/0/0",
		"ci queue.put  mail default   0/0/0",
		"ci calendar.put  off team-a   0/0/0",
		"ci calendar.delete  off team-a   0/0/0",
		"ci job.run " + job.ID(3).String() + " c team-a   0/0/0",
		"ci job.cancel " + job.ID(3).String() + " c team-a   1/0/0",
	}
	var got []string
	for _, a := range w.audits() {
		got = append(got, fmt.Sprintf("%s %s %s %s %s %s %s %d/%d/%d", a.Name, a.Action, a.ID, a.Object, a.Namespace, a.Outcome, a.Request,
			a.Done, a.Unchanged, a.Refused))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// However much is edited, and however many secrets are changed, who was given access stays; each ring has its own bound,
// and the numbers are those of all.
func TestAuditRingsAreBounded(t *testing.T) {
	defer func(b store.AuditBounds) { auditBounds = b }(auditBounds)
	auditBounds = store.AuditBounds{Ordinary: 5, Guarded: 3, Secrets: 2}
	w := newWorld(t)
	for i := range 4 {
		w.want(CodeOK, w.by(ci, &CreateToken{Token: tokenRow(fmt.Sprint("t", i))}))
	}
	for range 20 {
		w.want(CodeOK, w.by(ci, &PutQueue{Name: "mail", Set: QueuePaused, Paused: true}))
	}
	for range 6 {
		w.want(CodeNotFound, w.by(ci, &DeleteSecret{Namespace: "default", Name: "key"}))
	}
	var seqs []uint64
	if err := w.st.View(func(v *store.View) error {
		return v.EachAuditBack(0, func(seq uint64, _ store.Audit) bool {
			seqs = append(seqs, seq)
			return true
		})
	}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(seqs, []uint64{30, 29, 24, 23, 22, 21, 20, 4, 3, 2}) {
		t.Errorf("%v", seqs)
	}
	if c := w.st.Counters(); c.AuditSeq != 30 || c.Audits != 5 || c.GuardedAudits != 3 ||
		c.SecretAudits != 2 {
		t.Errorf("%+v", c)
	}
}

// A change that does not get to the disk leaves no record, and the one that does leaves both.
func TestRecordAndChangeAreOneTransaction(t *testing.T) {
	w := newWorld(t)
	l := w.entry(w.by(ci, &PutQueue{Name: "mail", Set: QueuePaused, Paused: true}))
	path := w.st.Path()
	if err := w.st.Close(); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left on device")
	st, err := store.Open(path, store.Options{BeforeCommit: func() error { return full }})
	if err != nil {
		t.Fatal(err)
	}
	f := New(st, Options{Fatal: func(error) {}, Level: 1 << 30})
	if err, ok := f.Apply(l).(error); !ok || !errors.Is(err, full) {
		t.Fatalf("%v", err)
	}
	if c := st.Counters(); c.AuditSeq != 0 || st.Queue(job.QueueKey{Namespace: "default", Name: "mail"}).Declared {
		t.Errorf("%+v", c)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	w.open()
	if got := w.audits(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	if r, ok := w.f.ApplyBatch([]*raft.Log{l})[0].(*Reply); !ok || r.Items[0].Code != CodeOK {
		t.Fatalf("%+v", r)
	}
	if got := w.audits(); len(got) != 1 || got[0].Action != "queue.pause" ||
		!w.st.Queue(job.QueueKey{Namespace: "default", Name: "mail"}).Declared {
		t.Errorf("%+v", got)
	}
	w.check()
}

// Only what was done is recorded as done, whatever outcomes there will be.
func TestOutcomesOfRecords(t *testing.T) {
	for c := range Code(255) {
		done := c == CodeOK || c == CodeQueued
		if got := outcomeName(c); (got == "") != done {
			t.Errorf("code %d is recorded as %q", c, got)
		}
	}
}

// A node that joins has no token of the API: its record names the join token that it came with.
func TestRecordOfAJoinNamesItsToken(t *testing.T) {
	w := secureWorld(t)
	join := joinRow(1, T(3600))
	w.want(CodeOK, &MakeSecure{CA: keys.Hash{1}.String(), Join: join})
	row := store.Node{ID: "n2", Instance: "i2", Address: "h:2", Level: Level}
	w.want(CodeOK, w.by(Caller{Address: "192.0.2.7"}, &PutNode{Node: row, Join: join.ID}))
	row = store.Node{ID: "n3", Instance: "i3", Address: "h:3", Level: Level}
	w.want(CodeRefused, w.by(Caller{Address: "192.0.2.8"}, &PutNode{Node: row, Join: join.ID})) // it was for one
	var got []string
	for _, a := range w.audits() {
		got = append(got, strings.Join([]string{a.Action, a.ID, a.Name, a.Address, a.Outcome}, " "))
	}
	want := []string{"member.join n2 join token " + join.ID + " 192.0.2.7 ", "member.join n3 join token " + join.ID + " 192.0.2.8 refused"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// A text is not cut within a character, or it could not be shown as it was.
func TestClip(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"short", "short"},
		{strings.Repeat("x", 300), strings.Repeat("x", 256)},
		{strings.Repeat("x", 255) + "é", strings.Repeat("x", 255)},
		{strings.Repeat("x", 253) + "🔔", strings.Repeat("x", 253)},
		{strings.Repeat("x", 252) + "🔔y", strings.Repeat("x", 252) + "🔔"},
		{strings.Repeat("\x80", 300), strings.Repeat("\x80", 252)}, // no text at all
	} {
		if got := clip(tt.in); got != tt.want {
			t.Errorf("%q: %q", tt.in, got)
		}
	}
}

// What a request says is bounded in a record.
func TestRecordsAreBounded(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", 4000)
	w.want(CodeRefused, w.by(Caller{Token: long, Name: long, Address: long, Request: long},
		&Calendar{Name: long, Namespace: long, Data: []byte("{}"), Request: Request{ID: "k:" + long[:1000]}}))
	a := w.audits()[0]
	if n := len(a.Token) + len(a.Name) + len(a.Address) + len(a.Object) + len(a.Namespace) + len(a.Request); n != 6*maxAuditText {
		t.Errorf("%d bytes", n)
	}
}
