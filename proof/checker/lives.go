package checker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// forever is later than everything.
const forever = int64(math.MaxInt64 / 4)

// window is when the effect of a call may have come: an answered call took effect between its two ends, one without an
// answer at any time after its begin, or never.
type window struct{ lo, hi int64 }

func (w window) exact() bool { return w.lo == w.hi }

// change is a call that may have changed a job, together with its repetitions.
type change struct {
	*Call
	window
	sure  bool    // it happened
	again *change // the last repetition that may have been done anew, its key being forgotten
}

// life is one job from its creation to its end, as far as calls and the final state tell.
type life struct {
	id     job.ID
	name   string
	final  *job.Job // nil: it is gone
	create *change
	calls  []*change // all of the others, in the order of their begin
	runs   map[job.RunKey]*runLife
	gaps   []*gap
	left   []job.Run // backfill's records of what it left out

	w *world // one that explains the most, once the walk is done
}

// world is one way in which the calls without an answer may have gone.
type world struct {
	versions []version
	deleted  window // lo is forever: it was not deleted
	cleaned  bool   // a one-off that was removed after its retention
}

// version is one definition of a job and when it came into force.
type version struct {
	number uint64
	spec   *job.Spec
	o      *oracle
	at     window
	sent   window // of its call: stamps of commands that were on their way together are not commit order
}

// stampOf is when a call took effect.
func (c *checker) stampOf(call *Call) window {
	if call.At != 0 {
		return window{int64(call.At), int64(call.At)}
	}
	w := window{int64(call.Invoke) - c.clock, forever}
	if call.Outcome == OK && call.Return != 0 {
		w.hi = int64(call.Return) + c.clock
	}
	return w
}

// gather sorts calls by job. Calls with the same request id are one: it happened if any of them was told so, not before
// the first began and not after the first that was told. What comes when the id may be forgotten is, or may be,
// another.
func (c *checker) gather() {
	byRequest := map[string]*change{}
	var all []*change
	calls := slices.Clone(c.in.Calls)
	slices.SortStableFunc(calls, func(a, b Call) int { return cmp.Compare(a.Invoke, b.Invoke) })
	for i := range calls {
		call := &calls[i]
		if call.Outcome == Refused {
			continue
		}
		w := c.stampOf(call)
		if call.Request != "" {
			first := byRequest[call.Request]
			may, sure := false, false
			if first != nil {
				may, sure = c.anew(first, call)
			}
			if may && !sure {
				first.again = &change{Call: call, window: w}
				all = append(all, first.again)
				continue
			}
			if first != nil && !may {
				c.sameAnswer(first, call)
				if first.Kind != call.Kind {
					c.bad(RuleInput, nil, 0, "request %q is a %s and a %s", call.Request, first.Kind, call.Kind)
				}
				if call.Outcome == OK {
					lo := first.lo
					if !first.sure {
						first.Call, first.sure = call, true
					}
					first.window = window{lo, min(first.hi, w.hi)}
				}
				continue
			}
		}
		ch := &change{Call: call, window: w, sure: call.Outcome == OK}
		if call.Request != "" {
			byRequest[call.Request] = ch
		}
		all = append(all, ch)
	}
	finals := map[job.ID]*job.Job{}
	named := map[string]*job.Job{}
	for i := range c.in.Final.Jobs {
		j := &c.in.Final.Jobs[i]
		if finals[j.ID] != nil {
			c.bad(RuleTwice, nil, 0, "the job %s is listed twice", j.ID)
		}
		finals[j.ID] = j
		if j.Name != "" {
			named[In(j.Namespace, j.Name)] = j
		}
	}
	var creates []*change
	for _, ch := range all {
		if ch.Kind == CallCalendar {
			c.calendars[ch.Name] = append(c.calendars[ch.Name], ch)
			continue
		}
		if ch.Kind == CallQueue {
			c.settings = append(c.settings, ch)
			continue
		}
		if ch.Kind == CallCreate {
			creates = append(creates, ch)
		}
	}
	// Those whose job is known come first: a name may have been given to several jobs, one after the other.
	slices.SortStableFunc(creates, func(a, b *change) int {
		known := func(ch *change) int {
			if ch.Job != 0 || ch.Answer != nil {
				return 0
			}
			return 1
		}
		return cmp.Compare(known(a), known(b))
	})
	for _, ch := range creates {
		id := ch.Job
		if id == 0 && ch.Answer != nil {
			id = ch.Answer.ID
		}
		if id == 0 {
			id = c.idOf(ch.Call, named, finals)
		}
		if id == 0 {
			continue // never happened
		}
		if c.lives[id] != nil {
			c.bad(RuleTwice, c.lives[id], 0, "two creates made the same job")
			continue
		}
		if !ch.sure { // it exists, so it happened
			ch.hi = forever
		}
		if f := finals[id]; f != nil && f.CreatedAt != 0 {
			ch.window = window{int64(f.CreatedAt), int64(f.CreatedAt)}
		} else if ch.Answer != nil && ch.Answer.CreatedAt != 0 {
			ch.window = window{int64(ch.Answer.CreatedAt), int64(ch.Answer.CreatedAt)}
		}
		c.lives[id] = &life{id: id, name: ch.Name, create: ch, final: finals[id], runs: map[job.RunKey]*runLife{}}
		c.order = append(c.order, id)
	}
	for id, f := range finals {
		if c.lives[id] == nil {
			c.bad(RuleInvented, nil, 0, "the job %s (%q) exists and was never created", id, f.Name)
		}
	}
	for _, ch := range all {
		if ch.Kind == CallCreate || ch.Kind == CallCalendar || ch.Kind == CallQueue || ch.Job == 0 {
			continue
		}
		if l := c.lives[ch.Job]; l != nil {
			l.calls = append(l.calls, ch)
		} else if ch.sure {
			c.bad(RuleInput, nil, 0, "a %s of %s was answered, and nothing is known of its creation", ch.Kind, ch.Job)
		}
	}
	slices.Sort(c.order)
}

