package transport

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/proof/port"
)

// node is one end of the tests: a mux, a hub and the layer of a group, 0 unless another is said.
type node struct {
	mux    *Mux
	hub    *Hub
	layer  *StreamLayer
	errors *errorLog
	hello  Hello
}

func (n *node) addr() raft.ServerAddress { return raft.ServerAddress(n.layer.Addr().String()) }

var errOtherCluster = errors.New("another cluster")

// startNode starts a node of cluster "c" that talks to nodes of its cluster. The timeout of its layer is also the hub's.
func startNode(t *testing.T, id, addr string, change func(*Options, *StreamOptions)) *node {
	t.Helper()
	n := &node{errors: &errorLog{}, hello: Hello{ClusterID: "c", Epoch: 7, NodeID: id, InstanceID: "i-" + id}}
	mo := Options{OnError: n.errors.add}
	so := StreamOptions{
		OnError: n.errors.add,
		Handshake: Handshake{
			Local: func() Hello { return n.hello },
			Check: func(h Hello) error {
				if h.ClusterID != n.hello.ClusterID {
					return errOtherCluster
				}
				return nil
			},
		},
	}
	if change != nil {
		change(&mo, &so)
	}
	n.mux = startMux(t, addr, mo)
	n.hub = NewHub(n.mux.Raft(), HubOptions{Timeout: so.Timeout, OnError: n.errors.add})
	t.Cleanup(func() { n.hub.Close() })
	layer, err := n.hub.Layer(0, so)
	if err != nil {
		t.Fatal(err)
	}
	n.layer = layer
	return n
}

func (n *node) stop() {
	n.hub.Close()
	n.mux.Close()
}

func dial(t *testing.T, from *node, to raft.ServerAddress) net.Conn {
	t.Helper()
	c, err := from.layer.Dial(to, long)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestHandshakeThenBytes(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(map[bool]string{false: "plain", true: "TLS"}[secure], func(t *testing.T) {
			var ca *keys.Authority
			if secure {
				ca = newAuthority(t)
			}
			seen := make(chan Hello, 2)
			change := func(id string) func(mo *Options, so *StreamOptions) {
				return func(mo *Options, so *StreamOptions) {
					secured(t, ca, id)(mo, so)
					so.Handshake.Check = func(h Hello) error { seen <- h; return nil }
				}
			}
			a, b := startNode(t, "a", "127.0.0.1:0", change("a")), startNode(t, "b", "127.0.0.1:0", change("b"))
			c := dial(t, a, b.addr())
			wantA, wantB := a.hello, b.hello
			if secure {
				wantA.Certificate = keys.Peer{CA: keys.HashOf(ca.Cert),
					Identity: keys.Identity{Cluster: "c", Node: "a", Instance: "i-a", Joined: 3}}
				wantB.Certificate = keys.Peer{CA: keys.HashOf(ca.Cert),
					Identity: keys.Identity{Cluster: "c", Node: "b", Instance: "i-b", Joined: 3}}
			}
			first, second := <-seen, <-seen
			if secure {
				if k := first.Certificate.Key; k == (keys.Hash{}) || k == second.Certificate.Key {
					t.Errorf("the keys of both nodes are %v", k)
				}
				wantA.Certificate.Key, wantB.Certificate.Key = first.Certificate.Key, second.Certificate.Key
			}
			if first != wantA || second != wantB {
				t.Errorf("seen %+v and %+v", first, second)
			}
			io.WriteString(c, "ping")
			s, err := b.layer.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			buf := make([]byte, 4)
			if _, err := io.ReadFull(s, buf); err != nil || string(buf) != "ping" {
				t.Fatalf("read %q, %v", buf, err)
			}
			io.WriteString(s, "pong")
			if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "pong" {
				t.Fatalf("read %q, %v", buf, err)
			}
		})
	}
}

func refused(byPeer bool, reason string) func(error) bool {
	return func(err error) bool {
		var r *RefusedError
		return errors.As(err, &r) && r.ByPeer == byPeer && strings.Contains(r.Reason, reason)
	}
}

