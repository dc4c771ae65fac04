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
)

// The compiler holds what raft only tests at run time: without WithPreVote it
// would switch PreVote off with a line in the log.
var (
	_ raft.StreamLayer = (*StreamLayer)(nil)
	_ raft.WithPreVote = (*RaftTransport)(nil)
	_ raft.WithClose   = (*RaftTransport)(nil)
)

// RaftTransport is raft's own, except that a request is judged before raft sees
// it, that a pipeline cannot block for ever, that entries wait for a peer that is
// not there, and that nothing of it goes on after Close.
type RaftTransport struct {
	*raft.NetworkTransport // for requests to others
	layer                  *StreamLayer
	logger                 hclog.Logger
	timeout                time.Duration
	beats                  beats
	absent                 absent
	limits                 RequestLimits

	rpcs    chan raft.RPC
	done    chan struct{}
	closing sync.Once
	serving sync.WaitGroup

	mu   sync.Mutex
	beat func(raft.RPC) // raft's handler of heartbeats; nil: they go the way of the others
	term uint64         // this server was at least in it
}

// NewRaftTransport returns raft's transport over sl. Closing it, which raft
// does at the end of Shutdown, closes sl and every connection of it.
func NewRaftTransport(sl *StreamLayer, logger hclog.Logger, limits RequestLimits) *RaftTransport {
	t := &RaftTransport{NetworkTransport: newRaftTransport(outgoing{sl, sl.ctx.Done()}, sl.addressProvider(), logger,
		raftTimeout), layer: sl, logger: logger, timeout: raftTimeout, limits: limits,
		rpcs: make(chan raft.RPC), done: make(chan struct{})}
	t.serving.Go(t.serve)
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

// beats are the heartbeats that are being handled. Raft handles them where they
// come in and not in its own loop, and does not wait for them in Shutdown: one
// with a new term would write that into a log which is closed by then.
type beats struct {
	mu     sync.Mutex
	n      int
	closed bool
	none   chan struct{} // closed with the last of them
}

// SetHeartbeatHandler is how raft says what to do with a heartbeat.
func (t *RaftTransport) SetHeartbeatHandler(do func(raft.RPC)) {
	if do != nil {
		do = t.beats.guard(do)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beat = do
}

func (b *beats) guard(do func(raft.RPC)) func(raft.RPC) {
	return func(rpc raft.RPC) {
		b.mu.Lock()
		if b.closed {
			b.mu.Unlock()
			rpc.Respond(nil, raft.ErrTransportShutdown)
			return
		}
		b.n++
		b.mu.Unlock()
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.n--; b.closed && b.n == 0 {
				close(b.none)
			}
		}()
		do(rpc)
	}
}

// Close ends the transport; no heartbeat is being handled any more when it
// returns.
func (t *RaftTransport) Close() error {
	t.closing.Do(func() { close(t.done) })
	t.StopWaiting()
	err := t.NetworkTransport.Close()
	t.serving.Wait()
	t.beats.end()
	return err
}

func (b *beats) end() {
	b.mu.Lock()
	if !b.closed {
		b.closed, b.none = true, make(chan struct{})
		if b.n == 0 {
			close(b.none)
		}
	}
	none := b.none
	b.mu.Unlock()
	<-none
}

// AppendEntriesPipeline is how a leader sends entries to a peer that keeps up.
func (t *RaftTransport) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := t.NetworkTransport.AppendEntriesPipeline(id, to)
	if err != nil {
		return nil, err
	}
	return &pipeline{p, t.timeout}, nil
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
}

func (p *pipeline) AppendEntries(req *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
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
