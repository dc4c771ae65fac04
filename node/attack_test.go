package node

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/transport"
)

// These are attacks by a stranger who reaches the port of a node and knows what it tells everybody. On a plain cluster
// they succeed, which is why one belongs into a trusted network; on a secure one nothing changes.

// footing is what an attack must not change.
type footing struct {
	digest string
	term   uint64
	leads  bool
}

func footingOf(t *testing.T, n *testNode) footing {
	t.Helper()
	d, err := n.group.store.DigestContent() // the leader commits a stamp of its own every ten seconds
	if err != nil {
		t.Fatal(err)
	}
	return footing{d, n.group.raft.CurrentTerm(), n.group.raft.State() == raft.Leader}
}

// Attack 1: become a member by saying so. The leader's call back goes wherever the request says.
func TestAttackByJoining(t *testing.T) {
	t.Parallel()
	for name, change := range modes(t) {
		t.Run(name, func(t *testing.T) {
			n := start(t, t.TempDir(), change)
			var called atomic.Int64
			fake := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				called.Add(1)
				io.WriteString(w, `{"node_id":"evil","instance_id":"i","applied_index":1000000,"now_us":1,`+
					fmt.Sprintf(`"level":%d}`, fsm.Level))
			}))
			defer fake.Close()
			rq := wire.JoinRequest{NodeID: "evil", InstanceID: "i", Address: fake.Listener.Addr().String(),
				Level: fsm.Level}
			before := footingOf(t, n)
			a := n.call("POST", "/api/v1/cluster:join", rq)
			_, in := n.members.Row("evil")
			if name == "plain" {
				if a.status != 200 || !in || called.Load() == 0 {
					t.Errorf("the attack does not work any more: %d %s", a.status, a.body)
				}
				return
			}
			if a.status != 403 || in || called.Load() != 0 || footingOf(t, n) != before {
				t.Errorf("%d %s, %d calls back", a.status, a.body, called.Load())
			}
		})
	}
}

// intruder speaks Raft with what a node tells everybody, and keys of its own making if it has any.
func intruder(t *testing.T, hello transport.Hello, ring *keys.Ring) *transport.RaftTransport {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hello.Address = cmp.Or(hello.Address, ln.Addr().String())
	m := transport.NewMux(ln, transport.Options{Keys: ring})
	served := make(chan error, 1)
	go func() { served <- m.Serve() }()
	hub := transport.NewHub(m.Raft(), transport.HubOptions{})
	layer, err := hub.Layer(0, transport.StreamOptions{Keys: ring,
		Handshake: transport.Handshake{Local: func() transport.Hello { return hello },
			Check: func(transport.Hello) error { return nil }}})
	if err != nil {
		t.Fatal(err)
	}
	tr := transport.NewRaftTransport(layer, hclog.NewNullLogger(), transport.RequestLimits{})
	t.Cleanup(func() {
		tr.Close()
		hub.Close()
		m.Close()
		<-served
	})
	return tr
}

// intruders are all that a stranger without the cluster's keys could be.
func intruders(t *testing.T, n *testNode) map[string]*transport.RaftTransport {
	t.Helper()
	info := n.group.store.Info()
	hello := transport.Hello{ClusterID: info.ClusterID, Epoch: info.Epoch, NodeID: "evil", Replica: replica.First,
		InstanceID: "i", Index: 1 << 40}
	a, err := keys.NewAuthority("secure", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ring, err := keys.OpenRing(filepath.Join(t.TempDir(), "keys"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Keep(a); err != nil {
		t.Fatal(err)
	}
	if err := ring.Certify(keys.Identity{Cluster: "secure", Node: "evil", Instance: "i"}, "", time.Now()); err != nil {
		t.Fatal(err)
	}
	return map[string]*transport.RaftTransport{"without keys": intruder(t, hello, nil),
		"with another CA": intruder(t, hello, ring)}
}

// Attack 2: be a Raft peer. A message of a higher term ends a leadership; raft asks for no membership.
func TestAttackAsAPeer(t *testing.T) {
	t.Parallel()
	for name, change := range modes(t) {
		t.Run(name, func(t *testing.T) {
			n := start(t, t.TempDir(), change)
			before := footingOf(t, n)
			h := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(replica.ID("evil", replica.First)),
				Addr: []byte("127.0.0.1:1")}
			to := raft.ServerAddress(n.Addr())
			for who, tr := range intruders(t, n) {
				if name == "plain" && who != "without keys" {
					continue
				}
				// The highest term that there is would be the end of all elections: it is refused anywhere.
				err := tr.AppendEntries("n1/1", to, &raft.AppendEntriesRequest{RPCHeader: h, Term: 1<<64 - 1,
					Entries: []*raft.Log{{Index: 1}}}, &raft.AppendEntriesResponse{})
				if err == nil || footingOf(t, n) != before {
					t.Errorf("%s: the last term was taken: %v", who, err)
				}
				err = tr.AppendEntries("n1/1", to, &raft.AppendEntriesRequest{RPCHeader: h, Term: before.term + 10},
					&raft.AppendEntriesResponse{})
				err2 := tr.TimeoutNow("n1/1", to, &raft.TimeoutNowRequest{RPCHeader: h}, &raft.TimeoutNowResponse{})
				if name == "plain" {
					if err != nil || n.group.raft.CurrentTerm() < before.term+10 {
						t.Errorf("the attack does not work any more: %v", err)
					}
					continue
				}
				if err == nil || err2 == nil || footingOf(t, n) != before {
					t.Errorf("%s: %v, %v, %+v", who, err, err2, footingOf(t, n))
				}
			}
		})
	}
}

// Attack 3: replace the state by a snapshot. That of another cluster is refused anywhere.
func TestAttackBySnapshot(t *testing.T) {
	realTime(t)
	t.Parallel()
	for name, change := range modes(t) {
		t.Run(name, func(t *testing.T) {
			n := start(t, t.TempDir(), change)
			h := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(replica.ID("evil", replica.First)),
				Addr: []byte("127.0.0.1:1")}
			send := func(tr *transport.RaftTransport, cluster string, ahead uint64) error {
				evil := start(t, t.TempDir(), func(c *Config) { c.Machine.ClusterID = cluster })
				for i := range 20 { // what is behind the node's state is refused for that
					evil.create(newTarget(t).spec(fmt.Sprintf("evil-%d", i), "@every 1h"))
				}
				_, size, rc, err := fsm.Stream(evil.group.store, t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				defer rc.Close()
				evil.stop()
				conf := raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "evil/1",
					Address: "127.0.0.1:1"}}})
				rq := &raft.InstallSnapshotRequest{RPCHeader: h, SnapshotVersion: 1,
					Term: n.group.raft.CurrentTerm() + ahead, LastLogIndex: 1 << 20, LastLogTerm: 1, Configuration: conf,
					ConfigurationIndex: 1, Size: size}
				var answer raft.InstallSnapshotResponse
				err = tr.InstallSnapshot("n1/1", raft.ServerAddress(n.Addr()), rq, &answer, rc)
				return err
			}
			jobs := func() int { return int(n.group.store.Counters().Jobs) }
			for who, tr := range intruders(t, n) {
				if name == "plain" && who != "without keys" {
					continue
				}
				// Of the term in which the node leads: raft would go on leading with the configuration that came with it,
				// and the node would end over a server that it does not know.
				n.eventually("it leads", func() bool { return n.tracker.Epoch() != nil })
				before := footingOf(t, n)
				if err := send(tr, n.group.store.Info().ClusterID, 0); err == nil || footingOf(t, n) != before {
					t.Errorf("%s: a second leader of the term: %v, %+v", who, err, footingOf(t, n))
				}
				if err := send(tr, "another", 10); err == nil || jobs() != 0 {
					t.Errorf("%s: the state of another cluster was taken: %v", who, err)
				}
				before = footingOf(t, n)
				err := send(tr, n.group.store.Info().ClusterID, 10) // further ahead than elections meanwhile bring it
				if name == "plain" {
					if err != nil || jobs() != 20 {
						t.Errorf("the attack does not work any more: %v", err)
					}
					continue
				}
				if err == nil || footingOf(t, n) != before {
					t.Errorf("%s: %v, %+v", who, err, footingOf(t, n))
				}
			}
		})
	}
}

