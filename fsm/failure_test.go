//go:build linux

package fsm

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// fillDisk makes every write to the state file fail as on a full disk: its descriptors lead to /dev/full from now on. What is mapped
// stays readable.
func (w *world) fillDisk(t *testing.T) {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	n := 0
	for _, fd := range fds {
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name())); err != nil || target != w.path {
			continue
		}
		var to int
		fmt.Sscan(fd.Name(), &to)
		if err := syscall.Dup3(int(full.Fd()), to, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n == 0 {
		t.Fatal("the state file is not open")
	}
}

// Memory, log and state must not drift apart: after a failed write the process ends, and until it does nothing of the batch is seen.
func TestAStorageErrorEndsTheProcess(t *testing.T) {
	for name, breakIt := range map[string]func(*testing.T, *world){
		"full disk": func(t *testing.T, w *world) { w.fillDisk(t) },
		"closed":    func(t *testing.T, w *world) { w.st.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := w.create(T(10), overlap(job.OverlapAllow))
			o := w.claim(id, T(70))
			before := fullDigest(t, w)
			count := w.st.Counters()
			state, place := w.state(id)
			told := 0
			w.st.Listen(func(*store.Changes) { told++ })

			claim, done := w.claimOf(id, T(130)), addResult(&Complete{}, o.Run, o.Fence, ResultSucceeded, 0)
			breakIt(t, w)
			out := w.f.ApplyBatch([]*raft.Log{w.entry(claim), w.entry(done)})
			if len(w.fatal) != 1 {
				t.Fatalf("fatal: %v", w.fatal)
			}
			for _, r := range out {
				if r != w.fatal[0] {
					t.Errorf("answered with %v", r)
				}
			}
			// Whatever comes now is refused with the same error, and the process was told once.
			if r := w.f.Apply(w.log[0]); r != w.fatal[0] || len(w.fatal) != 1 {
				t.Errorf("answered with %v", r)
			}
			if told != 0 {
				t.Error("listeners were told of what did not happen")
			}
			if name == "full disk" {
				if w.st.Counters() != count {
					t.Errorf("the counters moved: %+v", w.st.Counters())
				}
				if s, p := w.state(id); s != state || p != place {
					t.Errorf("the state moved: %+v %+v", s, p)
				}
				if n := len(w.openRuns(id)); n != 1 {
					t.Errorf("%d open runs", n)
				}
				w.st.Close()
			}
			// The next process finds everything as it was, and the log brings it on.
			w.open()
			w.check()
			if fullDigest(t, w) != before {
				t.Fatal("half a batch is in the file")
			}
			for _, r := range w.f.ApplyBatch(w.log) {
				if r == errReplayed {
					continue
				}
				if reply := r.(*Reply); reply.Items[0].Code != CodeClaimed && reply.Items[0].Code != CodeOK {
					t.Errorf("%+v", reply)
				}
			}
			w.check()
		})
	}
}

func TestWithoutAFatalHandlerItPanics(t *testing.T) {
	w := newWorld(t)
	w.st.Close()
	w.f = New(w.st, Options{})
	defer func() {
		if recover() == nil {
			t.Error("it went on")
		}
	}()
	w.f.Apply(w.entry(&Pause{}))
}
