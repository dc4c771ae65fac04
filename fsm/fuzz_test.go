package fsm

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// FuzzDecodeCommand: any bytes are a command or an error, and what was read is written and read again as the same.
func FuzzDecodeCommand(f *testing.F) {
	for _, cmd := range everyCommand() {
		f.Add(mustEncode(f, cmd))
	}
	f.Add([]byte{})
	f.Add([]byte{numbers[reflect.TypeFor[*Claim]()], commandVersion, 0xdf, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		cmd, err := Decode(data)
		if err != nil {
			return
		}
		again, err := Encode(cmd)
		if err != nil {
			if len(data) < MaxEntry/2 {
				t.Fatal(err)
			}
			return
		}
		back, err := Decode(again)
		if err != nil {
			t.Fatalf("%+v was written as %x, which cannot be read: %v", cmd, again, err)
		}
		third, err := Encode(back)
		if err != nil || !bytes.Equal(again, third) {
			t.Fatalf("%+v is not stable: %x, then %x (%v)", cmd, again, third, err)
		}
	})
}

// smallWorld has a job in every situation and a run in every state.
func smallWorld(t testing.TB) *world {
	t.Helper()
	w := newWorld(t)
	for _, policy := range []string{job.OverlapSkip, job.OverlapQueue, job.OverlapAllow, job.OverlapReplace} {
		id := w.create(T(10), overlap(policy)) // jobs 1 to 4
		w.claim(id, T(70))
		w.claim(id, T(130))
	}
	retrying := w.create(T(10), nil) // 5
	w.complete(w.claim(retrying, T(70)), ResultRetry, T(20))
	dead := w.create(T(10), nil) // 6
	w.complete(w.claim(dead, T(70)), ResultDead, 0)
	paused := w.create(T(10), overlap(job.OverlapAllow)) // 7
	w.complete(w.claim(paused, T(70)), ResultRetry, T(20))
	w.want(CodeOK, &Trigger{Job: uint64(paused)})
	w.want(CodeOK, &Pause{Job: uint64(paused)})
	once := w.create(T(10), oneOff) // 8
	w.complete(w.claim(once, 0), ResultSucceeded, 0)
	w.create(T(10), oneOff)                                       // 9
	w.create(0, func(s *job.Spec) { s.Schedule = "@manual" })     // 10
	fill := w.create(T(1000), func(s *job.Spec) { s.Name = "x" }) // 11
	w.now = T(900)
	w.want(CodeOK, &Backfill{Job: uint64(fill), At: []int64{T(100), T(200)}, Request: Request{ID: "r", Expires: T(9999)}})
	bad := w.create(T(10), nil) // 12
	w.want(CodeOK, &Quarantine{Job: uint64(bad), Gen: 1, Why: "x"})
	catchup := w.create(T(10), nil) // 13
	w.want(CodeOK, w.advanceOf(catchup, T(910), Gap{}, T(10), T(70)))
	w.want(CodeQueued, &Trigger{Job: uint64(catchup)})
	for range 2 { // 14 and 15: a queue that is full
		w.create(T(10), inQueue("mail"))
	}
	w.want(CodeOK, limit("mail", 1))
	w.claim(14, T(70))
	w.want(CodeOK, limit("video", 2))
	for range 3 { // 16 to 18: one to be sent, one being sent, one done
		id := w.create(T(1000), notifies)
		w.complete(w.claimRun(w.want(CodeOK, &Trigger{Job: uint64(id)}).Run), ResultDead, 0)
	}
	w.want(CodeOK, w.claimNotice(17))
	w.want(CodeOK, w.claimNotice(18))
	w.want(CodeOK, w.settleNotice(18, store.ChannelWebhook, 0, 0, 0))
	return w
}

// FuzzApply: arbitrary commands end in a sound state or in an error, and never in a panic.
func FuzzApply(f *testing.F) {
	w := smallWorld(f)
	for _, cmd := range everyCommand() {
		reflect.ValueOf(cmd).Elem().FieldByName("Head").Set(reflect.ValueOf(Head{Now: T(950), Term: 1}))
		f.Add(mustEncode(f, cmd), mustEncode(f, cmd))
	}
	for seed := range uint64(40) {
		g := newGen(w, seed)
		w.now = T(950)
		f.Add(mustEncode(f, w.stamp(g.next())), mustEncode(f, w.stamp(g.next())))
	}
	index := w.index
	var file bytes.Buffer // the state file itself is mostly room to grow
	if _, err := w.st.CopyTo(&file); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		path := filepath.Join(t.TempDir(), "state.db")
		if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		w := newWorldAt(t, path)
		for i, data := range [][]byte{a, b} {
			cmd, err := Decode(data)
			if err != nil {
				continue
			}
			h, n := cmd.head(), cmd.items()
			r := w.f.Apply(&raft.Log{Index: index + uint64(i) + 1, Term: h.Term, Type: raft.LogCommand, Data: data})
			if reply, ok := r.(*Reply); ok && len(reply.Items) != n {
				t.Fatalf("%+v has %d items and %d outcomes", cmd, n, len(reply.Items))
			}
			if _, failed := r.(error); failed {
				if !mayEnd(cmd) {
					t.Fatalf("%+v ended the process: %v", cmd, r)
				}
				break
			}
		}
		w.check()
	})
}

// mayEnd says that a command is one of the few that may end the process: it carries a definition that cannot be read, or raises the
// feature level above what the process supports.
func mayEnd(cmd Command) bool {
	var defs [][]byte
	switch c := cmd.(type) {
	case *SetLevel:
		return c.Level > Level
	case *Create:
		for _, it := range c.Items {
			defs = append(defs, it.Def)
		}
	case *Update:
		defs = append(defs, c.Def)
	}
	for _, d := range defs {
		if _, err := store.DecodeDefinition(d); err != nil {
			return true
		}
	}
	return false
}
