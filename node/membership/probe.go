package membership

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// PeerPath is where nodes ask each other who, how far and what time it is. It is not part of the API.
const PeerPath = "/internal/v1/peer"

// peerState is what a node says of itself to others.
type peerState struct {
	wire.NodeInfo
	NowUS int64                  `json:"now_us"`
	Disk  wire.DiskSpace         `json:"disk"`
	Skips []datadir.SkippedEntry `json:"skips,omitempty"` // entries that it passes over
}

// ServePeer answers the probe of another node.
func (m *Members) ServePeer(w http.ResponseWriter, r *http.Request) {
	m.receiveNotice(r)
	s := peerState{NodeInfo: m.Self(), Disk: m.o.Disk(), Skips: m.o.Skips}
	w.Header().Set("Content-Type", "application/json")
	s.NowUS = m.o.Clock.Now().UnixMicro() // last: it is about the moment of the answer
	_ = json.NewEncoder(w).Encode(s)      //nolint:errcheck // the asker hung up
}

// probeReply is what another node said of itself when it was probed.
type probeReply struct {
	peerState
	at    time.Time
	clock time.Time     // what its clock said
	mono  time.Duration // when that was, on our clock that cannot be set
}

// offset is its clock minus ours, as ours is now: a change of our clock does not move its.
func (s *probeReply) offset(ours scheduler.Clock) time.Duration {
	return s.clock.Add(ours.Mono() - s.mono).Sub(ours.Now())
}

// Probe asks a node who it is. Its clock is compared with the middle between question and answer: the error is at most
// half of what both took.
func (m *Members) Probe(ctx context.Context, addr string) (probeReply, error) {
	return m.probeAs(ctx, addr, 0, nil)
}

// probeAs is a probe, of the leader of a term if that is not 0, with what that has to say.
func (m *Members) probeAs(ctx context.Context, addr string, term uint64, msg *notice) (s probeReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, whoTimeout)
	defer cancel()
	method, body := http.MethodGet, io.Reader(nil)
	if msg != nil {
		data, err := json.Marshal(msg)
		if err != nil {
			return s, err
		}
		method, body = http.MethodPost, bytes.NewReader(data)
	}
	rq, err := http.NewRequestWithContext(ctx, method, "http://"+addr+PeerPath, body)
	if err != nil {
		return s, err
	}
	rq.Header.Set(forward.HeaderForwarded, m.id())
	if term != 0 {
		rq.Header.Set(headerLeaderTerm, strconv.FormatUint(term, 10))
	}
	asked := m.o.Clock.Mono()
	resp, err := m.http.Transport.RoundTrip(rq)
	if err != nil {
		return s, plainly(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	took := m.o.Clock.Mono() - asked
	if err != nil {
		return s, plainly(err)
	}
	if json.Unmarshal(data, &s.peerState) != nil || s.NodeID == "" {
		return s, fmt.Errorf("no node of carillon answers there: %s", resp.Status)
	}
	s.at, s.clock, s.mono = time.Now(), time.UnixMicro(s.NowUS), asked+took/2
	return s, nil
}

// plainly is why a node does not answer, in words for a reader who knows its address already.
func plainly(err error) error {
	var op *net.OpError
	var sys *os.SyscallError
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer within %s", whoTimeout)
	case errors.As(err, &dns):
		return fmt.Errorf("its name %q cannot be resolved: %s", dns.Name, dns.Err)
	case errors.As(err, &sys):
		return sys.Err
	case errors.As(err, &op):
		return op.Err
	case errors.Is(err, io.EOF):
		return errors.New("it closed the connection")
	}
	return err
}
