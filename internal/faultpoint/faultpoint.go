// Package faultpoint holds the seams through which tests and the simulator break the product. Outside of them every one
// is off.
package faultpoint

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/internal/dirlock"
)

// ErrProcessGone is what a simulated disk answers once the process that writes to it is dead.
var ErrProcessGone = errors.New("the process is gone")

// Pace makes housekeeping beat this many times slower, so that simulated months are cheap; 0 and 1: as designed.
type Pace int

// Of is how long a duration takes at this pace.
func (p Pace) Of(d time.Duration) time.Duration { return d * time.Duration(max(p, 1)) }

// Step is called between the steps of something that a crash may cut off. An error ends it there and is returned; nil:
// nothing is called.
type Step func(name string) error

// ErrCutOff ends a sequence of steps as a crash would: nothing is tidied up.
var ErrCutOff = errors.New("cut off")

// At is called between two steps.
func (s Step) At(name string) error {
	if s == nil {
		return nil
	}
	return s(name)
}

// Node is what a node stands on: network, disk, time. The zero value is the real one. Tests and the simulator put their
// own in place, so that whole clusters can be broken with everything above this being real.
type Node struct {
	Listen func(addr string) (net.Listener, error)
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error) // to other nodes
	// Accepted adds to what is known of an HTTP connection: who is at its other end, without certificates.
	Accepted  func(ctx context.Context, conn net.Conn) context.Context
	NoSocket  bool // a node has no admin socket: real ones know no virtual time
	Transport func(RaftTransport) raft.Transport
	Where     func(id string) string // where raft dials a server, if not where it should

	// Write is called before every write to the file "log" or "state", and may take its time. An error is that of the
	// disk.
	Write     func(file string) error
	DiskSpace func() (free, total uint64, err error) // of the data directory; nil: as its file system says
	DiskEvery time.Duration                          // how often the disk space is looked at; 0: as designed
	// CopySpace is the room for the copy that a backup makes; nil: as its file system says.
	CopySpace  func(path string) (free, total uint64, err error)
	FileSystem dirlock.FileSystem // of the data directory; nil: as the kernel says
	LockBeat   time.Duration      // between two changes of the lock file; 0: as designed
	Trusting   bool               // the rules that refuse a data directory are off, to show what they are for

	Pace Pace
	// KeyStep is called between the steps in which keys are written.
	KeyStep Step
	// ReplicaStep is called between the steps in which the replica of a group is given up.
	ReplicaStep Step

	TokenStep Step          // while the first API token is written down
	Servers   []raft.Server // the whole cluster, bootstrapped on each of its nodes alike
	ClusterID string        // of a new cluster; "": a random one
	Leading   func(group uint32, term uint64)

	NotifyRetry  time.Duration         // the delay after the first failed try of a notification; 0: as designed
	BeforeNotify func(context.Context) // called between the claim of a notification and its sending
}

// ListenOn listens on an address.
func (n *Node) ListenOn(addr string) (net.Listener, error) {
	if n.Listen != nil {
		return n.Listen(addr)
	}
	return net.Listen("tcp", addr)
}

// Dialer is how HTTP gets to other nodes.
func (n *Node) Dialer(timeout, keepAlive time.Duration) func(context.Context, string, string) (net.Conn, error) {
	if n.Dial == nil {
		return (&net.Dialer{Timeout: timeout, KeepAlive: keepAlive}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return n.Dial(ctx, network, addr)
	}
}

// BeforeWrite is what is called before every write to a file; nil: nothing.
func (n *Node) BeforeWrite(file string) func() error {
	if n.Write == nil {
		return nil
	}
	return func() error { return n.Write(file) }
}

// RaftTransport is a transport with everything that raft asks for.
type RaftTransport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
}

// TransportOf is the transport that raft gets.
func (n *Node) TransportOf(t RaftTransport) raft.Transport {
	if n.Transport != nil {
		return n.Transport(t)
	}
	return t
}

// FileSystemOf says on what kind of file system a path is, and its name.
func (n *Node) FileSystemOf(path string) (dirlock.Kind, string, error) {
	if n.FileSystem != nil {
		return n.FileSystem(path)
	}
	return dirlock.Inspect(path)
}