// A stranger between a new node and the cluster, with a CA of their own, gets to see nothing; and who listens in on the
// way to the real one learns no secret.
func TestManInTheMiddle(t *testing.T) {
	t.Parallel()
	secure, a := securely(t)
	lead := start(t, t.TempDir(), secure)
	other, err := keys.NewAuthority("secure", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ring, err := keys.OpenRing(filepath.Join(t.TempDir(), "keys"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.Keep(other); err != nil {
		t.Fatal(err)
	}
	if err := ring.Certify(keys.Identity{Cluster: "secure", Node: "n1", Instance: "i"}, "127.0.0.1",
		time.Now()); err != nil {
		t.Fatal(err)
	}
	cert, err := ring.Shown()
	if err != nil {
		t.Fatal(err)
	}
	both := *cert // with the certificate of the real CA beside it, which is no secret
	both.Certificate = append(append([][]byte{}, cert.Certificate...), a.Cert.Raw)

	var mu sync.Mutex
	var seen bytes.Buffer
	var calls int
	listen := func(serve func(net.Conn)) string {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go serve(c)
			}
		}()
		return ln.Addr().String()
	}
	record := writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return seen.Write(p)
	})
	fake := listen(func(c net.Conn) {
		defer c.Close()
		mu.Lock()
		calls++
		mu.Unlock()
		tc := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{both},
			NextProtos: []string{"h2", "http/1.1", transport.ALPNNode}})
		_, _ = io.Copy(record, tc) // what was meant for the cluster
	})
	joiner := func(to string) *testNode {
		cfg := testConfig(t, t.TempDir())
		cfg.NodeID, cfg.Bootstrap, cfg.Join = "n2", false, []string{to}
		secure(&cfg)
		return open(t, cfg)
	}
	n := joiner(fake)
	n.eventually("it has tried", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return calls >= 4
	})
	if n.service.Ready() == nil || seen.Len() != 0 {
		t.Errorf("a stranger in between saw %q", seen.String())
	}
	n.stop()

	way := listen(func(c net.Conn) {
		defer c.Close()
		to, err := net.Dial("tcp", lead.Addr())
		if err != nil {
			return
		}
		defer to.Close()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, _ = io.Copy(io.MultiWriter(to, record), c)
			cancel()
		}()
		go func() {
			_, _ = io.Copy(io.MultiWriter(c, record), to)
			cancel()
		}()
		<-ctx.Done()
	})
	n = joiner(way)
	n.eventually("it has joined", func() bool { return n.service.Ready() == nil })
	text := a.JoinToken("abcdefghijkm").Text()
	secret := text[strings.LastIndexByte(text, '.')+1:]
	mu.Lock()
	defer mu.Unlock()
	if seen.Len() == 0 || strings.Contains(seen.String(), secret) || strings.Contains(seen.String(), "abcdefghijkm") {
		t.Error("the token was seen on its way")
	}
	if n.keys.CAHash() != keys.HashOf(a.Cert) {
		t.Error("it trusts another CA")
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
