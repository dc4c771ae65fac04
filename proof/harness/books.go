package harness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Kind is what sort of job a promise is about.
type Kind uint8

// The kinds.
const (
	OneOff Kind = iota + 1
	Every
	Manual
)

// Promise is one create that a test sent, and what it was told.
type Promise struct {
	Token string // the path of its target's URL; every job of a test has its own
	Kind  Kind
	Acked job.ID        // the id in the answer. 0: never answered, so it may or may not exist
	At    job.Instant   // OneOff
	Step  time.Duration // Every
	Once  bool          // delivery at_most_once: a run whose worker dies is reported lost, and never repeated
}

// Trigger is one manual run that a test asked for.
type Trigger struct {
	Token string
	Run   string // the id in the answer. Empty: never answered, so it may or may not have been made
}

// Books are everything that is known after a test: what was promised, what the node says it did, and what the world saw of it.
type Books struct {
	Promises []Promise
	Triggers []Trigger
	Jobs     []job.Job
	History  []job.Run
	Open     []job.Run
	Seen     []Seen
	Outages  []Outage
}

// Report is the outcome of an audit.
type Report struct {
	Problems []string
	Jobs     int // that exist
	Runs     int
	Requests int
	Repeated int // runs of which the target saw more than one request
	Lost     int // attempts that ended with their worker
	GivenUp  int // runs with delivery at_most_once that were lost with their worker
	NotRun   int // occurrences that a record says did not run
}

func (r Report) String() string {
	return fmt.Sprintf("%d jobs, %d runs, %d requests, %d runs seen more than once, %d attempts lost with their worker (%d of them at most once), %d occurrences recorded as not run, %d problems",
		r.Jobs, r.Runs, r.Requests, r.Repeated, r.Lost, r.GivenUp, r.NotRun, len(r.Problems))
}

// Audit holds the books against the promises of the design: an occurrence has at most one live claim, is never lost, is never
// invented, and is repeated only if its worker died between starting and reporting.
func (b *Books) Audit() Report {
	a := &audit{b: b, byToken: map[string]*entry{}, byID: map[job.ID]*entry{}, runs: map[job.RunKey]*runFacts{}, byFence: map[uint64]job.Run{}}
	a.jobs()
	a.history()
	a.requests()
	for _, k := range a.sortedRuns() {
		a.run(k, a.runs[k])
	}
	for _, t := range a.tokens {
		if e := a.byToken[t]; e.job != nil {
			a.occurrences(e)
		}
	}
	for _, r := range b.Open {
		a.bad("%s is still open: %s", name(r), r.Status)
	}
	a.r.Jobs, a.r.Runs, a.r.Requests = len(b.Jobs), len(a.runs), len(b.Seen)
	return a.r
}

// entry is one promised job.
type entry struct {
	Promise
	job      *job.Job // nil: does not exist
	runs     []job.RunKey
	gaps     []job.Run
	triggers []string // acknowledged
	maybe    int      // triggers without an answer
}

// runFacts is what is known of one run.
type runFacts struct {
	records []job.Run // in the order of the history
	seen    []Seen    // in the order of arrival
}

type audit struct {
	b       *Books
	r       Report
	tokens  []string // in the order of the promises
	byToken map[string]*entry
	byID    map[job.ID]*entry
	runs    map[job.RunKey]*runFacts
	byFence map[uint64]job.Run // attempts in the history
}

func (a *audit) bad(format string, args ...any) {
	a.r.Problems = append(a.r.Problems, fmt.Sprintf(format, args...))
}

func (a *audit) facts(k job.RunKey) *runFacts {
	f := a.runs[k]
	if f == nil {
		f = &runFacts{}
		a.runs[k] = f
		if e := a.byID[k.Job]; e != nil {
			e.runs = append(e.runs, k)
		}
	}
	return f
}

func (a *audit) sortedRuns() []job.RunKey {
	keys := make([]job.RunKey, 0, len(a.runs))
	for k := range a.runs {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y job.RunKey) int {
		if x.Job != y.Job {
			return int(int64(x.Job) - int64(y.Job))
		}
		if x.At != y.At {
			return int(x.At - y.At)
		}
		return int(x.Origin) - int(y.Origin)
	})
	return keys
}

// jobs holds the list of jobs against what was promised: what was acknowledged exists once, and nothing exists that nobody sent.
func (a *audit) jobs() {
	for _, p := range a.b.Promises {
		if a.byToken[p.Token] != nil {
			a.bad("the test promised %s twice", p.Token)
			continue
		}
		a.byToken[p.Token] = &entry{Promise: p}
		a.tokens = append(a.tokens, p.Token)
	}
	for i := range a.b.Jobs {
		j := &a.b.Jobs[i]
		e := a.byToken[TokenOf(j.Payload)]
		switch {
		case e == nil:
			a.bad("%s (%q) was invented: nobody created it", j.ID, j.Name)
			continue
		case e.job != nil:
			a.bad("%s was created twice: %s and %s", e.Token, e.job.ID, j.ID)
			continue
		case e.Acked != 0 && e.Acked != j.ID:
			a.bad("%s was acknowledged as %s and exists as %s", e.Token, e.Acked, j.ID)
		}
		e.job = j
		a.byID[j.ID] = e
	}
	for _, t := range a.tokens {
		if e := a.byToken[t]; e.Acked != 0 && e.job == nil {
			a.bad("%s is lost: it was acknowledged as %s and does not exist", t, e.Acked)
		}
	}
	for _, t := range a.b.Triggers {
		e := a.byToken[t.Token]
		switch {
		case e == nil || e.Kind != Manual:
			a.bad("the test triggered %s, which is no manual job of its own", t.Token)
		case t.Run == "":
			e.maybe++
		default:
			e.triggers = append(e.triggers, t.Run)
		}
	}
}

// TokenOf is the token of a job: the path of the URL that it calls, or that its data has for whoever comes for its runs.
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

func name(r job.Run) string {
	if r.RunID != "" {
		return r.RunID
	}
	return fmt.Sprintf("%s %s..%s", r.JobID, r.First, r.Last)
}
