package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/replica"
)

// group gives a node a replica of another group. It talks to replicas of that group only.
func (n *node) group(t *testing.T, group uint32, change func(*StreamOptions)) *node {
	t.Helper()
	g := &node{mux: n.mux, hub: n.hub, errors: n.errors, hello: n.hello}
	g.hello.Group = group
	so := n.layer.opts
	so.Handshake.Local = func() Hello { return g.hello }
	so.Handshake.Check = func(h Hello) error {
		if h.Group != group {
			return fmt.Errorf("group %d reached group %d", h.Group, group)
		}
		return nil
	}
	if change != nil {
		change(&so)
	}
	layer, err := n.hub.Layer(group, so)
	if err != nil {
		t.Fatal(err)
	}
	g.layer = layer
	return g
}

// bothWays runs a test without TLS and with it.
func bothWays(t *testing.T, do func(t *testing.T, start func(id string) *node)) {
	for _, name := range []string{"plain", "TLS"} {
		t.Run(name, func(t *testing.T) {
			var ca *keys.Authority
			if name == "TLS" {
				ca = newAuthority(t)
			}
			do(t, func(id string) *node { return startNode(t, id, "127.0.0.1:0", secured(t, ca, id)) })
		})
	}
}

// meet connects two replicas and has them exchange something.
func meet(t *testing.T, from, to *node) (near, far net.Conn) {
	t.Helper()
	near = dial(t, from, to.addr())
	far, err := to.layer.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	exchange(t, near, far)
	return near, far
}

func exchange(t *testing.T, near, far net.Conn) {
	t.Helper()
	buf := make([]byte, 4)
	for _, c := range [][2]net.Conn{{near, far}, {far, near}} {
		if _, err := io.WriteString(c[0], "ping"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c[1], buf); err != nil || string(buf) != "ping" {
			t.Fatalf("read %q, %v", buf, err)
		}
	}
}

func TestGroupsOverOnePort(t *testing.T) {
	bothWays(t, func(t *testing.T, start func(id string) *node) {
		nodes := map[string]*node{"a": start("a"), "b": start("b")}
		for group := range uint32(3) {
			var members []*member
			var conf raft.Configuration
			for _, id := range []string{"a", "b"} {
				n := nodes[id]
				if group > 0 {
					n = n.group(t, group, nil)
				}
				server := replica.ID(id, uint64(group+1))
				members = append(members, runMember(t, n, server, raft.NewInmemStore(), 300*time.Millisecond))
				conf.Servers = append(conf.Servers, raft.Server{ID: server, Address: n.addr()})
			}
			if err := members[0].raft.BootstrapCluster(conf).Error(); err != nil {
				t.Fatal(err)
			}
			want := int(10 * (group + 1))
			for range want {
				eventually(t, "a leader applies it", func() bool { // one that waits for a processor loses its place
					return slices.ContainsFunc(members, func(m *member) bool {
						return m.raft.State() == raft.Leader && m.raft.Apply([]byte("x"), long).Error() == nil
					})
				})
			}
			// What a leader was lost under may have been applied too.
			eventually(t, "applied by both", func() bool {
				n := members[0].fsm.count()
				return n >= want && members[1].fsm.count() == n
			})
		}
	})
}

