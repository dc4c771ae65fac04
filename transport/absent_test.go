package transport

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// pair are two nodes in virtual time: a sends, b answers while it is up.
type pair struct {
	a     *RaftTransport
	down  atomic.Bool
	dials atomic.Int32

	mu   sync.Mutex
	ends []net.Conn // of b
}

func newPair(t *testing.T) *pair {
	p := &pair{}
	made := func(id string, dial func(context.Context, string, string) (net.Conn, error)) (*StreamLayer, *queue) {
		ln := newQueue(namedAddr(id + ":7400"))
		hello := Hello{ClusterID: "c", NodeID: id, InstanceID: "i-" + id}
		hub := NewHub(ln, HubOptions{})
		t.Cleanup(func() { hub.Close() })
		layer, err := hub.Layer(0, StreamOptions{Dial: dial,
			Handshake: Handshake{Local: func() Hello { return hello }, Check: func(Hello) error { return nil }}})
		if err != nil {
			t.Fatal(err)
		}
		return layer, ln
	}
	there, ln := made("b", nil)
	here, _ := made("a", func(_ context.Context, network, addr string) (net.Conn, error) {
		p.dials.Add(1)
		if p.down.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Addr: namedAddr(addr), Err: syscall.ECONNREFUSED}
		}
		near, far := net.Pipe()
		p.mu.Lock()
		p.ends = append(p.ends, far)
		p.mu.Unlock()
		go func() { // the mux
			if _, err := io.ReadFull(far, make([]byte, 1)); err == nil {
				ln.put(far)
			}
		}()
		return near, nil
	})
	answer(t, &node{layer: there})
	p.a = NewRaftTransport(here, hclog.NewNullLogger(), RequestLimits{})
	t.Cleanup(func() { p.a.Close() })
	return p
}

// breakOff ends all connections.
func (p *pair) breakOff() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.ends {
		c.Close()
	}
	p.ends = nil
}

func (p *pair) send(entries ...*raft.Log) error {
	rq := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("a:7400")}, Term: 1, Entries: entries}
	return p.a.AppendEntries("b", "b:7400", rq, new(raft.AppendEntriesResponse))
}

func (p *pair) heartbeat() error { return p.send() }

func (p *pair) append() error { return p.send(&raft.Log{Index: 1, Term: 1}) }

// leave takes b down, and lets a notice: by the connection that it has, and by a dial.
func (p *pair) leave(t *testing.T, notice func() error) {
	t.Helper()
	p.down.Store(true)
	p.breakOff()
	for dials := p.dials.Load(); p.dials.Load() == dials; {
		if notice() == nil {
			t.Fatal("b is down, and answers")
		}
	}
}

// start makes an append that has to wait.
func (p *pair) start(t *testing.T) <-chan error {
	t.Helper()
	dials, done := p.dials.Load(), make(chan error, 1)
	go func() { done <- p.append() }()
	time.Sleep(maxAbsence / 2)
	synctest.Wait()
	if len(done) != 0 || p.dials.Load() != dials {
		t.Fatalf("the append did not wait: %d dials", p.dials.Load()-dials)
	}
	return done
}

// Every append that fails makes the next one later, up to ten seconds. So none is made while heartbeats do not get
// through, and it is made when one does.
func TestEntriesWaitForAPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		if err := p.append(); err != nil {
			t.Fatal(err)
		}
		p.leave(t, p.heartbeat)
		done := p.start(t)
		p.down.Store(false)
		back := time.Now()
		if err := p.heartbeat(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || time.Since(back) != 0 {
			t.Errorf("it came %s after the heartbeat, with %v", time.Since(back), err)
		}
	})
}

// One that is down already when the first entries are for it is known by the dial that failed.
func TestEntriesWaitForAPeerThatWasNeverThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.leave(t, p.append)
		done := p.start(t)
		p.down.Store(false)
		if err := p.heartbeat(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Whether heartbeats get through or not, entries are tried again.
func TestEntriesWaitForSomeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.leave(t, p.heartbeat)
		began := time.Now()
		if err := p.append(); err == nil || time.Since(began) != maxAbsence {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		p.down.Store(false)
		if err := p.append(); err != nil || time.Since(began) != 2*maxAbsence {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if err := p.append(); err != nil || time.Since(began) != 2*maxAbsence {
			t.Errorf("after one got through, it waited until %s: %v", time.Since(began), err)
		}
	})
}

// Raft's Shutdown waits for its requests, and closes the transport after that.
func TestStopWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.leave(t, p.heartbeat)
		done := p.start(t)
		began := time.Now()
		p.a.StopWaiting()
		if err := <-done; err == nil || time.Since(began) != 0 {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if err := p.heartbeat(); err == nil {
			t.Error("b is down, and answers")
		}
		if err := p.append(); err == nil || time.Since(began) != 0 {
			t.Errorf("the next one, after %s: %v", time.Since(began), err)
		}
	})
}

// A connection that broke off, of a peer that is there, holds nothing up, whichever request finds out.
func TestEntriesAfterABrokenConnection(t *testing.T) {
	for name, find := range map[string]func(*pair) error{"entries": (*pair).append, "a heartbeat": (*pair).heartbeat} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPair(t)
				if err := p.append(); err != nil {
					t.Fatal(err)
				}
				p.breakOff()
				began := time.Now()
				if err := find(p); err == nil {
					t.Fatal("the broken connection answered")
				}
				if err := p.append(); err != nil || time.Since(began) != 0 {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
			})
		})
	}
}
