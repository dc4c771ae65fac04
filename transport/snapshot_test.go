package transport

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// copied is a snapshot that counts how often it is made.
type copied struct {
	io.Reader
	size  int64
	err   error
	begun int
}

func (c *copied) Begin() (int64, error) {
	c.begun++
	return c.size, c.err
}

// A copy of the whole state is made for a server that takes connections, and for no other.
func TestNoCopyForAServerThatIsNotThere(t *testing.T) {
	a := startJudged(t, nil, "a", RequestLimits{})
	b := startJudged(t, nil, "b", RequestLimits{})
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	install := func(id raft.ServerID, to raft.ServerAddress, c *copied) error {
		var answer raft.InstallSnapshotResponse
		return a.InstallSnapshot(id, to, &raft.InstallSnapshotRequest{RPCHeader: headerOf("a", 1), Term: 1}, &answer, c)
	}
	a.StopWaiting() // otherwise it would wait until a heartbeat gets through
	for range 3 {
		c := &copied{Reader: strings.NewReader("state"), size: 5}
		if err := install("gone", raft.ServerAddress(gone.Addr().String()), c); err == nil || c.begun != 0 {
			t.Errorf("%d copies for a server that is not there, %v", c.begun, err)
		}
	}
	full := &copied{err: errors.New("no room")}
	// Of another name: for one that did not take a copy the next waits.
	if err := install("c", b.addr(), full); err == nil || !strings.Contains(err.Error(), "no room") || b.requests() != 0 {
		t.Errorf("%v", err)
	}
	c := &copied{Reader: strings.NewReader("state"), size: 5}
	if err := install("b", b.addr(), c); err != nil || c.begun != 1 || b.requests() != 1 {
		t.Fatalf("%d copies, %d requests, %v", c.begun, b.requests(), err)
	}
	if rq := b.seen[0].(*raft.InstallSnapshotRequest); rq.Size != 5 {
		t.Errorf("%d bytes are announced", rq.Size)
	}
}

// A server that does not take copies gets the next one when ten times what it took has passed, and not for ever later.
func TestCopiesInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v vain
		for took, pause := range map[time.Duration]time.Duration{time.Second: 10 * time.Second, time.Hour: maxVain, 0: 0} {
			v.note("b", took)
			for _, id := range []raft.ServerID{"a", "b"} {
				if err := v.check(id); (err != nil) != (id == "b" && pause > 0) {
					t.Errorf("%s after %s: %v", id, took, err)
				}
			}
			time.Sleep(pause)
			if err := v.check("b"); err != nil {
				t.Errorf("%s later: %v", pause, err)
			}
		}
	})
}

// A leader that is frozen while it sends a snapshot does not keep the receiver, which votes in the same goroutine.
func TestSnapshotThatStandsStill(t *testing.T) {
	a := startJudged(t, nil, "a", RequestLimits{})
	b := startJudged(t, nil, "b", RequestLimits{Patience: 100 * time.Millisecond})
	frozen, thaw := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		var answer raft.InstallSnapshotResponse
		sent <- a.InstallSnapshot("b", b.addr(), &raft.InstallSnapshotRequest{RPCHeader: headerOf("a", 1), Term: 1, Size: 1 << 20}, &answer, frozen)
	}()
	if _, err := thaw.Write(make([]byte, 1<<19)); err != nil {
		t.Fatal(err)
	}
	if err := <-b.ended; err == nil {
		t.Error("half of it was taken for all")
	}
	thaw.Close()
	if err := <-sent; err == nil {
		t.Error("it is said to be installed")
	}
	// The next one comes over a connection of its own.
	var answer raft.InstallSnapshotResponse
	if err := a.InstallSnapshot("b", b.addr(), &raft.InstallSnapshotRequest{RPCHeader: headerOf("a", 1), Term: 1, Size: 4}, &answer,
		strings.NewReader("data")); err != nil || <-b.ended != nil {
		t.Error(err)
	}
}
