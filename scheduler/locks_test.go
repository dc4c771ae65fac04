package scheduler

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// blocked says whether a goroutine stands in one function, called from another.
func blocked(in, from string) bool {
	buf := make([]byte, 1<<20)
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, in) && strings.Contains(g, from) {
			return true
		}
	}
	return false
}

// A view of the store asks the scheduler (why does a run wait, who takes it), and a commit that waits for that view
// lets no other reader in. A poll that reads the store with the scheduler's lock held would close the circle: the
// leader stands still for ever and stays leader.
func TestPollDoesNotReadTheStoreWithTheLockHeld(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.lead()
		h := w.hand("w1", 1)
		h.one(atMostOnce)
		s := w.lead()
		if r, err := h.ask(job.Poll{}); err != nil || r.Session == h.is.Session {
			t.Fatal(r, err)
		} else {
			h.is.Session = r.Session
		}
		// Nothing else is under way: the loop of the scheduler reads the store too.
		polled, committed := make(chan error, 1), make(chan error, 1)
		err := w.st.View(func(*store.View) error {
			b, err := w.st.Begin()
			if err != nil {
				return err
			}
			go func() { committed <- b.Commit() }()
			for !blocked("sync.(*RWMutex).Lock", "store.(*Batch).Commit") {
				runtime.Gosched()
			}
			go func() {
				_, err := h.ask(job.Poll{})
				polled <- err
			}()
			for !blocked("sync.(*RWMutex).RLock", "scheduler.(*Scheduler).Poll") {
				runtime.Gosched()
			}
			if !s.mu.TryLock() {
				t.Error("it waits for the store with the lock held that a view of the store may wait for")
				return nil
			}
			s.mu.Unlock()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-committed; err != nil {
			t.Error(err)
		}
		if err := <-polled; err != nil {
			t.Error(err)
		}
	})
}

// What is called with the lock held does not read the store, for the same reason.
func TestNothingReadsTheStoreWithTheLockHeld(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			from := token.Pos(0) // where the lock is held to the end
			if !strings.HasSuffix(fn.Name.Name, "Locked") {
				for _, stmt := range fn.Body.List {
					if d, ok := stmt.(*ast.DeferStmt); ok && types.ExprString(d.Call.Fun) == "s.mu.Unlock" {
						from = d.Pos()
					}
				}
				if from == 0 {
					continue
				}
			}
			seen++
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "st" && sel.Pos() > from {
					t.Errorf("%s: %s reads the store", fset.Position(sel.Pos()), fn.Name.Name)
				}
				return true
			})
		}
	}
	if seen < 20 {
		t.Errorf("looked at %d functions only", seen)
	}
}
