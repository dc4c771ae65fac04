package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/job"
)

// peerPath is where nodes ask each other how they are. It is not part of the API.
const peerPath = "/internal/v1/peer"

const (
	measureEvery = 2 * time.Second
	probeTimeout = time.Second
	// sampleAge is how long a measurement counts.
	sampleAge = 10 * time.Second
	// troubleAge is how long the reason for having no leader is believed before the others are asked again.
	troubleAge = time.Second
)

// peerState is what a node says of itself.
type peerState struct {
	Node    string `json:"node"`
	Cluster string `json:"cluster"`
	State   string `json:"state"`
	Now     int64  `json:"now_us"`
	Applied uint64 `json:"applied"`
}

func (n *Node) servePeer(w http.ResponseWriter) {
	s := peerState{Node: n.cfg.NodeID, Cluster: n.group.store.Info().ClusterID, State: stateName(n.group.raft.State()),
		Applied: n.group.store.Counters().Index}
	w.Header().Set("Content-Type", "application/json")
	s.Now = n.cfg.Clock.Now().UnixMicro() // last: it is about the moment of the answer
	_ = json.NewEncoder(w).Encode(s)      //nolint:errcheck // the asker hung up
}

// sample is one look at another node.
type sample struct {
	at      time.Time     // of the last answer; zero: never
	offset  time.Duration // its clock minus ours
	rtt     time.Duration
	applied uint64
	state   string
	err     error // of the last try; nil: it answered
}

// peers is what the leader knows of the other members: whether they answer, how far behind they are and what time they have.
type peers struct {
	n      *Node
	asking sync.Mutex

	mu      sync.Mutex
	samples map[string]sample
	trouble string // why there is no leader
	asked   time.Time
}

func newPeers(n *Node) *peers { return &peers{n: n, samples: map[string]sample{}} }

// run measures while this node leads.
func (p *peers) run(ctx context.Context) {
	tick := time.NewTicker(measureEvery)
	defer tick.Stop()
	for {
		e, changed := p.n.group.lead.watch()
		if e != nil {
			p.measure(ctx)
		} else {
			p.forget()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-changed:
		}
	}
}

func (p *peers) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.samples)
}

// measure looks at all other members, side by side.
func (p *peers) measure(ctx context.Context) {
	var wg sync.WaitGroup
	members := map[string]bool{}
	for _, m := range p.n.servers() {
		id := string(m.ID)
		members[id] = true
		if id == p.n.cfg.NodeID {
			continue
		}
		wg.Go(func() {
			s, err := p.probe(ctx, string(m.Address))
			p.mu.Lock()
			defer p.mu.Unlock()
			if err != nil {
				s = p.samples[id] // what it said last stays, with its age
				s.err = err
			}
			p.samples[id] = s
		})
	}
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.samples {
		if !members[id] {
			delete(p.samples, id)
		}
	}
}

// probe asks one node. Its clock is compared with the middle between question and answer: the error is at most half of what both took.
func (p *peers) probe(ctx context.Context, addr string) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	rq, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+peerPath, nil)
	if err != nil {
		return sample{}, err
	}
	rq.Header.Set(headerForwarded, p.n.cfg.NodeID)
	asked, wall := time.Now(), p.n.cfg.Clock.Now()
	resp, err := p.n.forward.short.RoundTrip(rq)
	if err != nil {
		return sample{}, err
	}
	defer resp.Body.Close()
	var s peerState
	data, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	rtt := time.Since(asked)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err == nil && s.Node == "" {
		err = fmt.Errorf("%s is not a carillon node: %s", addr, resp.Status)
	}
	if err != nil {
		return sample{}, err
	}
	return sample{at: time.Now(), offset: time.UnixMicro(s.Now).Sub(wall.Add(rtt / 2)), rtt: rtt, applied: s.Applied, state: s.State}, nil
}

func (p *peers) get(id string) (sample, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.samples[id]
	return s, ok
}

// skew is how far this node's clock is from the majority's. It is 0 while no majority's is known.
func (p *peers) skew() time.Duration {
	m, ok := p.median()
	if !ok {
		return 0
	}
	return -m
}

// median is the majority's clock minus ours. The leader asks for it whenever it stamps, also on behalf of somebody who reads the store,
// so it must never wait for the store itself: raft's own list of servers says all that is needed.
func (p *peers) median() (time.Duration, bool) {
	var offsets []time.Duration
	voters := 0
	servers := p.n.members.configured()
	p.mu.Lock()
	for _, m := range servers {
		if m.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(m.ID) == p.n.cfg.NodeID {
			offsets = append(offsets, 0)
		} else if s := p.samples[string(m.ID)]; !s.at.IsZero() && time.Since(s.at) < sampleAge {
			offsets = append(offsets, s.offset)
		}
	}
	p.mu.Unlock()
	return medianOf(offsets, voters)
}

// medianOf is the middle of the offsets if they are a majority's. Of two in the middle the one that is farther from ours counts: with
// two clocks that disagree there is no majority on our side.
func medianOf(offsets []time.Duration, voters int) (time.Duration, bool) {
	if len(offsets) < 2 || len(offsets) <= voters/2 {
		return 0, false
	}
	slices.Sort(offsets)
	m := offsets[len(offsets)/2]
	if len(offsets)%2 == 0 {
		if other := offsets[len(offsets)/2-1]; other.Abs() > m.Abs() {
			m = other
		}
	}
	return m, true
}

// servers is the raft configuration as this node has it, with the addresses at which the servers are now.
func (n *Node) servers() []raft.Server { return n.members.servers() }

// noLeader is the answer to what needs a leader when there is none: who is missing, and what to do about it.
func (n *Node) noLeader(ctx context.Context) error {
	if why := n.peers.whyNoLeader(ctx); why != "" {
		text, remedy, _ := strings.Cut(why, "; ")
		return job.Errorf(job.CodeNoLeader, remedy, "nobody leads: %s; nothing was changed", text)
	}
	return errNoLeader()
}

// whyNoLeader asks the other voters whether they are there. It says nothing if a majority is: then an election is under way.
func (p *peers) whyNoLeader(ctx context.Context) string {
	p.asking.Lock() // once for all who want to know
	defer p.asking.Unlock()
	p.mu.Lock()
	if time.Since(p.asked) < troubleAge {
		defer p.mu.Unlock()
		return p.trouble
	}
	p.mu.Unlock()

	var mu sync.Mutex
	var wg sync.WaitGroup
	missing := map[string]bool{}
	voters := 0
	servers := p.n.servers()
	for _, m := range servers {
		if m.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(m.ID) == p.n.cfg.NodeID {
			continue
		}
		wg.Go(func() {
			if _, err := p.probe(context.WithoutCancel(ctx), string(m.Address)); err != nil {
				mu.Lock()
				missing[string(m.ID)] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	why := ""
	if voters-len(missing) <= voters/2 {
		var names []string
		for _, m := range servers {
			if missing[string(m.ID)] {
				names = append(names, fmt.Sprintf("%s (%s)", m.ID, m.Address))
			}
		}
		verb, start := "are", "start one of them"
		if len(missing) == 1 {
			verb, start = "is", "start it"
		}
		why = fmt.Sprintf("%d of %d voters %s unreachable: %s; %s, or run `carillon cluster recover` if they are gone for good", len(missing), voters, verb, strings.Join(names, ", "), start)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble, p.asked = why, time.Now()
	return why
}
