package transport

import (
	"errors"
	"io"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/replica"
)

// Who a node says that it is must be who its certificate says, on either side.
func TestHelloIsThatOfTheCertificate(t *testing.T) {
	ca := newAuthority(t)
	for name, lie := range map[string]func(*Hello){
		"id":       func(h *Hello) { h.NodeID = "c" },
		"instance": func(h *Hello) { h.InstanceID = "i-c" },
		"cluster":  func(h *Hello) { h.ClusterID = "d" },
	} {
		t.Run(name, func(t *testing.T) {
			trusting := func(id string) func(mo *Options, so *StreamOptions) {
				return func(mo *Options, so *StreamOptions) {
					secured(t, ca, id)(mo, so)
					so.Handshake.Check = func(Hello) error { return nil }
				}
			}
			a, b := startNode(t, "a", "127.0.0.1:0", trusting("a")), startNode(t, "b", "127.0.0.1:0", trusting("b"))
			lie(&a.hello)
			if c, err := a.layer.Dial(b.addr(), long); !refused(true, "certificate")(err) {
				t.Errorf("a dialler that lies: %v, %v", c, err)
			}
			if c, err := b.layer.Dial(a.addr(), long); !refused(false, "certificate")(err) {
				t.Errorf("an acceptor that lies: %v, %v", c, err)
			}
		})
	}
}

// judged is a node whose transport grants what it is shown, and says what that was.
type judged struct {
	*node
	*RaftTransport
	mu    sync.Mutex
	seen  []any
	ended chan error // how snapshots ended
}

func startJudged(t *testing.T, ca *keys.Authority, id string, limits RequestLimits) *judged {
	t.Helper()
	j := &judged{node: startNode(t, id, "127.0.0.1:0", secured(t, ca, id)), ended: make(chan error, 100)}
	j.RaftTransport = NewRaftTransport(j.node.layer, hclog.NewNullLogger(), limits)
	note := func(rpc raft.RPC) {
		j.mu.Lock()
		j.seen = append(j.seen, rpc.Command)
		j.mu.Unlock()
		switch rpc.Command.(type) {
		case *raft.AppendEntriesRequest:
			rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
		case *raft.RequestVoteRequest:
			rpc.Respond(&raft.RequestVoteResponse{Granted: true}, nil)
		case *raft.RequestPreVoteRequest:
			rpc.Respond(&raft.RequestPreVoteResponse{Granted: true}, nil)
		case *raft.TimeoutNowRequest:
			rpc.Respond(&raft.TimeoutNowResponse{}, nil)
		case *raft.InstallSnapshotRequest:
			_, err := io.Copy(io.Discard, rpc.Reader)
			rpc.Respond(&raft.InstallSnapshotResponse{Success: true}, err)
			j.ended <- err
		}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case rpc := <-j.Consumer():
				note(rpc)
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() {
		j.Close()
		close(stop)
		wg.Wait()
	})
	return j
}

func (j *judged) requests() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.seen)
}

// send makes one request of each kind with a header and a term.
func send(tr *RaftTransport, to raft.ServerAddress, h raft.RPCHeader, term uint64) map[string]error {
	return map[string]error{
		"append": tr.AppendEntries("b", to, &raft.AppendEntriesRequest{RPCHeader: h, Term: term,
			Entries: []*raft.Log{{Index: 1}}}, &raft.AppendEntriesResponse{}),
		"heartbeat": tr.AppendEntries("b", to, &raft.AppendEntriesRequest{RPCHeader: h, Term: term},
			&raft.AppendEntriesResponse{}),
		"vote": tr.RequestVote("b", to, &raft.RequestVoteRequest{RPCHeader: h, Term: term},
			&raft.RequestVoteResponse{}),
		"prevote": tr.RequestPreVote("b", to, &raft.RequestPreVoteRequest{RPCHeader: h, Term: term},
			&raft.RequestPreVoteResponse{}),
		"snapshot": tr.InstallSnapshot("b", to, &raft.InstallSnapshotRequest{RPCHeader: h, Term: term, Size: 4},
			&raft.InstallSnapshotResponse{}, strings.NewReader("data")),
	}
}