// idOf finds what became of a create without an answer: by its name among the jobs, or in the history.
func (c *checker) idOf(call *Call, named map[string]*job.Job, finals map[job.ID]*job.Job) job.ID {
	taken := func(id job.ID) bool { return c.lives[id] != nil }
	if f := named[call.Name]; f != nil && !taken(f.ID) {
		return f.ID
	}
	for _, h := range c.in.Final.History {
		if h.JobName != "" && In(h.Namespace, h.JobName) == call.Name && !taken(h.JobID) && finals[h.JobID] == nil {
			return h.JobID
		}
	}
	return 0
}

// of are the calls of some kinds.
func (l *life) of(kinds ...CallKind) []*change {
	var out []*change
	for _, ch := range l.calls {
		if slices.Contains(kinds, ch.Kind) {
			out = append(out, ch)
		}
	}
	return out
}

// maybePaused says whether the job may have been paused at some time in [from, to].
func (l *life) maybePaused(from, to int64) bool {
	for _, p := range l.of(CallPause) {
		if p.lo > to {
			continue
		}
		ended := false
		for _, r := range l.of(CallResume) {
			// A resume that certainly came after the pause and before the time in question.
			ended = ended || r.sure && r.lo >= p.hi && r.hi < from
		}
		if !ended {
			return true
		}
	}
	return false
}

// maxPauses is how many pauses a job keeps apart that what was due before them has not passed yet.
const maxPauses = 4

// pauseOf is when a job must have been paused for an occurrence to be left out for that: at its time. A one-off waits
// for the resume whenever it was due, and where there were too many pauses since, what lies between two of them goes
// with them.
func (l *life) pauseOf(v *version, ready, at, until int64) (from, to int64) {
	since := 0
	for _, p := range l.of(CallPause) {
		if p.lo <= until && p.hi >= at {
			since++
		}
	}
	if v.o.oneOff() || since > maxPauses {
		return at, until
	}
	return ready, ready
}

