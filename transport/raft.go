package transport

import (
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	// raftPool is the number of idle connections kept per peer: heartbeats,
	// replication and a vote can be under way at the same time.
	raftPool = 3

	// raftTimeout bounds a request, and a dial. It must leave time to send and
	// fsync the largest batch of entries on a slow disk, since a batch that
	// never fits in it is retried for ever; it must be short enough that a peer
	// which vanished without a word is given up and redialled soon after it
	// came back. Elections do not wait for it.
	raftTimeout = 5 * time.Second
)

// The compiler holds what raft only tests at run time: without WithPreVote it
// would switch PreVote off with a line in the log.
var (
	_ raft.StreamLayer = (*StreamLayer)(nil)
	_ raft.WithPreVote = (*raft.NetworkTransport)(nil)
	_ raft.WithClose   = (*raft.NetworkTransport)(nil)
)

// NewRaftTransport returns raft's transport over sl. Closing it, which raft
// does at the end of Shutdown, closes sl and every connection of it.
func NewRaftTransport(sl *StreamLayer, logger hclog.Logger) *raft.NetworkTransport {
	return newRaftTransport(sl, logger, raftTimeout)
}

func newRaftTransport(sl *StreamLayer, logger hclog.Logger, timeout time.Duration) *raft.NetworkTransport {
	var where raft.ServerAddressProvider
	if sl.opts.AddressOf != nil { // raft logs a warning whenever a provider does not know
		where = sl
	}
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: where,

		Stream:  sl,
		Logger:  logger,
		MaxPool: raftPool,
		// Two overlap the next batch with the answer to the last; more only
		// queue (raft#541).
		MaxRPCsInFlight: 2,
		// Not zero: the calls that set deadlines are also where redialConn sees
		// a request begin.
		Timeout:                 timeout,
		MsgpackUseNewTimeFormat: true,
	})
}
