package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
)

// A process that is frozen stands still with its timers, as under SIGSTOP. Of one that is merely paused raft's loop
// goes on: it notices by itself, in the middle of the pause, that it has lost its majority or its leader. Here the loop
// waits too. It says what it is about to do before it does it, and that is where it is held; writes, messages and
// attempts wait as in a pause. When the process goes on, all that it believed is still in its memory, and its timers
// are due at once.

// coldLog holds raft's goroutines while their process is frozen.
type coldLog struct {
	slog.Handler
	p    *process
	raft bool
}

func (h *coldLog) Enabled(ctx context.Context, l slog.Level) bool {
	if h.raft && h.p.cold.Load() {
		h.p.awake()
	}
	return h.Handler.Enabled(ctx, l)
}

func (h *coldLog) WithAttrs(as []slog.Attr) slog.Handler {
	n := &coldLog{h.Handler.WithAttrs(as), h.p, h.raft}
	for _, a := range as {
		n.raft = n.raft || a.Key == "part" && a.Value.String() == "raft"
	}
	return n
}

func (h *coldLog) WithGroup(name string) slog.Handler {
	return &coldLog{h.Handler.WithGroup(name), h.p, h.raft}
}

// frozen makes a server stand still for a while, with its timers or without.
func (c *cluster) stands(s *server, lasts time.Duration, timers bool) bool {
	l := s.current()
	if l == nil || l.gone() {
		return false
	}
	x := c.fault(checker.FaultPause, s.id, "", 0)
	c.rec.mu.Lock()
	x.Led = only(c.o.jobGroups(), l.n.LeadsGroup)
	c.rec.mu.Unlock()
	l.cold.Store(timers)
	l.freeze()
	c.net.Pause(s.host, true)
	time.Sleep(lasts)
	c.net.Pause(s.host, false)
	l.cold.Store(false)
	l.thaw()
	c.over(x)
	return true
}

// frozen: nodes stand still again and again, for less and for more than it takes to elect another leader and to lose a
// lease, while there is much to do.
func frozen(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers = 6*time.Second, 2
	p.steady(3, 2*time.Second, 0, time.Second,
		func(s *job.Spec) { s.Overlap = pick(rng, job.OverlapAllow, job.OverlapSkip, job.OverlapQueue) })
	p.steady(3, 7*time.Second, 2*time.Second, 12*time.Second,
		func(s *job.Spec) { s.Workers = map[string]string{"pool": "remote"} })
	for i := range 12 {
		p.faults = append(p.faults,
			plannedFault{at: time.Duration(12+22*i)*time.Second + between(rng, 0, 5*time.Second),
				kind: []string{"freeze-leader", "freeze-leader", "freeze", "pause-worker"}[i%4],
				a:    rng.IntN(p.o.nodes),
				lasts: pick(rng, 300*time.Millisecond, time.Second, 2*time.Second, 5*time.Second, 9*time.Second) +
					between(rng, 0, time.Second), x: rng.Uint64()})
	}
	p.ask(rng, 60, "run", len(p.jobs), 5*time.Second, p.o.length)
}

// flood: more is due in one second than a batch holds, or a head of what is ready, or the bytes of an entry.
func flood(p *plan, rng *rand.Rand) {
	p.o.ttl, p.o.workers, p.o.slots, p.o.length = 30*time.Second, 1, 2000, 90*time.Second
	p.o.crowd = 4400
	p.steady(2, 10*time.Second, 0, time.Second, func(*job.Spec) {})
	if p.seed%2 == 0 { // long keys: few of them fill an entry
		p.o.crowd, p.o.keys = 1300, 400
	}
	p.calls = append(p.calls,
		plannedCall{at: 5 * time.Second, kind: "crowd", node: rng.IntN(p.o.nodes), x: rng.Uint64()})
	p.faults = append(p.faults,
		plannedFault{at: 30*time.Second + between(rng, 0, 2*time.Second),
			kind: pick(rng, "transfer", "kill-leader", "freeze-leader"), lasts: 3 * time.Second, x: rng.Uint64()})
}

// crowd makes jobs that are due in the same second.
func (c *cluster) crowd(pc plannedCall) {
	at := c.p.from(30 * time.Second).UTC().Truncate(time.Second)
	for first := 0; first < c.o.crowd; first += 500 {
		var in strings.Builder
		specs := map[string]*job.Spec{}
		for i := first; i < min(first+500, c.o.crowd); i++ {
			s := job.Spec{Name: fmt.Sprintf("crowd-%d", i), Type: job.TypeHTTP,
				Payload: json.RawMessage(`{"url":"http://target.example/"}`), Schedule: at.Format(time.RFC3339),
				Retention: job.Duration(1000 * 24 * time.Hour)}
			if c.o.keys > 0 {
				s.Name += "-" + strings.Repeat("n", 107)
				s.IdempotencyKey = "{run_id}-" + strings.Repeat("{job_name}", c.o.keys/100)
			}
			data, err := json.Marshal(s)
			if err != nil {
				panic(err)
			}
			in.Write(append(data, '\n'))
			specs[s.Name] = &s
		}
		c.bulk(pc, in.String(), specs)
	}
}

// bulk creates jobs by lines, and sends them again until each line is answered: what is there already is answered with
// its number.
func (c *cluster) bulk(pc plannedCall, lines string, specs map[string]*job.Spec) {
	began := c.t.instant()
	made := map[string]job.ID{}
	for try := range callTries {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := c.clients[(pc.node+try)%len(c.clients)].BulkCreate(ctx, strings.NewReader(lines),
			func(r client.BulkResult) error {
				if r.JobID != nil {
					made[r.Name] = *r.JobID
				} else if r.Error != nil && r.Error.Code == job.CodeInvalid {
					c.problem("line %d of a bulk create: %v", r.Line, r.Error)
				} else {
					c.event("line %d of a bulk create: %v", r.Line, r.Error)
				}
				return nil
			})
		cancel()
		c.event("bulk create: %d of %d lines, %v", len(made), len(specs), err)
		if err == nil && len(made) == len(specs) {
			break
		}
		time.Sleep(2 * time.Second)
	}
	ended := c.t.instant()
	c.rec.mu.Lock()
	defer c.rec.mu.Unlock()
	for name, s := range specs {
		call := checker.Call{Kind: checker.CallCreate, Name: name, Spec: s, Invoke: began, Return: ended,
			Job: made[name]}
		if call.Job != 0 {
			call.Outcome = checker.OK
		}
		c.rec.calls = append(c.rec.calls, call)
	}
}
