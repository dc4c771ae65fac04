package membership

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm/chain"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/scrub"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
	"github.com/carillon-scheduler/carillon/transport"
)

// PeerPath is where nodes ask each other who, how far and what time it is. It is not part of the API.
const PeerPath = "/internal/v1/peer"

// peerState is what a node says of itself to others.
type peerState struct {
	wire.NodeInfo
	NowUS int64                  `json:"now_us"`
	Disk  wire.DiskSpace         `json:"disk"`
	Skips []datadir.SkippedEntry `json:"skips,omitempty"` // entries that it passes over
	// Insecure says that it serves without TLS and tokens on purpose.
	Insecure bool   `json:"insecure,omitempty"`
	Replica  uint64 `json:"replica,omitempty"` // the number of its replica of the group that it was asked about
	// Log is the last entry in its log; 0: raft does not run there.
	Log uint64 `json:"log,omitempty"`
	// Voters are the nodes whose replicas of the group vote, as its leader knows.
	Voters []string `json:"voters,omitempty"`
	// Stopped is why it takes no part; nil: it does.
	Stopped *datadir.Stopped `json:"stopped,omitempty"`
	// Chain is the hash over all entries that its state came about by.
	Chain chain.Point `json:"chain"`
	// Scrub is the newest hash that it made of a part of its state; nil: it made none.
	Scrub *scrub.Result `json:"scrub,omitempty"`
	CA    string        `json:"ca,omitempty"`    // the hash of the CA that its certificate is from
	Holds []string      `json:"holds,omitempty"` // the hashes of the CAs whose keys it has
}

// ServePeer answers the probe of another node.
func (m *Members) ServePeer(w http.ResponseWriter, r *http.Request) {
	m.receiveNotice(r)
	s := peerState{NodeInfo: m.Self(), Disk: m.o.Disk(), Skips: m.o.Skips, Insecure: m.o.Insecure,
		Replica: m.number()}
	if r := m.raft.Load(); r != nil {
		s.Log = r.LastIndex()
	}
	if m.o.Of != nil && m.o.Tracker.Epoch() != nil {
		for _, v := range m.Configured() {
			if v.Suffrage == raft.Voter {
				s.Voters = append(s.Voters, replica.Node(v.ID))
			}
		}
	}
	c := m.o.Store.Counters()
	s.Chain = chain.Point{Index: c.Index, Chain: c.Chain}
	s.Stopped = cmp.Or(m.o.Standing.Own(), m.o.Standing.Why())
	if m.o.Scrub != nil {
		s.Scrub = m.o.Scrub.Last()
	}
	s.CA, s.Holds = m.ownCAs()
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
func (s *probeReply) offset(ours stamp.Clock) time.Duration {
	now, mono := stamp.Look(ours)
	return s.clock.Add(mono - s.mono).Sub(now)
}

// Probe asks a node who it is. Its clock is compared with the middle between question and answer: the error is at most
// half of what both took.
func (m *Members) Probe(ctx context.Context, addr string) (probeReply, error) {
	return m.probeAs(ctx, addr, 0, nil)
}

// probeAs is a probe, of the leader of a term if that is not 0, with what that has to say.
func (m *Members) probeAs(ctx context.Context, addr string, term uint64, msg *notice) (s probeReply, err error) {
	if s, err = m.probeBy(ctx, m.http.Transport, addr+PeerPath+m.query(), term, msg); err == nil {
		m.hearProbe(&s, addr)
	}
	return s, err
}

func (m *Members) probeBy(ctx context.Context, by http.RoundTripper, at string, term uint64,
	msg *notice) (s probeReply, err error) {
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
	rq, err := http.NewRequestWithContext(ctx, method, "http://"+at, body)
	if err != nil {
		return s, err
	}
	rq.Header.Set(forward.HeaderForwarded, m.id())
	if term != 0 {
		rq.Header.Set(headerLeaderTerm, strconv.FormatUint(term, 10))
	}
	asked := m.o.Clock.Mono()
	resp, err := by.RoundTrip(rq)
	if err != nil {
		return s, transport.Plainly(err, whoTimeout)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	took := m.o.Clock.Mono() - asked
	if err != nil {
		return s, transport.Plainly(err, whoTimeout)
	}
	if json.Unmarshal(data, &s.peerState) != nil || s.NodeID == "" {
		return s, fmt.Errorf("no Carillon node answers there: %s", resp.Status)
	}
	s.at, s.clock, s.mono = time.Now(), time.UnixMicro(s.NowUS), asked+took/2
	return s, nil
}

// Missing is WhyNoLeader without asking: a health check must not wait for nodes that hang. follow asks while no node
// leads.
func (m *Members) Missing() string { return m.quorum.Last() }

// wasRemoved is what nodes say to one that the cluster no longer has.
const wasRemoved = "was removed from the cluster"

// WhyNoLeader asks the other voters whether they are there. It says nothing if a majority is: then an election is under
// way.
func (m *Members) WhyNoLeader(ctx context.Context) string {
	// On a secure cluster nobody answers a node that was removed. That the others are gone would be the wrong advice.
	m.mu.Lock()
	why := m.why
	m.mu.Unlock()
	if strings.Contains(why, wasRemoved) {
		return why
	}
	return m.quorum.Missing(ctx, m.id(), m.Servers(), func(ctx context.Context, addr string) error {
		_, err := m.Probe(ctx, addr)
		return err
	})
}