// surelyPaused says whether the job was paused at a time, whatever the uncertain calls did.
func (l *life) surelyPaused(at int64) bool {
	for _, p := range l.of(CallPause) {
		if !p.sure || p.hi >= at {
			continue
		}
		still := true
		for _, r := range l.of(CallResume) {
			if r.lo <= at && r.hi >= p.lo {
				still = false
			}
		}
		if still {
			return true
		}
	}
	return false
}

// maxWorlds bounds how many ways of going are looked at.
const maxWorlds = 64

// worlds are the ways in which the definitions of a job may have followed each other. An update that names the version
// that it replaces fits in at one place only; it has or has not happened. Where several were on their way together,
// their answers tell the order, as far as they do.
func (c *checker) worlds(l *life) []*world {
	spec := l.create.Spec
	if l.create.Answer != nil {
		spec = &l.create.Answer.Spec
	}
	if spec == nil && l.final != nil && l.final.Version == 1 {
		spec = &l.final.Spec
	}
	if spec == nil {
		c.bad(RuleInput, l, 0, "the create has no spec")
		return nil
	}
	last := uint64(0) // the last version, if it is known
	if l.final != nil {
		last = l.final.Version
	}
	updates := l.of(CallUpdate)
	var out []*world
	var grow func(vs []version, used map[*change]bool)
	grow = func(vs []version, used map[*change]bool) {
		if len(out) >= maxWorlds {
			return
		}
		n := vs[len(vs)-1].number
		left, first := false, forever // the first end of those that surely happened and are to come
		for _, u := range updates {
			if u.sure && !used[u] {
				left, first = true, min(first, u.hi)
			}
		}
		if !left && (last == 0 || n == last) {
			w := &world{versions: slices.Clone(vs), deleted: window{forever, forever}}
			out = append(out, w)
		}
		if last != 0 && n >= last {
			return
		}
		for _, u := range updates {
			if used[u] || u.lo > first || u.Version != 0 && u.Version != n || u.hi < vs[len(vs)-1].at.lo ||
				u.Spec == nil || !u.mayHaveMade(n+1) {
				continue
			}
			v := version{number: n + 1, spec: u.Spec, at: u.window, sent: u.window}
			if u.Answer != nil && u.Answer.Version == n+1 {
				v.spec = &u.Answer.Spec
				if u.Answer.UpdatedAt != 0 {
					v.at = window{int64(u.Answer.UpdatedAt), int64(u.Answer.UpdatedAt)}
				}
			}
			if l.final != nil && l.final.Version == n+1 && l.final.UpdatedAt != 0 {
				v.at = window{int64(l.final.UpdatedAt), int64(l.final.UpdatedAt)}
			}
			used[u] = true
			grow(append(slices.Clone(vs), v), used)
			delete(used, u)
		}
	}
	grow([]version{{number: 1, spec: spec, at: l.create.window, sent: l.create.window}}, map[*change]bool{})
	if len(out) == 0 {
		if last != 0 {
			c.bad(RuleCall, l, 0, "no order of the updates explains version %d and what they were answered with", last)
		} else {
			c.bad(RuleCall, l, 0, "no order of the updates explains what they were answered with")
		}
		return nil
	}
	for _, w := range out {
		for i := range w.versions {
			v := &w.versions[i]
			s := *v.spec
			s.Normalize()
			v.spec = &s
			o, err := newOracle(&s, l.id)
			if err != nil {
				c.bad(RuleInput, l, 0, "the oracle cannot read %q: %v", s.Schedule, err)
				return nil
			}
			v.o = o
		}
		c.end(l, w)
	}
	return out
}

// mayHaveMade says whether an update may be the one that made a version. Its answer shows the job as it was some time
// after its commit: that version with what the update asked for, or a later one.
func (ch *change) mayHaveMade(version uint64) bool {
	if ch.Answer == nil || ch.Answer.Version > version {
		return true
	}
	return ch.Answer.Version == version && shows(ch.Answer, ch.Spec)
}