func headerOf(node string, number uint64) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(replica.ID(node, number)),
		Addr: []byte("127.0.0.1:1")}
}

// A node speaks for itself only, whatever the header of a request says; raft takes the header's word.
func TestRequestInAnotherName(t *testing.T) {
	ca := newAuthority(t)
	a, b := startJudged(t, ca, "a", RequestLimits{}), startJudged(t, ca, "b", RequestLimits{})
	for name, h := range map[string]raft.RPCHeader{
		"another node": headerOf("c", 1), "the receiver": headerOf("b", 1), "nobody": {ProtocolVersion: 3},
	} {
		errs := send(a.RaftTransport, b.addr(), h, 5)
		errs["timeout now"] = a.TimeoutNow("b", b.addr(), &raft.TimeoutNowRequest{RPCHeader: h}, &raft.TimeoutNowResponse{})
		for kind, err := range errs {
			if err == nil {
				t.Errorf("%s in the name of %s: granted", kind, name)
			}
		}
	}
	if n := b.requests(); n != 0 {
		t.Errorf("raft saw %d of them", n)
	}
	for kind, err := range send(a.RaftTransport, b.addr(), headerOf("a", 1), 5) {
		if err != nil {
			t.Errorf("%s in its own name: %v", kind, err)
		}
	}
}

// A term that raft would write down, and that no election could follow, never gets to it. With or without TLS.
func TestTermFarAhead(t *testing.T) {
	for _, ca := range []*keys.Authority{nil, newAuthority(t)} {
		var mu sync.Mutex
		term, fresh := uint64(7), false
		limits := RequestLimits{Term: func() (uint64, bool) {
			mu.Lock()
			defer mu.Unlock()
			return term, fresh
		}}
		set := func(t uint64, f bool) {
			mu.Lock()
			defer mu.Unlock()
			term, fresh = t, f
		}
		a, b := startJudged(t, ca, "a", RequestLimits{}), startJudged(t, ca, "b", limits)
		granted := func(term uint64) bool {
			n := 0
			for kind, err := range send(a.RaftTransport, b.addr(), headerOf("a", 1), term) {
				if err == nil {
					n++
				} else if kind == "vote" && !strings.Contains(err.Error(), "term") {
					t.Errorf("term %d: %v", term, err)
				}
			}
			if n != 0 && n != 5 {
				t.Errorf("%d kinds of request with term %d were granted", n, term)
			}
			return n > 0
		}
		for term, want := range map[uint64]bool{1: true, 7: true, 1_000_007: true, 1_000_008: false,
			math.MaxUint64: false, math.MaxUint64 - 1_000_000: false} {
			if granted(term) != want {
				t.Errorf("term %d: %v", term, !want)
			}
		}
		set(1_000_007, false) // it has grown since
		if !granted(1_500_000) {
			t.Error("the term of a moment ago counted")
		}
		set(0, true)
		c := startJudged(t, ca, "c", limits)
		for term, want := range map[uint64]bool{5_000_000: true, math.MaxUint64: false} {
			err := a.RequestVote("c", c.addr(), &raft.RequestVoteRequest{RPCHeader: headerOf("a", 1), Term: term},
				&raft.RequestVoteResponse{})
			if (err == nil) != want {
				t.Errorf("a new server and term %d: %v", term, err)
			}
		}
	}
}

// A server that takes no part answers nothing and asks for nothing, over connections that are open too.
func TestServerThatTakesNoPart(t *testing.T) {
	ca := newAuthority(t)
	var stopped atomic.Bool
	b := startJudged(t, ca, "b", RequestLimits{Apart: func() error {
		if stopped.Load() {
			return errors.New("it differs")
		}
		return nil
	}})
	a := startJudged(t, ca, "a", RequestLimits{})
	all := func(from, to *judged, id string) (granted int) {
		for kind, err := range send(from.RaftTransport, to.addr(), headerOf(id, 1), 5) {
			if err == nil {
				granted++
			} else if !strings.Contains(err.Error(), "it differs") && kind != "snapshot" {
				t.Errorf("%s: %v", kind, err)
			}
		}
		return granted
	}
	if n, m := all(a, b, "a"), all(b, a, "b"); n != 5 || m != 5 {
		t.Fatalf("%d and %d kinds of request are granted", n, m)
	}
	seen := a.requests() + b.requests()
	stopped.Store(true)
	if n, m := all(a, b, "a"), all(b, a, "b"); n != 0 || m != 0 {
		t.Errorf("%d and %d kinds of request are granted", n, m)
	}
	if n := a.requests() + b.requests(); n != seen {
		t.Errorf("raft saw %d of them", n-seen)
	}
}