// Both sides can say why, whichever refused.
func TestHandshakeRefused(t *testing.T) {
	t.Run("by the acceptor", func(t *testing.T) {
		a, b := startNode(t, "a", "127.0.0.1:0", nil), startNode(t, "b", "127.0.0.1:0", nil)
		a.hello.ClusterID, b.hello.Epoch = "other", 9
		_, err := a.layer.Dial(b.addr(), long)
		if r := new(RefusedError); !errors.As(err, &r) || r.At != string(b.addr()) || r.Peer.Epoch != 9 {
			t.Errorf("what is known of who refused: %+v", r)
		}
		if !refused(true, errOtherCluster.Error())(err) || !strings.Contains(err.Error(), `node "b"`) {
			t.Errorf("Dial: %v", err)
		}
		err = b.errors.wait(t, refused(false, errOtherCluster.Error()))
		if !errors.Is(err, errOtherCluster) || !strings.Contains(err.Error(), `node "a"`) {
			t.Errorf("acceptor: %v", err)
		}
	})
	t.Run("by the dialler", func(t *testing.T) {
		errWiped := errors.New("wiped")
		a := startNode(t, "a", "127.0.0.1:0", func(_ *Options, so *StreamOptions) {
			so.Handshake.Check = func(Hello) error { return errWiped }
		})
		b := startNode(t, "b", "127.0.0.1:0", nil)
		if _, err := a.layer.Dial(b.addr(), long); !errors.Is(err, errWiped) {
			t.Errorf("Dial: %v", err)
		}
		b.errors.wait(t, refused(true, "wiped"))
	})
	t.Run("another node at that address", func(t *testing.T) {
		a := startNode(t, "a", "127.0.0.1:0", func(_ *Options, so *StreamOptions) {
			so.Handshake.Expect = func(string) string { return "z" }
		})
		b := startNode(t, "b", "127.0.0.1:0", nil)
		if _, err := a.layer.Dial(b.addr(), long); !refused(false, `should be node "z"`)(err) {
			t.Errorf("Dial: %v", err)
		}
		b.errors.wait(t, refused(true, `should be node "z"`))
	})
	t.Run("later version", func(t *testing.T) {
		b := startNode(t, "b", "127.0.0.1:0", nil)
		c := dialTCP(t, b.mux.Addr())
		c.Write(appendMessage([]byte{RaftByte}, []byte{helloVersion + 1, 1, 2, 3}))
		if _, err := readMessage(c); err != nil {
			t.Fatal(err)
		}
		msg, err := readMessage(c)
		if err != nil {
			t.Fatal(err)
		}
		if no, reason, err := decodeVerdict(msg); !no || err != nil || !strings.Contains(reason, "version 2") {
			t.Errorf("verdict %v %q %v", no, reason, err)
		}
	})
}

func TestNonsenseAndSlowPeers(t *testing.T) {
	n := startNode(t, "n", "127.0.0.1:0", func(_ *Options, so *StreamOptions) { so.Timeout = 200 * time.Millisecond })
	for name, bytes := range map[string]string{
		"nothing":        "",
		"half a length":  "\x00",
		"huge":           "\xff\xff",
		"empty":          "\x00\x00",
		"cut off":        "\x00\x20\x01abc",
		"malformed":      "\x00\x04\x01abc",
		"HTTP after all": "GET / HTTP/1.1\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := dialTCP(t, n.mux.Addr())
			c.Write(append([]byte{RaftByte}, bytes...))
			wantClosed(t, c)
		})
	}
	n.errors.wait(t, func(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) })
	n.errors.wait(t, func(err error) bool { return errors.Is(err, errMalformed) })
	if len(n.layer.ready.conns) > 0 {
		t.Error("one of them was let in")
	}
}

// A peer that does not answer must cost a Dial its timeout and no more, and
// Close must not wait for it.
func TestDialSilentPeer(t *testing.T) {
	n := startNode(t, "n", "127.0.0.1:0", nil)
	ln := listen(t, "127.0.0.1:0") // accepts in the kernel, answers nothing
	defer ln.Close()
	addr := raft.ServerAddress(ln.Addr().String())

	if _, err := n.layer.Dial(addr, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Dial: %v", err)
	}
	dialled := make(chan error, 1)
	go func() {
		_, err := n.layer.Dial(addr, time.Hour)
		dialled <- err
	}()
	if c, err := ln.Accept(); err == nil {
		defer c.Close()
	}
	n.layer.Close()
	if err := receiveErr(t, dialled); err == nil {
		t.Error("Dial succeeded")
	}
	if _, err := n.layer.Dial(addr, time.Second); err == nil {
		t.Error("Dial after Close succeeded")
	}
}

// The address is looked up when it is dialled, so a name is as good as a number
// and stays good when the number changes.
func TestAdvertisedNameIsResolvedAtDial(t *testing.T) {
	var asked []string
	a := startNode(t, "a", "127.0.0.1:0", func(_ *Options, so *StreamOptions) {
		so.Handshake.Expect = func(address string) string { asked = append(asked, address); return "b" }
	})
	addr := port.Reserve(t)
	_, number, _ := net.SplitHostPort(addr)
	name := "localhost:" + number
	b := startNode(t, "b", addr, func(_ *Options, so *StreamOptions) { so.Advertise = name })
	if got := b.layer.Addr(); got.String() != name || got.Network() != "tcp" {
		t.Errorf("Addr = %v", got)
	}
	dial(t, a, b.addr())
	dial(t, a, b.addr())
	// Raft's configuration knows the node by its name, so that is what is asked.
	if !slices.Equal(asked, []string{name, name}) {
		t.Errorf("Expect was asked for %q", asked)
	}
}