// shows says whether an answer shows what was asked for. A zone that only the schedule names is filled in from it.
func shows(answer *job.Job, asked *job.Spec) bool {
	shown, want := answer.Spec, *asked
	shown.Normalize()
	want.Normalize()
	if want.Timezone == "" {
		want.Timezone = shown.Timezone
	}
	a, errA := json.Marshal(&shown)
	b, errB := json.Marshal(&want)
	return errA == nil && errB == nil && sameJSON(a, b)
}

// end finds out when a job ended in a world.
func (c *checker) end(l *life, w *world) {
	if l.final != nil {
		for _, d := range l.of(CallDelete) {
			if d.sure {
				c.bad(RuleCall, l, 0, "its delete was answered at %s, and it exists", d.Return)
			}
		}
		return
	}
	first := (*change)(nil)
	for _, d := range l.of(CallDelete) {
		if first == nil || d.sure && !first.sure || d.sure == first.sure && d.lo < first.lo {
			first = d
		}
	}
	if first != nil {
		w.deleted = first.window
		w.deleted.hi = min(w.deleted.hi, int64(c.in.Final.At))
		return
	}
	lastSpec := w.versions[len(w.versions)-1].spec
	if lastSpec.OneOff() && w.versions[len(w.versions)-1].o.oneOff() {
		// Removed after its retention: not before the end of its last run.
		w.cleaned = true
		w.deleted = window{forever, forever}
		return
	}
	c.bad(RuleLost, l, 0, "it was created at %s, it was not deleted, and it does not exist", job.Instant(l.create.lo))
}

// specs are the versions that may have been in force at some time in [from, to].
func (w *world) specs(from, to int64) []*version {
	var out []*version
	for i := range w.versions {
		v := &w.versions[i]
		if v.at.lo > to && i > 0 {
			break
		}
		if i+1 < len(w.versions) && w.versions[i+1].at.hi < from {
			continue
		}
		out = append(out, v)
	}
	if len(out) == 0 {
		out = append(out, &w.versions[len(w.versions)-1])
	}
	return out
}

// any says whether one of the versions that may have been in force passes.
func (w *world) any(from, to int64, pass func(*version) bool) bool {
	return slices.ContainsFunc(w.specs(from, to), pass)
}

// sameTimes says that an edit leaves alone when the job runs.
func sameTimes(a, b *job.Spec) bool {
	return a.Schedule == b.Schedule && a.Timezone == b.Timezone && a.Jitter == b.Jitter && a.StartAt == b.StartAt &&
		a.EndAt == b.EndAt && a.MaxRuns == b.MaxRuns && a.DSTGap == b.DSTGap && a.DSTOverlap == b.DSTOverlap
}

// forbidden says whether a job's calendars may have, or must have, forbidden an occurrence, judged at some time in
// [from, to].
func (c *checker) forbidden(spec *job.Spec, at, from, to int64) (may, must bool) {
	for _, name := range spec.Calendars {
		calls := c.calendars[In(spec.Namespace, name)]
		// What was in force surely: the last put that had surely happened by from, unless another may have come by to.
		var possible []*change
		for _, ch := range calls {
			if ch.lo > to {
				continue
			}
			if ch.sure && ch.hi <= from && !ch.Unheard {
				possible = slices.DeleteFunc(possible, func(p *change) bool { return p.hi <= ch.lo })
			}
			possible = append(possible, ch)
		}
		all := len(possible) > 0
		for _, ch := range possible {
			f := ch.Calendar != nil && forbids(ch.Calendar, at)
			may = may || f
			all = all && f && (ch.sure || len(possible) > 1)
		}
		must = must || all && slices.ContainsFunc(possible, func(p *change) bool {
			return p.sure && p.hi <= from && !p.Unheard
		})
	}
	return may, must
}

func (l *life) String() string { return fmt.Sprintf("%s (%s)", l.id, l.name) }
