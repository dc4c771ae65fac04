package checker

import (
	"fmt"
	"math"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// The account of one job: its occurrences are walked one by one, as the due index does, and each must have exactly one
// outcome in the evidence: a run, or a place in a record of those that did not run. Only an edit of the schedule makes
// the walk jump, and where it was at that moment is not always known from outside: then every possibility is tried, and
// one that explains everything is enough.

// path is one way through the occurrences of a job.
type path struct {
	problems []Problem
	used     map[int64]bool     // runs of the schedule that were met, by time
	gaps     map[*gap][]int64   // occurrences in each record
	next     int64              // where the walk ended: the occurrence before which the job waits; 0: none
	delay    int64              // of the last version
	count    int                // occurrences met
	versions map[int64]*version // under which version a run was met
}

func (p *path) clone() *path {
	n := *p
	n.problems = slices.Clone(p.problems)
	n.used, n.versions = make(map[int64]bool, len(p.used)), make(map[int64]*version, len(p.versions))
	for k, v := range p.used {
		n.used[k] = v
	}
	for k, v := range p.versions {
		n.versions[k] = v
	}
	n.gaps = make(map[*gap][]int64, len(p.gaps))
	for k, v := range p.gaps {
		n.gaps[k] = slices.Clone(v)
	}
	return &n
}

func (p *path) bad(rule Rule, l *life, at int64, format string, args ...any) {
	p.problems = append(p.problems,
		Problem{Rule: rule, Job: l.id, Name: l.name, Occurrence: job.Instant(at), Text: fmt.Sprintf(format, args...)})
}

// maxPaths bounds how many ways through one job are tried.
const maxPaths = 512

// walker walks the occurrences of one job in one world.
type walker struct {
	c     *checker
	l     *life
	w     *world
	paths int
	best  *path
	// the outage that the walk is in: the first of its occurrences that was missed decides for all of them
	evidence map[int64]*runLife
	tardy    map[*runLife]bool // of mayBeLate
}

// position is where a walk stands.
type position struct {
	v      int   // index of the version
	at     int64 // the occurrence that waits; 0: none
	last   int64 // the last one that is accounted for
	runs   int   // that the schedule made
	head   int64 // the first missed occurrence of the outage that the walk is in
	outage *Outage
	anew   bool // the last one was recorded by itself, so what follows in the outage begins anew
}

// account finds a world and a path that explain the evidence of a job: its occurrences, and what its attempts were
// given.
func (c *checker) account(l *life) {
	var best *path
	least := math.MaxInt
	evidence := map[int64]*runLife{}
	for k, r := range l.runs {
		if k.Origin == job.OriginSchedule {
			evidence[k.At] = r
		}
	}
	for _, w := range c.worlds(l) {
		c.rep.Worlds++
		x := &walker{c: c, l: l, w: w, evidence: evidence, tardy: map[*runLife]bool{}}
		x.begin()
		if x.best == nil {
			continue
		}
		if n := len(x.best.problems) + len(c.definitions(l, w)); n < least {
			best, l.w, least = x.best, w, n
		}
		if least == 0 {
			break
		}
	}
	if best == nil {
		return
	}
	c.rep.Problems = append(c.rep.Problems, best.problems...)
	c.rep.Occurrences += best.count
	for g, used := range best.gaps {
		g.used = used
		c.rep.NotRun += len(used)
	}
	for at, v := range best.versions {
		l.runs[job.RunKey{Job: l.id, At: at, Origin: job.OriginSchedule}].version(v)
	}
	c.nextRun(l, best)
}

// begin starts at the first occurrence after the creation. A one-off may lie in the past.
func (x *walker) begin() {
	v := &x.w.versions[0]
	starts := []int64{v.at.lo}
	if !v.at.exact() {
		// Somewhere in between: each occurrence there may or may not have been still to come.
		hi := min(v.at.hi, int64(x.c.in.Final.At))
		starts = append([]int64{v.at.lo}, v.o.between(v.at.lo, hi)...)
		if len(starts) > 64 {
			starts = starts[:64]
		}
	}
	for _, s := range starts {
		from := s
		if v.o.oneOff() {
			from = -1
		}
		p := &path{used: map[int64]bool{}, gaps: map[*gap][]int64{}, versions: map[int64]*version{}}
		x.walk(p, position{at: x.first(v, 0, from)})
		if x.best != nil && len(x.best.problems) == 0 {
			return
		}
	}
}

func (x *walker) first(v *version, runs int, after int64) int64 {
	if v.spec.MaxRuns > 0 && runs >= v.spec.MaxRuns {
		return 0
	}
	return v.o.next(after)
}

// edit is the next version at which the walk jumps.
func (x *walker) edit(v int) int {
	for i := v + 1; i < len(x.w.versions); i++ {
		if !sameTimes(x.w.versions[i].spec, x.w.versions[i-1].spec) {
			return i
		}
	}
	return 0
}

// walk goes on from a position to the end of the job.
func (x *walker) walk(p *path, s position) {
	if x.paths >= maxPaths || x.best != nil && len(x.best.problems) <= len(p.problems) {
		return
	}
	e := x.edit(s.v)
	v := &x.w.versions[s.v]
	for {
		var r *runLife
		var g *gap
		if s.at != 0 {
			r = x.evidence[s.at]
			g = x.covering(p, s.at)
			if g != nil && r != nil && g.Reason == job.ReasonCanceled && r.firstClaim() > g.recorded {
				r = nil // it was canceled, and ran after an edit gave it its time again: the walk must get there
			}
		}
		if e != 0 {
			before, after := x.order(s.at, s.at+v.o.delay, r, g, &x.w.versions[e])
			if after {
				q := p
				if before {
					q = p.clone()
				}
				x.cut(q, s, e)
			}
			if !before {
				return
			}
		} else if s.at == 0 || x.over(p, s, v, r, g) {
			p.next, p.delay = s.at, v.o.delay
			x.finish(p, s)
			return
		}
		p.count++
		x.meet(p, &s, v, r, g)
	}
}

// order says whether an occurrence may have been settled before an edit, and whether it may still have waited then.
func (x *walker) order(at, ready int64, r *runLife, g *gap, e *version) (before, after bool) {
	switch {
	case g != nil && g.Reason == job.ReasonCanceled: // a one-off may be canceled before its time
		return g.recorded <= e.at.hi, g.recorded >= e.at.lo
	case at == 0 || at > e.at.hi:
		return false, true
	case r == nil && g == nil:
		return false, true
	case r != nil:
		claimed := r.firstClaim()
		if claimed == 0 { // it waited, or is waiting: nothing says since when
			return true, true
		}
		// A run may have waited for its turn since before the edit.
		waited := x.w.any(at, e.at.hi, func(v *version) bool {
			return v.spec.Overlap != job.OverlapSkip || v.spec.Missed.Policy == job.MissedRunAll
		}) || x.behindSerial(at, e.at.hi) || r.takenBack(ready)
		// Stamps are not commit order: two commands that were on their way together may have been committed either way.
		return waited || claimed <= e.at.hi+x.c.race(), claimed >= e.at.lo-x.c.race()
	}
	if g.Reason == job.ReasonEdited {
		return false, true
	}
	return true, g.recorded >= e.at.lo-x.c.race()
}

// cut is an edit of the schedule that found the walk at s.
func (x *walker) cut(p *path, s position, e int) {
	x.paths++
	v, n := &x.w.versions[s.v], &x.w.versions[e]
	hi := min(n.at.hi, int64(x.c.in.Final.At))
	stamps := []int64{n.at.lo}
	if !n.at.exact() {
		for _, o := range []*oracle{v.o, n.o} {
			for _, t := range o.between(n.at.lo, hi) {
				if len(stamps) < 24 {
					stamps = append(stamps, t-1, t)
				}
			}
		}
		stamps = append(stamps, hi)
	}
	for _, c := range stamps {
		modes := []bool{false}
		if x.l.surelyPaused(c) {
			modes = []bool{true}
		} else if x.l.maybePaused(c, c) {
			modes = []bool{false, true}
		}
		for _, stopped := range modes {
			x.jump(p.clone(), s, e, c, stopped)
			if x.best != nil && len(x.best.problems) == 0 {
				return
			}
		}
	}
}

// jump goes on under a new schedule from the stamp c of its edit. What was due and not claimed stays due if the new
// schedule has all of it. Otherwise it is dropped with a record, as always in a job that is stopped, and the new
// schedule goes on after the edit.
func (x *walker) jump(p *path, s position, e int, c int64, stopped bool) {
	v, n := &x.w.versions[e-1], &x.w.versions[e]
	old := x.w.versions[s.v].o
	from, reason := c, job.ReasonEdited
	if stopped {
		reason = job.ReasonPaused
	} else if s.at != 0 && s.at <= c && x.keeps(s, n, c) {
		from = s.at - 1
	}
	if n.o.oneOff() {
		from = -1
	}
	if s.at == 0 && n.o.oneOff() && v.spec.Schedule == n.spec.Schedule { // another field does not bring it back
		x.walk(p, position{v: e, last: s.last, runs: s.runs})
		return
	}
	next := x.first(n, s.runs, max(s.last, from))
	q := position{v: e, at: next, last: s.last, runs: s.runs}
	if s.at != 0 && s.at <= c {
		until := c
		if next != 0 {
			until = min(until, next-1)
		}
		drop := []int64{s.at}
		if next == s.at {
			drop = nil
		}
		if until > s.at {
			drop = append(drop, old.between(s.at+1, until)...)
		}
		if next != 0 && n.o.oneOff() { // a one-off leaves nothing of what the old schedule had behind it
			drop = append(drop, old.between(max(next, s.at)+1, c)...)
		}
		for _, at := range drop {
			g := x.covering(p, at)
			switch {
			case x.evidence[at] != nil:
				p.bad(RuleTwice, x.l, at, "the edit at %s dropped it, and it ran", job.Instant(c))
				p.used[at] = true
			case g == nil:
				p.bad(RuleLost, x.l, at, "the edit to version %d at %s dropped it without a record",
					n.number, job.Instant(c))
			case g.Status != job.RunSkipped ||
				g.Reason != reason && g.Reason != job.ReasonEdited && g.Reason != job.ReasonPaused || g.recorded < c:
				if why := x.permits(p, &s, v, at, g); why != "" {
					p.bad(RuleReason, x.l, at, "the edit at %s dropped it, and the record says %s (%s)",
						job.Instant(c), g.Status, g.Reason)
				}
				p.gaps[g] = append(p.gaps[g], at)
			default:
				p.gaps[g] = append(p.gaps[g], at)
			}
			p.count++
			if next == 0 || at < next {
				q.last = max(q.last, at)
			}
		}
	} else if late := c - next - n.o.delay; next != 0 && n.o.oneOff() && n.spec.Missed.Policy == job.MissedSkip &&
		late > ms(n.spec.Missed.Grace) {
		// Moved into the past: like one that is created there, it is missed under this policy.
		g := x.covering(p, next)
		if g == nil || g.Status != job.RunMissed {
			p.bad(RuleMissed, x.l, next, "the edit moved it into the past, and it is not recorded as missed")
		} else {
			p.gaps[g] = append(p.gaps[g], next)
		}
		q.last, q.at = next, 0
	}
	x.walk(p, q)
}

// keeps says that the version n has every occurrence that is due at c, if each of them runs.
func (x *walker) keeps(s position, n *version, c int64) bool {
	old := &x.w.versions[s.v]
	due := append([]int64{s.at}, old.o.between(s.at+1, c)...)
	if most := old.spec.MaxRuns; most > 0 {
		due = due[:max(1, min(len(due), most-s.runs))]
	}
	if most := n.spec.MaxRuns; most > 0 && len(due) > most-s.runs {
		return false
	}
	return !slices.ContainsFunc(due, func(at int64) bool { return n.o.next(at-1) != at })
}

// covering is the record that an occurrence lies in. Two of them are one too many.
func (x *walker) covering(p *path, at int64) *gap {
	var found *gap
	for _, g := range x.l.gaps {
		if g.Reason == job.ReasonCanceled && len(p.gaps[g]) > 0 {
			continue // an edit gave a canceled one-off its time again
		}
		if int64(g.First) <= at && at <= int64(g.Last) {
			if g.Reason == job.ReasonCanceled && at == int64(g.First) && at == int64(g.Last) {
				// a canceled one-off; what another schedule of the job left out around its time did not include it, or
				// its count is wrong
				return g
			}
			if found != nil {
				p.bad(RuleTwice, x.l, at, "it is in two records of occurrences that did not run: %s (%s) and %s (%s)",
					found.Status, found.Reason, g.Status, g.Reason)
				return found
			}
			found = g
		}
	}
	return found
}

// over says whether nothing has to follow: the time of the occurrence had not come when the job, or the observation,
// ended.
func (x *walker) over(p *path, s position, v *version, r *runLife, g *gap) bool {
	if r != nil || g != nil {
		return false
	}
	end := int64(x.c.in.Final.At)
	if x.w.deleted.lo != forever {
		if s.at+v.o.delay > x.w.deleted.lo { // with its jitter it had not come yet
			return true
		}
		if x.coveredToTheEnd(p, s.at) {
			return true
		}
		return false
	}
	switch {
	case s.at+v.o.delay > end-x.c.in.Final.Slack.Milliseconds():
		return true
	case x.l.maybePaused(end, end):
		return true // it waits, and what passes is recorded when it goes on
	case x.l.final != nil && x.l.final.Status == job.StatusQuarantined:
		return true // reported by itself
	}
	return s.at > end
}

// coveredToTheEnd says that a delete counted what it dropped as "at least": it saw that they were due, not how many.
func (x *walker) coveredToTheEnd(p *path, at int64) bool {
	for _, g := range x.l.gaps {
		if g.CountAtLeast && int64(g.First) <= at && (g.Reason == job.ReasonDeleted || g.Reason == job.ReasonPaused) {
			return true
		}
	}
	return false
}

// meet holds one occurrence against its evidence and moves on.
func (x *walker) meet(p *path, s *position, v *version, r *runLife, g *gap) {
	at := s.at
	x.enterOutage(s, v, r, g)
	switch {
	case r != nil && g != nil:
		p.bad(RuleTwice, x.l, at, "it ran, and a record says that it did not: %s (%s)", g.Status, g.Reason)
		p.used[at], p.versions[at] = true, v
		p.gaps[g] = append(p.gaps[g], at)
		s.runs++
	case r != nil:
		p.used[at], p.versions[at] = true, v
		s.runs++
		x.ran(p, s, v, r)
	case g != nil:
		p.gaps[g] = append(p.gaps[g], at)
		if why := x.permits(p, s, v, at, g); why != "" {
			p.bad(ruleOf(g.Reason), x.l, at, "recorded as %s (%s): %s", g.Status, g.Reason, why)
		}
		s.anew = g.Reason == job.ReasonDeadline || g.Reason == job.ReasonBlackout ||
			g.Reason == job.ReasonDSTGap
	default:
		p.bad(RuleLost, x.l, at, "nothing is known of it: it neither ran nor is there a record that it did not")
	}
	if g == nil || g.Reason != job.ReasonCanceled || at <= g.recorded { // canceled ahead of its time: it binds nothing
		s.last = at
	}
	s.at = x.first(v, s.runs, at)
}

func ruleOf(r job.Reason) Rule {
	switch r {
	case job.ReasonOverlap, job.ReasonQueueFull, job.ReasonWaiting, job.ReasonReplaced:
		return RuleOverlap
	case job.ReasonOutage:
		return RuleMissed
	case job.ReasonDeadline:
		return RuleDeadline
	case job.ReasonBlackout, job.ReasonDSTGap:
		return RuleBounds
	}
	return RuleReason
}

// finish looks at what the walk did not meet: it was invented.
func (x *walker) finish(p *path, s position) {
	x.paths++
	for at, r := range x.evidence {
		if !p.used[at] {
			x.invented(p, at, r)
		}
	}
	for _, g := range x.l.gaps {
		used := p.gaps[g]
		what := fmt.Sprintf("the record of %d occurrences from %s to %s (%s: %s)", g.Count, g.First, g.Last, g.Status,
			g.Reason)
		switch {
		case len(used) == 0 && x.announced(s, g):
		case len(used) == 0:
			p.bad(RuleInvented, x.l, int64(g.First), "%s is about nothing", what)
		case int64(len(used)) < g.Count:
			p.bad(RuleInvented, x.l, int64(g.First), "%s is about only %d", what, len(used))
		case int64(len(used)) > g.Count && !g.CountAtLeast:
			p.bad(RuleLost, x.l, int64(g.First), "%s has %d in it", what, len(used))
		case used[0] != int64(g.First) || used[len(used)-1] != int64(g.Last) && !g.CountAtLeast:
			p.bad(RuleInvented, x.l, int64(g.First), "%s begins or ends at a time that is no occurrence", what)
		}
	}
	if x.best == nil || len(p.problems) < len(x.best.problems) {
		x.best = p
	}
}

// announced says that a record is not written yet and shows what passes in a pause while what was due before it still
// waits.
func (x *walker) announced(s position, g *gap) bool {
	if !g.pending || g.Reason != job.ReasonPaused || s.at == 0 || int64(g.First) <= s.at {
		return false
	}
	v := &x.w.versions[len(x.w.versions)-1]
	all := v.o.between(int64(g.First), int64(g.Last))
	return len(all) > 0 && all[0] == int64(g.First) && all[len(all)-1] == int64(g.Last) &&
		(int64(len(all)) == g.Count || g.CountAtLeast) &&
		!slices.ContainsFunc(all, func(at int64) bool { return x.permits(nil, &s, v, at, g) != "" })
}

// invented names the rule that a run of no occurrence breaks.
func (x *walker) invented(p *path, at int64, r *runLife) {
	for i := range x.w.versions {
		v := &x.w.versions[i]
		if v.spec.StartAt == 0 && v.spec.EndAt == 0 && v.spec.MaxRuns == 0 {
			continue
		}
		if v.spec.MaxRuns > 0 && len(v.o.between(at, at)) > 0 {
			p.bad(RuleBounds, x.l, at, "it ran beyond max_runs %d", v.spec.MaxRuns)
			return
		}
		free := *v.o
		free.lo, free.hi, free.cache = 0, forever, nil
		if len(free.between(at, at)) > 0 && len(v.o.between(at, at)) == 0 {
			p.bad(RuleBounds, x.l, at, "it ran outside start_at %s and end_at %s", v.spec.StartAt, v.spec.EndAt)
			return
		}
	}
	if x.w.deleted.lo != forever && at > x.w.deleted.hi {
		p.bad(RuleDeleted, x.l, at, "it ran, and the job was deleted by %s", job.Instant(x.w.deleted.hi))
		return
	}
	p.bad(RuleInvented, x.l, at, "%s is no occurrence of the schedule in force (%q)", r.key,
		x.w.versions[len(x.w.versions)-1].spec.Schedule)
}

// nextRun holds what a job shows as its next run against where the walk ended.
func (c *checker) nextRun(l *life, p *path) {
	f := l.final
	if f == nil {
		return
	}
	if f.Status == job.StatusQuarantined {
		c.bad(RuleReason, l, 0, "the job is in quarantine: %s", f.WaitReason)
		return
	}
	end := int64(c.in.Final.At)
	if (f.Status == job.StatusPaused) != (l.surelyPaused(end+1)) &&
		(f.Status == job.StatusPaused) != l.maybePaused(end, end) {
		c.bad(RuleCall, l, 0, "its status is %s, against what was asked", f.Status)
	}
	want := int64(0)
	if p.next != 0 && f.Status != job.StatusPaused {
		want = p.next + p.delay
	}
	if len(f.Calendars) > 0 && want != 0 {
		return // it shows the first one that no calendar forbids
	}
	if int64(f.NextRunAt) != want && !(want == 0 && p.next == 0 && f.NextRunAt == 0) {
		c.bad(RuleNext, l, p.next, "it shows its next run at %q, and its next occurrence is %q", f.NextRunAt,
			job.Instant(want))
	}
}