func TestAdvertise(t *testing.T) {
	hs := Handshake{Local: func() Hello { return Hello{} }, Check: func(Hello) error { return nil }}
	hub := NewHub(listen(t, "127.0.0.1:0"), HubOptions{})
	defer hub.Close()
	for addr, ok := range map[string]bool{
		"n1.example:7400": true, "10.0.0.1:7400": true, "[::1]:7400": true,
		"0.0.0.0:7400": false, "[::]:7400": false, ":7400": false, "n1:0": false, "n1": false, "n1:": false,
	} {
		s, err := hub.Layer(0, StreamOptions{Advertise: addr, Handshake: hs})
		if (err == nil) != ok {
			t.Errorf("%q: %v", addr, err)
		}
		if err == nil {
			s.Close()
		}
	}
	if _, err := hub.Layer(0, StreamOptions{Advertise: "n1:1"}); err == nil {
		t.Error("a layer without a handshake")
	}
}

func TestLayerCloseUnblocksAndClosesConnections(t *testing.T) {
	a, b := startNode(t, "a", "127.0.0.1:0", nil), startNode(t, "b", "127.0.0.1:0", nil)
	c := dial(t, a, b.addr())
	s, err := b.layer.Accept()
	if err != nil {
		t.Fatal(err)
	}
	dial(t, a, b.addr()) // left in the queue
	errs := make(chan error, 2)
	go func() {
		_, err := s.Read(make([]byte, 1))
		errs <- err
	}()
	b.layer.Close()
	if err := receiveErr(t, errs); err != io.EOF {
		t.Errorf("read on an accepted connection: %v", err)
	}
	wantClosed(t, c)
	if _, err := b.layer.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}

	go func() {
		_, err := a.layer.Accept()
		errs <- err
	}()
	a.mux.Close() // below the layer
	if err := receiveErr(t, errs); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
}

// A process that is gone has no connection left. One that ends while others are open says nothing: raft drops some.
func TestLostWithTheLastConnection(t *testing.T) {
	lost := make(chan Hello, 8)
	a, other := startNode(t, "a", "127.0.0.1:0", nil), startNode(t, "other", "127.0.0.1:0", nil)
	b := startNode(t, "b", "127.0.0.1:0", func(_ *Options, so *StreamOptions) {
		so.OnLost = func(h Hello) { lost <- h }
	})
	connect := func(from *node) (net.Conn, net.Conn) {
		c := dial(t, from, b.addr())
		s, err := b.layer.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c, s
	}
	end := func(c, s net.Conn) {
		c.Close()
		if _, err := s.Read(make([]byte, 1)); err == nil {
			t.Fatal("a closed connection was read from")
		}
		s.Close()
	}
	want := func(when string, n int) {
		t.Helper()
		if len(lost) != n {
			t.Errorf("%s: %d were lost, want %d", when, len(lost), n)
		}
		for range len(lost) {
			if h := <-lost; h.NodeID != "a" {
				t.Errorf("%s: %q was lost", when, h.NodeID)
			}
		}
	}
	connect(other)
	c1, s1 := connect(a)
	c2, s2 := connect(a)
	end(c1, s1)
	want("with another one open", 0)
	c3, s3 := connect(a)
	end(c2, s2)
	want("with a newer one open", 0)
	end(c3, s3)
	want("with none open", 1)

	_, s4 := connect(a)
	c5, s5 := connect(a)
	end(c5, s5)
	want("with one open that is not read", 0)
	s4.Close() // as raft does when it cannot write an answer
	want("with none open, and no read that failed", 1)

	_, s6 := connect(a)
	b.layer.Close()
	s6.Read(make([]byte, 1))
	s6.Close()
	want("by Close", 0)
}

func FuzzHello(f *testing.F) {
	seed, _ := appendHello(nil, Hello{ClusterID: "cluster", Group: 5, GroupID: "group", Epoch: 3, NodeID: "n1", Replica: 7,
		InstanceID: "instance", Address: "n1:7400", Index: 9})
	f.Add(seed)
	f.Add([]byte{})
	f.Add([]byte{verdictRefused, 'n', 'o'})
	f.Add([]byte{verdictWelcome})
	f.Fuzz(func(t *testing.T, data []byte) {
		decodeVerdict(data)
		h, err := decodeHello(data)
		if err != nil {
			return
		}
		again, err := appendHello(nil, h)
		if err != nil {
			t.Fatal(err)
		}
		// What follows is a later version's.
		if string(again) != string(data[:len(again)]) {
			t.Errorf("%x became %x", data, again)
		}
	})
}

func TestVerdict(t *testing.T) {
	long := errors.New("bad\n" + strings.Repeat("é", maxReason))
	no, reason, err := decodeVerdict(appendVerdict(nil, long))
	if !no || err != nil || len(reason) > maxReason || !strings.HasPrefix(reason, "bad é") {
		t.Errorf("%v %q %v", no, reason, err)
	}
	if _, err := appendHello(nil, Hello{NodeID: strings.Repeat("x", 256)}); err == nil {
		t.Error("an id of 256 bytes was encoded")
	}
}
