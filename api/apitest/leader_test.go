package apitest_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/node"
)

// tenure is a test that counts on a leader to stay. Nodes that the machine holds up for longer than a lease elect
// another one, and what is found then is no fault: the test begins again with another cluster.
type tenure struct {
	testing.TB
	mu       sync.Mutex
	found    []string
	skip     string
	cleanups []func()
	leader   *apitest.Node
	term     uint64
	over     bool // it was given up, because of a leader that left too soon
}

// underOneLeader runs a test until it passes, or fails while the leaders that it names lead for as long as it says.
func underOneLeader(t *testing.T, test func(t *tenure)) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; {
		s := &tenure{TB: t}
		s.run(func() { test(s) })
		s.mu.Lock()
		again := s.over || len(s.found) > 0 && s.lost()
		s.mu.Unlock()
		for len(s.cleanups) > 0 {
			last := len(s.cleanups) - 1
			f := s.cleanups[last]
			s.cleanups = s.cleanups[:last]
			s.run(f)
		}
		switch {
		case !again:
			for _, what := range s.found {
				t.Error(what)
			}
			if s.skip != "" {
				t.Skip(s.skip)
			}
			return
		case time.Now().After(end):
			t.Fatalf("no leader lasts; found was %q", s.found)
		}
		t.Logf("another node leads, and it is tried again; found was %q", s.found)
	}
}

// run calls f in a goroutine of its own, which it may end.
func (s *tenure) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// Cleanup implements testing.TB: what a try has open is closed before the next one.
func (s *tenure) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

// cluster is apitest.StartCluster, whose first node leads until the test ends or says otherwise.
func (s *tenure) cluster(size int, change ...func(*node.Config)) []*apitest.Node {
	s.Helper()
	seldom := func(c *node.Config) { c.Raft.Heartbeat = time.Second } // do they elect
	nodes := apitest.StartCluster(s, size, append([]func(*node.Config){seldom}, change...)...)
	s.leads(nodes[0])
	return nodes
}

// leads says that a node leads from now on, nil for any. The one before has led up to now.
func (s *tenure) leads(n *apitest.Node) {
	s.mu.Lock()
	s.over = s.lost()
	if s.leader = n; n != nil {
		s.term = s.termOf(n)
		s.over = s.over || !n.Leads()
	}
	over := s.over
	s.mu.Unlock()
	if over {
		runtime.Goexit()
	}
}

func (s *tenure) lost() bool {
	return s.leader != nil && (s.termOf(s.leader) != s.term || !s.leader.Leads())
}

func (s *tenure) termOf(n *apitest.Node) uint64 {
	st, err := n.Backend.Status(s.TB.Context(), api.Read{Stale: true})
	if err != nil {
		return 0
	}
	return st.Term
}

func (s *tenure) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found = append(s.found, what)
}

func (s *tenure) Error(args ...any)                 { s.note(fmt.Sprintln(args...)) }
func (s *tenure) Errorf(format string, args ...any) { s.note(fmt.Sprintf(format, args...)) }
func (s *tenure) Fatal(args ...any)                 { s.note(fmt.Sprintln(args...)); runtime.Goexit() }
func (s *tenure) Fatalf(format string, args ...any) {
	s.note(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
func (s *tenure) Fail()    { s.note("failed") }
func (s *tenure) FailNow() { s.note("failed"); runtime.Goexit() }
func (s *tenure) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.found) > 0
}
func (s *tenure) Skipf(format string, args ...any) {
	s.mu.Lock()
	s.skip = fmt.Sprintf(format, args...)
	s.mu.Unlock()
	runtime.Goexit()
}
