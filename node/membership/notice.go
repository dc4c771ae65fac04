package membership

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
)

// headerLeaderTerm is in every probe of a leader: its term. A probe without it is that of a node that only wants to
// know who is there.
const headerLeaderTerm = "Carillon-Leader-Term"

// notice is what a leader tells the members with its probes, if there is something to tell: every node answers health
// checks and status requests, also one that is well itself while its leader holds.
type notice struct {
	Hold    *HoldNotice `json:"hold,omitempty"`
	Succeed string      `json:"succeed,omitempty"` // who reads this is to lead next; why this leader hands over
}

// HoldNotice is why the leader holds. Times are durations: the clock that is in doubt is the leader's own.
type HoldNotice struct {
	Kind   stamp.HoldKind `json:"kind"`
	Text   string         `json:"text"`
	Remedy string         `json:"remedy"`
	ForMS  int64          `json:"for_ms"`
}

// Err is what requests are answered with meanwhile.
func (h *HoldNotice) Err() error { return job.Errorf(job.CodeNotReady, h.Remedy, "%s", h.Text) }

// lastNotice is the last notice of a leader.
type lastNotice struct {
	notice
	term uint64
	at   time.Time
}

const (
	// noticeAge is how long a notice counts: a leader repeats it with every probe.
	noticeAge = 5 * time.Second
	// announceAfter is how long a leader holds before it is announced, where holding is a part of every takeover.
	announceAfter = time.Second
	maxNotice     = 16 << 10
)

func (m *Members) fresh(at time.Time) bool {
	return !at.IsZero() && time.Since(at) < max(m.o.Pace(noticeAge), 3*m.o.Interval)
}

// receiveNotice takes what a leader says with its probe.
func (m *Members) receiveNotice(r *http.Request) {
	term, err := strconv.ParseUint(r.Header.Get(headerLeaderTerm), 10, 64)
	if err != nil {
		return
	}
	var n notice
	if r.Method == http.MethodPost {
		data, err := io.ReadAll(io.LimitReader(r.Body, maxNotice))
		if err != nil || json.Unmarshal(data, &n) != nil {
			return // of a newer version, or cut off; the next one comes soon
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if term < m.lastNotice.term {
		return
	}
	succeeds := m.lastNotice.Succeed != "" && n.Succeed == "" && m.lastNotice.term == term && m.fresh(m.lastNotice.at)
	if succeeds {
		return // a probe that was under way beside it
	}
	m.lastNotice = lastNotice{n, term, time.Now()}
}

// succession says why this node was handed its leadership of a term, "" if it was elected without that.
func (m *Members) succession(term uint64) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lastNotice.term >= term || time.Since(m.lastNotice.at) > m.o.Pace(successionAge) {
		return ""
	}
	return m.lastNotice.Succeed
}

// successionAge is how long after being asked to a node takes over, at most.
const successionAge = 30 * time.Second

// Hold is why the leader holds, as far as this node knows, nil if it does not: its own scheduler's word if it leads,
// otherwise the leader's last notice.
func (m *Members) Hold() *HoldNotice {
	if e := m.o.Tracker.Epoch(); e != nil {
		return m.OwnHold(e)
	}
	r := m.raft.Load()
	if r == nil {
		return nil
	}
	term := r.CurrentTerm()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lastNotice.Hold == nil || m.lastNotice.term != term || !m.fresh(m.lastNotice.at) {
		return nil
	}
	h := *m.lastNotice.Hold
	h.ForMS += time.Since(m.lastNotice.at).Milliseconds()
	return &h
}

// OwnHold is why this leader holds because of its clock.
func (m *Members) OwnHold(e *forward.Epoch) *HoldNotice {
	c := e.Scheduler.Clock()
	if c.Kind == stamp.HoldNone || c.For < announceAfter &&
		(c.Kind == stamp.HoldUnknown || c.Kind == stamp.HoldBehind) {
		return nil
	}
	h := &HoldNotice{Kind: c.Kind, Text: strings.Replace(c.Why, "the leader", "the leader "+m.id(), 1),
		Remedy: c.Remedy, ForMS: c.For.Milliseconds()}
	if doing := m.HandoverState(); doing != "" {
		h.Text += "; " + doing
	}
	return h
}

// noticeFor is what this leader tells the others now, nil if there is nothing to tell.
func (m *Members) noticeFor(e *forward.Epoch) *notice {
	if h := m.OwnHold(e); h != nil {
		return &notice{Hold: h}
	}
	return nil
}
