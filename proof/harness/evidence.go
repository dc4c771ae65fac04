package harness

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/checker"
)

// Evidence is everything that is known after a test with real processes: what was asked for and answered, what was done
// to them, what they say that they did, and what the world saw of it. They are judged by the checker that judges the
// simulation.
type Evidence struct {
	Calls  []checker.Call
	Final  checker.Final
	Seen   []Seen
	Faults []Outage         // by our hand
	Vacant []checker.Outage // times without a leader, as takeovers committed them
	// whose address is whose, where each has its own; otherwise the history's word is taken for who sent a request
	Workers map[string]string
	Lease   time.Duration // of a worker's session; 0 = 30 s
}

// arrivalSlack is how much later than the caller's death a request may be written down, or its end: it sat in a socket
// buffer, and the test's goroutine waited for a processor.
const arrivalSlack = time.Second

// commandRace is how far the stamps of two commands that were on their way together may be apart from the order in
// which they were committed. All processes have the same clock; what comes between is how long a goroutine waits for a
// processor.
const commandRace = 50 * time.Millisecond

// Input is the same for the checker. What it cannot know of is told as problems: jobs and requests that are not those
// of the test.
func (b *Evidence) Input() (checker.Input, []string) {
	a := &account{b: b, jobs: map[string]*job.Job{}, byFence: map[uint64]*job.Run{},
		timeouts: map[job.ID]time.Duration{}}
	in := checker.Input{Final: b.Final, Outages: b.Vacant, TTL: b.Lease, SlackEffects: arrivalSlack,
		ClockError: commandRace}
	in.Calls = a.calls()
	in.Faults = b.faults()
	for _, c := range in.Calls {
		if c.Spec != nil {
			spec := *c.Spec
			spec.Normalize()
			if d, ok := a.timeouts[c.Job]; !ok || time.Duration(spec.Timeout) < d {
				a.timeouts[c.Job] = time.Duration(spec.Timeout)
			}
		}
	}
	for _, list := range [][]job.Run{b.Final.History, b.Final.Open} {
		for i := range list {
			if r := &list[i]; r.Fence != 0 && a.byFence[r.Fence] == nil {
				a.byFence[r.Fence] = r
			}
		}
	}
	for i := range b.Seen {
		if e, ok := a.effect(&b.Seen[i]); ok {
			in.Effects = append(in.Effects, e)
		}
	}
	return in, a.problems
}

// account turns evidence into what the checker reads.
type account struct {
	b        *Evidence
	problems []string
	jobs     map[string]*job.Job // by token
	byFence  map[uint64]*job.Run
	timeouts map[job.ID]time.Duration // the shortest that a job ever had
}

func (a *account) bad(format string, args ...any) {
	a.problems = append(a.problems, fmt.Sprintf(format, args...))
}

// calls finds the job of each create that was not answered: by its token, which is its own whatever its name is.
func (a *account) calls() []checker.Call {
	sent := map[string]bool{}
	for _, c := range a.b.Calls {
		if c.Kind == checker.CallCreate {
			if t := TokenOf(c.Spec.Payload); sent[t] {
				a.bad("the test created %s twice", t)
			} else {
				sent[t] = true
			}
		}
	}
	for i := range a.b.Final.Jobs {
		j := &a.b.Final.Jobs[i]
		t := TokenOf(j.Payload)
		switch {
		case !sent[t]:
			a.bad("%s (%q) was invented: it was never created", j.ID, j.Name)
		case a.jobs[t] != nil:
			a.bad("%s was created twice: %s and %s", t, a.jobs[t].ID, j.ID)
		default:
			a.jobs[t] = j
		}
	}
	out := slices.Clone(a.b.Calls)
	for i := range out {
		c := &out[i]
		if c.Kind != checker.CallCreate {
			continue
		}
		j := a.jobs[TokenOf(c.Spec.Payload)]
		switch {
		case j == nil:
		case c.Job == 0:
			c.Job = j.ID
		case c.Job != j.ID:
			a.bad("%s was acknowledged as %s and exists as %s", TokenOf(c.Spec.Payload), c.Job, j.ID)
		}
	}
	return out
}

// faults are what was done to each process. One that died again before it was ready was dead all the time.
func (b *Evidence) faults() (out []checker.Fault) {
	sorted := slices.Clone(b.Faults)
	slices.SortStableFunc(sorted,
		func(x, y Outage) int { return cmp.Or(cmp.Compare(x.Node, y.Node), x.Sent.Compare(y.Sent)) })
	for i, o := range sorted {
		f := checker.Fault{Kind: checker.FaultKill, Node: o.Node, From: job.At(o.Sent)}
		switch {
		case o.Paused:
			f.Kind = checker.FaultPause
		case o.Cut:
			f.Kind = checker.FaultCut
		case o.Stopped:
			f.Kind = checker.FaultStop
		}
		switch {
		case !o.Ready.IsZero():
			f.To = job.At(o.Ready) + 1
		case i+1 < len(sorted) && sorted[i+1].Node == o.Node:
			f.To = job.At(sorted[i+1].Sent)
		}
		out = append(out, f)
	}
	return out
}