func TestSnapshotLargerThanTheDisk(t *testing.T) {
	a := startJudged(t, nil, "a", RequestLimits{})
	b := startJudged(t, nil, "b", RequestLimits{Room: func() uint64 { return 10 }})
	install := func(size int64, data string) error {
		return a.InstallSnapshot("b", b.addr(), &raft.InstallSnapshotRequest{RPCHeader: headerOf("a", 1), Term: 1,
			Size: size}, &raft.InstallSnapshotResponse{}, strings.NewReader(data))
	}
	for _, size := range []int64{11, 1 << 40, -1} {
		if err := install(size, strings.Repeat("x", 11)); err == nil {
			t.Errorf("a snapshot of %d bytes was taken", size)
		}
	}
	if err := install(10, strings.Repeat("x", 10)); err != nil || b.requests() != 1 {
		t.Errorf("%v, and raft saw %d", err, b.requests())
	}
	b.errors.wait(t, func(err error) bool { return strings.Contains(err.Error(), "room for 10") })
}

// A term has one leader: who leads in it is sent no snapshot of it, of a later one perhaps.
func TestSnapshotOfTheTermInWhichItLeads(t *testing.T) {
	a := startJudged(t, nil, "a", RequestLimits{})
	b := startJudged(t, nil, "b", RequestLimits{LeadsIn: func(term uint64) bool { return term == 7 }})
	install := func(term uint64) error {
		return a.InstallSnapshot("b", b.addr(), &raft.InstallSnapshotRequest{RPCHeader: headerOf("a", 1), Term: term,
			Size: 1}, &raft.InstallSnapshotResponse{}, strings.NewReader("x"))
	}
	if err := install(7); err == nil || b.requests() != 0 {
		t.Errorf("%v, and raft saw %d", err, b.requests())
	}
	if err := install(8); err != nil || b.requests() != 1 {
		t.Errorf("%v, and raft saw %d", err, b.requests())
	}
	b.errors.wait(t, func(err error) bool { return strings.Contains(err.Error(), "in which this node leads") })
}

// Who may no longer take part is cut off at once, and not only at its next connection.
func TestRecheckClosesConnections(t *testing.T) {
	ca := newAuthority(t)
	var mu sync.Mutex
	out := ""
	b := startNode(t, "b", "127.0.0.1:0", func(mo *Options, so *StreamOptions) {
		secured(t, ca, "b")(mo, so)
		so.Handshake.Check = func(h Hello) error {
			mu.Lock()
			defer mu.Unlock()
			if h.NodeID == out {
				return errors.New("removed")
			}
			return nil
		}
	})
	tb := NewRaftTransport(b.layer, hclog.NewNullLogger(), RequestLimits{})
	defer tb.Close()
	a, c := startNode(t, "a", "127.0.0.1:0", secured(t, ca, "a")), startNode(t, "c", "127.0.0.1:0", secured(t, ca, "c"))
	ca1, cc1 := dial(t, a, b.addr()), dial(t, c, b.addr())
	eventually(t, "both are connected", func() bool { return b.layer.Connected("a") && b.layer.Connected("c") })
	mu.Lock()
	out = "a"
	mu.Unlock()
	b.layer.Recheck()
	wantClosed(t, ca1)
	if !b.layer.Connected("c") || b.layer.Connected("a") {
		t.Error("the wrong one was cut off")
	}
	cc1.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := cc1.Read(make([]byte, 1)); !strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection of the other: %v", err)
	}
}
