package node

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/transport"
)

// hooks let tests begin a cluster of several and break it. All are nil or empty outside of tests.
type hooks struct {
	servers    []raft.Server // the whole cluster, begun on each of its nodes alike
	clusterID  string
	transport  func(*raft.NetworkTransport) raft.Transport
	statfs     func(path string) (free, total uint64, err error)
	beat       time.Duration // of the lock file
	fileSystem datadir.FileSystem
	where      func(id string) string // where raft dials a server, if not where it should
	// Of notifications: the delay after the first failed try, what is called between a claim and the sending, and what
	// stands before the log.
	notifyFirst   time.Duration
	notifySend    func(context.Context)
	notifyPropose func(cmd any, next func(any) (*fsm.Reply, error)) (*fsm.Reply, error)
	trusting      bool // the rules that refuse a data directory are off, to show what they are for
}

func (h *hooks) raftTransport(t *transport.RaftTransport) raft.Transport {
	if h.transport != nil {
		return h.transport(t.NetworkTransport)
	}
	return t
}

// fileSpace is how the room of a file system is measured.
func (h *hooks) fileSpace() func(path string) (free, total uint64, err error) {
	if h.statfs != nil {
		return h.statfs
	}
	return statfs
}
