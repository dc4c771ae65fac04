package proof

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// firstClaim is when something was claimed again after an instant.
func firstClaim(history []job.Run, after time.Time) (at job.Instant) {
	for _, r := range history {
		if r.ClaimedAt > job.At(after) && (at == 0 || r.ClaimedAt < at) {
			at = r.ClaimedAt
		}
	}
	return at
}

// longestGap is the longest time without a claim during an outage, and when it began: a cut does not happen at an
// instant.
func longestGap(history []job.Run, o harness.Outage) (took time.Duration, from time.Time) {
	claims := []job.Instant{job.At(o.Sent)}
	for _, r := range history {
		if at := r.ClaimedAt; at > job.At(o.Sent) && at < job.At(o.Dead) {
			claims = append(claims, at)
		}
	}
	slices.Sort(claims)
	for i := 1; i < len(claims); i++ {
		if d := claims[i].Time().Sub(claims[i-1].Time()); d > took {
			took, from = d, claims[i-1].Time()
		}
	}
	return took, from
}

// logGaps says for how long nothing was claimed after each outage, and how long the machine itself stood still
// meanwhile.
func (l *load) logGaps(what string, history []job.Run, outages []harness.Outage) {
	l.t.Helper()
	type gap struct{ took, stall time.Duration }
	var gaps []gap
	for _, o := range outages {
		from := o.Dead // until then the one that dies may claim
		if o.Paused {
			from = o.Sent
		}
		if o.Cut {
			took, at := longestGap(history, o)
			gaps = append(gaps, gap{took, l.probe.Worst(at, at.Add(took)).Round(time.Millisecond)})
			continue
		}
		at := firstClaim(history, from.Add(time.Millisecond))
		if at == 0 {
			l.t.Errorf("nothing was claimed after %s", o.Sent.Format("15:04:05.000"))
			continue
		}
		gaps = append(gaps, gap{time.Duration(int64(at)-o.Sent.UnixMilli()) * time.Millisecond,
			l.probe.Worst(o.Sent, at.Time()).Round(time.Millisecond)})
	}
	if len(gaps) == 0 {
		return
	}
	slices.SortFunc(gaps, func(x, y gap) int { return int(x.took - y.took) })
	var each []string
	for _, g := range gaps {
		each = append(each, fmt.Sprintf("%s (%s)", g.took, g.stall))
	}
	l.t.Logf("gap in firing after %s: p50 %s, worst %s of %d; each with the longest stall of the machine in it: %v", what,
		gaps[len(gaps)/2].took, gaps[len(gaps)-1].took, len(gaps), each)
}

// firstSaid is when a node's log has a line that begins a message, and has an attribute, for the first time after an
// instant; zero: never.
func firstSaid(t *testing.T, n *harness.Node, after time.Time, msg, attribute string) time.Time {
	t.Helper()
	line := regexp.MustCompile(`(?m)^time=(\S+) level=\S+ msg="` + msg + `" (?:.* )?` + attribute + `(?: |$)`)
	for _, m := range line.FindAllStringSubmatch(string(n.Log()), -1) {
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			t.Fatal(err)
		}
		if at.After(after) {
			return at
		}
	}
	return time.Time{}
}

// idle: once a node found out that it does not lead any more, its worker starts nothing until it has come to the next
// leader. What it was given just before may start a moment later.
func (l *load) idle(history []job.Run, o harness.Outage, n *harness.Node, term uint64) {
	t := l.t
	t.Helper()
	const moment = 100 * time.Millisecond
	ended := firstSaid(t, n, o.Sent, "no longer leading", fmt.Sprint("term=", term))
	var again time.Time
	for _, other := range l.cl.Others(n) {
		at := firstSaid(t, other, o.Sent, "worker registered", "worker="+n.ID)
		if !at.IsZero() && (again.IsZero() || at.Before(again)) {
			again = at
		}
	}
	if ended.IsZero() || again.Before(ended) {
		t.Errorf("%s: term %d ended at %s, and its worker came to the next leader at %s (cut or stopped at %s)", n.ID,
			term, ended, again, o.Sent)
		return
	}
	if o.Cut && again.Before(o.Dead) {
		t.Errorf("the worker of %s came to the next leader at %s and was cut off until %s", n.ID, again, o.Dead)
	}
	late := 0
	for _, r := range history {
		if r.Worker != n.ID || r.StartedAt == 0 {
			continue
		}
		at := r.StartedAt.Time()
		if at.After(o.Sent) && at.Before(ended) {
			late++
		}
		if at.After(ended.Add(moment)) && at.Before(again.Truncate(time.Millisecond)) {
			t.Errorf("%s started %s attempt %d at %s: it had led until %s, and came to the next leader at %s", n.ID,
				r.RunID, r.Attempt, at.Format(clock), ended.Format(clock), again.Format(clock))
		}
	}
	t.Logf("%s found out %s after the signal or the cut, had started %d attempts since, and then none for %s", n.ID,
		ended.Sub(o.Sent).Round(time.Millisecond), late, again.Sub(ended).Round(time.Millisecond))
}

const clock = "15:04:05.000"

// nothingWritten reads the logs of all nodes, which must not run: none has an entry of an old term that was written
// after an instant.
func (l *load) nothingWritten(term uint64, after time.Time) {
	t := l.t
	t.Helper()
	for _, n := range l.cl.Nodes {
		log, err := harness.RaftLog(n.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(log) == 0 || log[0].Index > 1 {
			t.Fatalf("the log of %s was compacted", n.ID)
		}
		of := 0
		for _, e := range log {
			if e.Term != term {
				continue
			}
			if of++; e.Appended.After(after) {
				t.Errorf("%s has entry %d of term %d, which was written at %s, after %s", n.ID, e.Index, term,
					e.Appended.Format(clock), after.Format(clock))
			}
		}
		if of == 0 {
			t.Errorf("%s has no entry of term %d", n.ID, term)
		}
	}
}