func TestUnknownGroupIsRefused(t *testing.T) {
	bothWays(t, func(t *testing.T, start func(id string) *node) {
		a, b := start("a"), start("b")
		said := make(chan *RefusedError, 1)
		a1 := a.group(t, 1, func(so *StreamOptions) { so.OnRefused = func(e *RefusedError) { said <- e } })
		refuses := func() {
			t.Helper()
			_, err := a1.layer.Dial(b.addr(), long)
			if !refused(true, "node b has no replica of group 1")(err) {
				t.Errorf("Dial: %v", err)
			}
			if e := <-said; e != err || e.Peer.NodeID != "b" || e.Peer.ClusterID != "c" || e.Peer.Group != 1 {
				t.Errorf("said %+v", e)
			}
		}
		refuses()
		var e *RefusedError
		errors.As(b.errors.wait(t, refused(false, "node b has no replica of group 1")), &e)
		if e.Peer.NodeID != "a" || e.Peer.Group != 1 {
			t.Errorf("b says %+v", e)
		}
		b2 := b.group(t, 2, nil)
		if _, err := b2.layer.Dial(a.addr(), long); !refused(true, "node a has no replica of group 2")(err) {
			t.Errorf("the other way: %v", err)
		}
		a.errors.wait(t, refused(false, "node a has no replica of group 2"))

		b1 := b.group(t, 1, nil) // replicas come
		near, far := meet(t, a1, b1)
		b0near, b0far := meet(t, a, b)
		b1.layer.Close() // and go
		wantClosed(t, near)
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("read after Close: %v", err)
		}
		exchange(t, b0near, b0far)
		refuses()
	})
}

// What a stranger says of itself is not believed, whichever group it names.
func TestUnknownGroupOfAnotherCertificate(t *testing.T) {
	ca := newAuthority(t)
	a := startNode(t, "a", "127.0.0.1:0", secured(t, ca, "a"))
	b := startNode(t, "b", "127.0.0.1:0", secured(t, ca, "b"))
	a7 := a.group(t, 7, nil)
	a7.hello.NodeID = "z"
	if _, err := a7.layer.Dial(b.addr(), long); !refused(true, "its certificate is for node")(err) {
		t.Errorf("Dial: %v", err)
	}
	a7.hello.NodeID = "a"
	b7 := b.group(t, 7, nil)
	meet(t, a7, b7)
	a7.hello.InstanceID = "z"
	if _, err := a7.layer.Dial(b.addr(), long); !refused(true, "another data directory")(err) {
		t.Errorf("Dial: %v", err)
	}
}

func TestOneLayerOfAGroup(t *testing.T) {
	n := startNode(t, "n", "127.0.0.1:0", nil)
	so := n.layer.opts
	if _, err := n.hub.Layer(0, so); err == nil || !strings.Contains(err.Error(), "group 0") {
		t.Errorf("a second layer: %v", err)
	}
	one, err := n.hub.Layer(1, so)
	if err != nil {
		t.Fatal(err)
	}
	one.Close()
	again, err := n.hub.Layer(1, so)
	if err != nil {
		t.Fatal(err)
	}
	one.Close() // raft may close it twice: that says nothing of the one that followed
	if n.hub.layer(1) != again {
		t.Error("the second Close of a layer dropped another one")
	}
	n.hub.Close()
	for _, s := range []*StreamLayer{n.layer, again} {
		if _, err := s.Accept(); err != net.ErrClosed {
			t.Errorf("Accept: %v", err)
		}
	}
	if _, err := n.hub.Layer(2, so); err != net.ErrClosed {
		t.Errorf("a layer of a closed hub: %v", err)
	}
}

// Who may no longer take part in a group, and who is lost, is the group's own affair.
func TestGroupsAreJudgedAlone(t *testing.T) {
	ca := newAuthority(t)
	a := startNode(t, "a", "127.0.0.1:0", secured(t, ca, "a"))
	var mu sync.Mutex
	var no error
	lost := make(chan uint32, 4)
	b := startNode(t, "b", "127.0.0.1:0", func(mo *Options, so *StreamOptions) {
		secured(t, ca, "b")(mo, so)
		so.OnLost = func(h Hello) { lost <- h.Group }
	})
	a1, b1 := a.group(t, 1, nil), b.group(t, 1, func(so *StreamOptions) {
		so.Handshake.Check = func(Hello) error {
			mu.Lock()
			defer mu.Unlock()
			return no
		}
	})
	near0, far0 := meet(t, a, b)
	near1, _ := meet(t, a1, b1)
	mu.Lock()
	no = errors.New("removed")
	mu.Unlock()
	b.layer.Recheck()
	b1.layer.Recheck()
	wantClosed(t, near1)
	if !b.layer.Connected("a") || b1.layer.Connected("a") {
		t.Error("the wrong group was cut off")
	}
	exchange(t, near0, far0)
	if g := <-lost; g != 1 || len(lost) > 0 {
		t.Errorf("lost in group %d, and %d more", g, len(lost))
	}
}