// effect is a request as the attempt that sent it.
func (a *account) effect(s *Seen) (e checker.Effect, ok bool) {
	k, err := job.ParseRunKey(s.Run)
	if err != nil || s.Job != k.Job.String() || int64(s.At()) != k.At {
		a.bad("the target of %s got a request of run %q, job %s at %s", s.Token, s.Run, s.Job, s.ScheduledAt)
		return e, false
	}
	if s.Fence == 0 || s.Attempt < 1 || s.Key == "" {
		a.bad("%s was sent with key %q, attempt %d, fence %d", s.Run, s.Key, s.Attempt, s.Fence)
		return e, false
	}
	if j := a.jobs[s.Token]; j != nil && j.ID != k.Job {
		a.bad("the target of %s (%s) got a request of run %s", s.Token, j.ID, s.Run)
		return e, false
	}
	if j := a.jobOf(k.Job); j != nil && TokenOf(j.Payload) != s.Token {
		a.bad("the target of %s got a request of run %s, whose job calls %s", s.Token, s.Run, TokenOf(j.Payload))
		return e, false
	}
	e = checker.Effect{Run: k, Fence: s.Fence, Attempt: s.Attempt, Key: s.Key, Start: job.At(s.Arrived)}
	rec := a.byFence[s.Fence]
	if w, known := a.b.Workers[s.From]; known {
		e.Worker = w
	} else if rec != nil {
		e.Worker = rec.Worker
	}
	switch {
	case !s.Answered.IsZero():
		e.End, e.Outcome = job.At(s.Answered), outcome(s.Status)
		if rec != nil && e.Outcome == checker.Succeeded && rec.Status != job.RunSucceeded {
			e.Outcome = a.unheard(s, rec)
			if e.Outcome == checker.TimedOut { // its worker had it until then, whatever the target had said
				e.End = max(e.End, rec.FinishedAt)
			}
		}
	case !s.Gone.IsZero():
		e.End, e.Outcome = job.At(s.Gone), checker.Canceled
		if rec != nil && rec.Reason == job.ReasonTimeout && s.Gone.Sub(s.Arrived)+arrivalSlack >= a.timeouts[k.Job] {
			e.Outcome = checker.TimedOut
		}
	}
	return e, true
}

// unheard is the outcome of an attempt whose target said that it went well, and whose worker says something else. That
// is right only if the answer may not have come to the worker in time: it crossed with the order to stop or with the
// end of the time on its way, or the worker stood still. Whether a worker may be stopped by that is the checker's
// business.
func (a *account) unheard(s *Seen, rec *job.Run) checker.EffectOutcome {
	crossed := s.Answered.Add(arrivalSlack).UnixMilli() >= int64(rec.FinishedAt)
	asleep := slices.ContainsFunc(a.b.Faults, func(o Outage) bool {
		return o.Paused && o.Node == rec.Worker && o.Sent.UnixMilli() <= int64(rec.FinishedAt) &&
			o.Dead.After(s.Arrived)
	})
	switch {
	case (crossed || asleep) && rec.Reason == job.ReasonTimeout:
		return checker.TimedOut
	case crossed && rec.Status == job.RunCanceled, asleep:
		return checker.Canceled
	}
	return checker.Succeeded
}

func (a *account) jobOf(id job.ID) *job.Job {
	i, ok := slices.BinarySearchFunc(a.b.Final.Jobs, id, func(j job.Job, id job.ID) int {
		return cmp.Compare(j.ID, id)
	})
	if !ok {
		return nil
	}
	return &a.b.Final.Jobs[i]
}

// outcome is how an answer ends an attempt.
func outcome(status int) checker.EffectOutcome {
	switch {
	case status/100 == 2:
		return checker.Succeeded
	case status/100 == 4 && status != http.StatusTooManyRequests:
		return checker.Permanent
	}
	return checker.Failed
}

var outagesLine = regexp.MustCompile(`outages="?\[([^\]]*)\]`)

// Outages is what logs of nodes say about times without a leader, each once, in their order. A leader says it when it
// takes over.
func Outages(logs ...[]byte) (out []checker.Outage, err error) {
	for _, m := range outagesLine.FindAllSubmatch(bytes.Join(logs, nil), -1) {
		for _, part := range strings.Fields(string(m[1])) {
			from, to, _ := strings.Cut(part, "/")
			a, aerr := time.Parse(time.RFC3339Nano, from)
			z, zerr := time.Parse(time.RFC3339Nano, to)
			if aerr != nil || zerr != nil {
				return nil, fmt.Errorf("%q is no outage", part)
			}
			out = append(out, checker.Outage{From: job.At(a), To: job.At(z)})
		}
	}
	slices.SortFunc(out,
		func(x, y checker.Outage) int { return cmp.Or(cmp.Compare(x.From, y.From), cmp.Compare(x.To, y.To)) })
	return slices.Compact(out), nil
}

// TokenOf is the token of a job: the path of the URL that it calls, or that its data has for a worker of a queue.
func TokenOf(payload json.RawMessage) string {
	var p struct {
		URL  string
		Data struct{ URL string }
	}
	if json.Unmarshal(payload, &p) != nil {
		return ""
	}
	u, err := url.Parse(cmp.Or(p.URL, p.Data.URL))
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(u.Path, "/")
}
