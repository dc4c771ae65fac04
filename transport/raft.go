package transport

import (
	"context"
	"net"
	"sync"
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

	// snapshotPatience is how long a leader may send nothing of a snapshot that
	// it has begun to send: it reads it from a disk, which may be slow.
	snapshotPatience = 2 * raftTimeout
)

// The compiler holds what raft only tests at run time: without WithPreVote it
// would switch PreVote off with a line in the log.
var (
	_ raft.StreamLayer = (*StreamLayer)(nil)
	_ raft.WithPreVote = (*RaftTransport)(nil)
	_ raft.WithClose   = (*RaftTransport)(nil)
)

// RaftTransport is raft's own, except that a request is judged before raft sees
// it, that heartbeats change nothing outside raft's loop, that a pipeline cannot
// block for ever, that entries wait for a peer that is not there, and that
// nothing of it goes on after Close.
type RaftTransport struct {
	*raft.NetworkTransport // for requests to others
	layer                  *StreamLayer
	logger                 hclog.Logger
	timeout                time.Duration
	absent                 absent
	vain                   vain
	limits                 RequestLimits

	rpcs    chan raft.RPC
	beats   chan raft.RPC // one heartbeat that was answered, and that raft has not seen yet
	done    chan struct{}
	closing sync.Once
	serving sync.WaitGroup

	waiting     chan struct{} // closed by StopWaiting
	stopWaiting sync.Once

	mu   sync.Mutex
	term uint64 // this server was at least in it
}

// NewRaftTransport returns raft's transport over sl. Closing it, which raft
// does at the end of Shutdown, closes sl and every connection of it.
func NewRaftTransport(sl *StreamLayer, logger hclog.Logger, limits RequestLimits) *RaftTransport {
	t := &RaftTransport{NetworkTransport: newRaftTransport(outgoing{sl, sl.ctx.Done()}, sl.addressProvider(), logger,
		raftTimeout), layer: sl, logger: logger, timeout: raftTimeout, limits: limits,
		rpcs: make(chan raft.RPC), beats: make(chan raft.RPC, 1), done: make(chan struct{}),
		waiting: make(chan struct{})}
	t.serving.Go(t.serve)
	t.serving.Go(t.passHeartbeats)
	return t
}

// outgoing is the layer of the transport that makes connections and accepts none.
type outgoing struct {
	*StreamLayer
	closed <-chan struct{}
}

func (o outgoing) Accept() (net.Conn, error) {
	<-o.closed
	return nil, net.ErrClosed
}

// Consumer is where raft takes requests from: those of the network, and Campaign's.
func (t *RaftTransport) Consumer() <-chan raft.RPC { return t.rpcs }

// Campaign makes this server stand for election at once, as a leader that hands
// over asks its successor to: without asking first whether it would be elected,
// and the others vote although they have not missed the leader yet. Raft has no
// other call for it.
func (t *RaftTransport) Campaign(ctx context.Context) {
	answer := make(chan raft.RPCResponse, 1)
	rq := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
	select {
	case t.rpcs <- raft.RPC{Command: rq, RespChan: answer}:
	case <-t.done:
	case <-ctx.Done():
	}
}

// Connected says whether a connection that a node made is open.
func (t *RaftTransport) Connected(node string) bool { return t.layer.Connected(node) }

// SetHeartbeatHandler takes no handler. Raft's own (v1.7.3, processHeartbeat)
// changes term and state from the goroutine of a connection, beside raft's loop.
// A leader that hears of its successor this way goes on for a moment, and writes
// what is proposed under the successor's term: two entries of one index and term,
// which no later comparison of logs tells apart, and replicas that differ for
// ever (hashicorp/raft#695).
func (t *RaftTransport) SetHeartbeatHandler(func(raft.RPC)) {}

// heartbeat answers a heartbeat of the leader that this server follows at once,
// because raft's loop may be waiting for the disk and the leader would count it
// as lost. Nothing is promised by that: the server was in the leader's term when
// it answered. Raft sees the heartbeat as well: at once if its loop waits for
// work, and otherwise when it gets to it, or the one that is waiting for that
// already. Any other goes the way of all requests.
func (t *RaftTransport) heartbeat(rpc raft.RPC) (answered bool) {
	c := rpc.Command.(*raft.AppendEntriesRequest)
	if t.limits.Follows == nil || !t.limits.Follows(c.Term) {
		return false
	}
	rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax},
		Term: c.Term, Success: true}, nil)
	seen := raft.RPC{Command: c, RespChan: make(chan raft.RPCResponse, 1)}
	select {
	case t.rpcs <- seen:
	default:
		select {
		case t.beats <- seen:
		default:
		}
	}
	return true
}

// passHeartbeats gives raft the heartbeats that were answered.
func (t *RaftTransport) passHeartbeats() {
	for {
		select {
		case rpc := <-t.beats:
			select {
			case t.rpcs <- rpc:
			case <-t.done:
				return
			}
		case <-t.done:
			return
		}
	}
}

// Close ends the transport.
func (t *RaftTransport) Close() error {
	t.closing.Do(func() { close(t.done) })
	t.StopWaiting()
	err := t.NetworkTransport.Close()
	t.serving.Wait()
	return err
}

// AppendEntriesPipeline is how a leader sends entries to a peer that keeps up.
func (t *RaftTransport) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	if err := t.mayAsk(); err != nil {
		return nil, err
	}
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, to)
	if err != nil {
		return nil, err
	}
	return &pipeline{p, t.timeout, t.apart}, nil
}

// pipeline gives up when an append waits too long. The reader of the answers
// stops at the first that is bad: a newer term, a log that does not match. The
// next answer then waits for a reader, and with it the sender, who
// is the one that would close the pipeline. In raft (v1.7.3) both wait for
// ever: a leader that steps down never gets to the end of Shutdown, and one
// that goes on leading sends that peer no more entries.
type pipeline struct {
	raft.AppendPipeline
	patience time.Duration
	apart    func() error
}

func (p *pipeline) AppendEntries(req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if err := p.apart(); err != nil {
		return nil, err
	}
	t := time.AfterFunc(p.patience, func() { _ = p.Close() })
	defer t.Stop()
	return p.AppendPipeline.AppendEntries(req, resp)
}

// addressProvider is nil if nothing is known: raft logs a warning whenever a
// provider does not know.
func (s *StreamLayer) addressProvider() raft.ServerAddressProvider {
	if s.opts.AddressOf == nil {
		return nil
	}
	return s
}

func newRaftTransport(sl raft.StreamLayer, where raft.ServerAddressProvider, logger hclog.Logger,
	timeout time.Duration) *raft.NetworkTransport {
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