// newcomer says hello for a group over a pipe, as the mux hands it to the hub.
func newcomer(t *testing.T, ln *queue, group uint32) net.Conn {
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close() })
	if err := ln.put(far); err != nil {
		t.Fatal(err)
	}
	hello, err := appendHello(nil, Hello{ClusterID: "c", Group: group, NodeID: "a"})
	if err == nil {
		_, err = near.Write(appendMessage(nil, hello))
	}
	if err != nil {
		t.Fatal(err)
	}
	return near
}

// Peers that stop in the middle of a handshake hold up their own group at most, and that for a moment.
func TestHalfOpenPeersOfAnotherGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newQueue(namedAddr("b:7400"))
		hub := NewHub(ln, HubOptions{MaxPending: 4, Timeout: time.Hour})
		defer hub.Close()
		said := &errorLog{}
		layers := map[uint32]*StreamLayer{}
		for group := range uint32(2) {
			hello := Hello{ClusterID: "c", Group: group, NodeID: "b"}
			layer, err := hub.Layer(group, StreamOptions{OnError: said.add, Handshake: Handshake{
				Local: func() Hello { return hello }, Check: func(Hello) error { return nil }}})
			if err != nil {
				t.Fatal(err)
			}
			layers[group] = layer
		}
		began := time.Now()
		for range 20 {
			newcomer(t, ln, 1) // it never reads the answer
		}
		passes := func(group uint32) time.Duration {
			c := newcomer(t, ln, group)
			for range 2 {
				if _, err := readMessage(c); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := c.Write(appendMessage(nil, appendVerdict(nil, nil))); err != nil {
				t.Fatal(err)
			}
			if _, err := layers[group].Accept(); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		for range 10 {
			if took := passes(0); took != 0 {
				t.Fatalf("a peer of another group waited for %s", took)
			}
		}
		synctest.Wait()
		layers[1].gate.mu.Lock()
		n := layers[1].gate.waiting.Len()
		layers[1].gate.mu.Unlock()
		if n != 4 {
			t.Errorf("%d handshakes at a time", n)
		}
		if took := passes(1); took > 5*crowdedAfter {
			t.Errorf("a peer of the crowded group waited for %s", took)
		}
		said.wait(t, func(err error) bool { return err == errCrowded })
	})
}

func TestLayerClosedInHandshake(t *testing.T) {
	a, b := startNode(t, "a", "127.0.0.1:0", nil), startNode(t, "b", "127.0.0.1:0", nil)
	a1, b1 := a.group(t, 1, nil), b.group(t, 1, nil)
	near, far := meet(t, a, b)

	c := dialTCP(t, b.mux.Addr())
	hello, _ := appendHello(nil, a1.hello)
	c.Write(appendMessage([]byte{RaftByte}, hello))
	for range 2 { // b's hello and its verdict; it now waits for this side's
		if _, err := readMessage(c); err != nil {
			t.Fatal(err)
		}
	}
	b1.layer.Close()
	wantClosed(t, c)
	exchange(t, near, far)
	if b.layer.Connected("a") != true || b1.layer.Connected("a") {
		t.Error("the wrong layer lost its connections")
	}

	// At any moment of it.
	stop := make(chan struct{})
	var dialling sync.WaitGroup
	for range 4 {
		dialling.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c, err := a1.layer.Dial(b.addr(), long); err == nil {
					c.Close()
				}
			}
		})
	}
	for range 50 {
		tr := NewRaftTransport(b.group(t, 1, nil).layer, hclog.NewNullLogger(), RequestLimits{})
		c, err := a1.layer.Dial(b.addr(), long)
		if err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
		tr.Close()
	}
	close(stop)
	dialling.Wait()
	exchange(t, near, far)
}
