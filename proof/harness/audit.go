package harness

import (
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// history sorts the records by run and looks at each by itself.
func (a *audit) history() {
	var last uint64
	for _, r := range a.b.History {
		if r.Seq <= last {
			a.bad("record %d (%s) stands behind record %d", r.Seq, name(r), last)
		}
		last = max(last, r.Seq)
		e := a.byID[r.JobID]
		if e == nil {
			a.bad("record %d is about %s, which does not exist", r.Seq, r.JobID)
			continue
		}
		if r.RunID == "" {
			a.gap(e, r)
			continue
		}
		k, err := job.ParseRunKey(r.RunID)
		if err != nil || k.Job != r.JobID || k.At != int64(r.ScheduledAt) || k.Origin != r.Origin {
			a.bad("record %d: the run id %s says something else than its fields", r.Seq, r.RunID)
			continue
		}
		if r.Attempt < 1 || r.Fence == 0 {
			a.bad("record %d: %s ended as %s (%s) without ever having been given to a worker", r.Seq, r.RunID, r.Status, r.Reason)
			a.facts(k)
			continue
		}
		if other, twice := a.byFence[r.Fence]; twice {
			a.bad("fence %d was given out twice: %s attempt %d and %s attempt %d", r.Fence, other.RunID, other.Attempt, r.RunID, r.Attempt)
		}
		a.byFence[r.Fence] = r
		f := a.facts(k)
		f.records = append(f.records, r)
	}
}

// gap looks at a record of occurrences that did not run. They need a reason, and they must be countable.
func (a *audit) gap(e *entry, r job.Run) {
	switch {
	case r.Reason == job.ReasonNone || r.Status.Open() || r.Status == job.RunSucceeded:
		a.bad("record %d: %s did not run (%s) for no reason", r.Seq, name(r), r.Status)
	case r.Count < 1 || r.CountAtLeast || r.First > r.Last:
		a.bad("record %d: %s does not say how many occurrences it is about", r.Seq, name(r))
		return
	}
	e.gaps = append(e.gaps, r)
}

// requests looks at what the target saw: nothing that does not exist, nothing early, no fence and no key of somebody else.
func (a *audit) requests() {
	seen := slices.Clone(a.b.Seen)
	slices.SortStableFunc(seen, func(x, y Seen) int { return x.Arrived.Compare(y.Arrived) })
	fences := map[uint64]Seen{}
	keys := map[string]job.RunKey{}
	for _, s := range seen {
		e := a.byToken[s.Token]
		if e == nil || e.job == nil {
			a.bad("the target got a request for %q (%s), which does not exist", s.Token, s.Run)
			continue
		}
		k, err := job.ParseRunKey(s.Run)
		if err != nil || k.Job != e.job.ID || s.Job != e.job.ID.String() || int64(s.At()) != k.At {
			a.bad("the target of %s (%s) got a request of run %s, job %s at %s", s.Token, e.job.ID, s.Run, s.Job, s.ScheduledAt)
			continue
		}
		if s.Arrived.UnixMilli() < k.At {
			a.bad("%s was sent %d ms before its time", s.Run, k.At-s.Arrived.UnixMilli())
		}
		if s.Fence == 0 || s.Attempt < 1 || s.Key == "" {
			a.bad("%s was sent with key %q, attempt %d, fence %d", s.Run, s.Key, s.Attempt, s.Fence)
		}
		if other, twice := fences[s.Fence]; twice {
			a.bad("fence %d was sent twice: %s attempt %d and %s attempt %d", s.Fence, other.Run, other.Attempt, s.Run, s.Attempt)
		}
		fences[s.Fence] = s
		if other, used := keys[s.Key]; used && other != k {
			a.bad("key %q was sent for %s and for %s", s.Key, other, k)
		}
		keys[s.Key] = k
		if r, ok := a.byFence[s.Fence]; !ok {
			a.bad("the target got %s attempt %d with fence %d, of which the history knows nothing", s.Run, s.Attempt, s.Fence)
		} else if r.RunID != s.Run || r.Attempt != s.Attempt {
			a.bad("fence %d is %s attempt %d at the target and %s attempt %d in the history", s.Fence, s.Run, s.Attempt, r.RunID, r.Attempt)
		}
		f := a.facts(k)
		f.seen = append(f.seen, s)
	}
}

// run looks at one run over all its attempts.
func (a *audit) run(k job.RunKey, f *runFacts) {
	if len(f.records) == 0 {
		a.bad("%s is lost: it has no record", k)
	}
	e := a.byID[k.Job]
	once := e != nil && e.Once
	if once && (len(f.seen) > 1 || len(f.records) > 1) {
		a.bad("%s is doubled: it was to be delivered at most once, was sent %d times and has %d records", k, len(f.seen), len(f.records))
	}
	succeeded := 0
	for i, r := range f.records {
		final := i == len(f.records)-1
		switch {
		case r.Status == job.RunSucceeded:
			succeeded++
			a.success(r, f.seen)
		case once && r.Status == job.RunLost:
			a.r.GivenUp++
			a.failure(r, f.seen)
		case r.Status != job.RunFailed:
			a.bad("%s ended as %s (%s)", k, r.Status, r.Reason)
		case final:
			a.bad("%s is lost: its last record says that attempt %d failed, and nothing came after", k, r.Attempt)
		default:
			a.failure(r, f.seen)
		}
		if r.Status == job.RunSucceeded && !final {
			a.bad("%s went on after it had succeeded with attempt %d", k, r.Attempt)
		}
		if i > 0 && (r.Fence <= f.records[i-1].Fence || r.Attempt <= f.records[i-1].Attempt) {
			a.bad("%s: attempt %d with fence %d is recorded behind attempt %d with fence %d", k, r.Attempt, r.Fence, f.records[i-1].Attempt, f.records[i-1].Fence)
		}
	}
	if succeeded > 1 {
		a.bad("%s is doubled: it succeeded %d times", k, succeeded)
	}
	a.repeats(k, f.seen)
}

// success: the node says that it went well, so the target must have said so.
func (a *audit) success(r job.Run, seen []Seen) {
	i := slices.IndexFunc(seen, func(s Seen) bool { return s.Fence == r.Fence })
	if i < 0 {
		a.bad("%s attempt %d is recorded as succeeded, and the target never saw it", r.RunID, r.Attempt)
	} else if s := seen[i]; s.Answered.IsZero() || s.Status/100 != 2 {
		a.bad("%s attempt %d is recorded as succeeded, and the target answered %d", r.RunID, r.Attempt, s.Status)
	}
}

// lease is how long a worker must be silent before its runs may be given to another: it stops them by itself after two thirds of the
// 30 s that the leader waits. A shorter pause or cut is no excuse.
const lease = 20 * time.Second

// hits says whether an outage took the worker's attempts away from it.
func (o Outage) hits(worker string) bool {
	return o.Node == worker && (!o.Paused && !o.Cut || o.Dead.Sub(o.Sent) >= lease)
}

// failure: an attempt may be lost only if its worker was killed or cut off between its claim and the record of the loss, and may fail otherwise
// only if the target refused it.
func (a *audit) failure(r job.Run, seen []Seen) {
	if r.Reason == job.ReasonWorkerLost {
		a.r.Lost++
		for _, o := range a.b.Outages {
			// The node's times are cut to milliseconds. A leader that does not know yet may claim for a worker that is dead; what the
			// target saw was claimed before.
			until := o.Dead
			if o.Ready.After(until) && !slices.ContainsFunc(seen, func(s Seen) bool { return s.Fence == r.Fence }) {
				until = o.Ready
			}
			if o.hits(r.Worker) && int64(r.ClaimedAt) <= until.UnixMilli() && int64(r.FinishedAt) >= o.Sent.UnixMilli() {
				return
			}
		}
		a.bad("%s attempt %d lost its worker %s between %s and %s, and that was neither killed nor cut off then", r.RunID, r.Attempt, r.Worker, r.ClaimedAt, r.FinishedAt)
		return
	}
	for _, s := range seen {
		if s.Fence == r.Fence && !s.Answered.IsZero() && s.Status/100 != 2 {
			return
		}
	}
	a.bad("%s attempt %d failed (%s %q), and the target did not refuse it", r.RunID, r.Attempt, r.Reason, r.Error)
}

// arrivalSlack is how much later than the caller's death a request may be written down: it sat in a socket buffer, and the test's
// goroutine waited for a processor.
const arrivalSlack = time.Second

// repeats: the target saw a run again only because the worker that had sent it was killed or cut off in between, or because it refused the one before; with
// the same key, a higher attempt and a higher fence. A worker that is cut off lives, and must have let go before.
func (a *audit) repeats(k job.RunKey, seen []Seen) {
	if len(seen) > 1 {
		a.r.Repeated++
	}
	for i := 1; i < len(seen); i++ {
		was, is := seen[i-1], seen[i]
		if is.Key != was.Key {
			a.bad("%s: the key changed from %q to %q", k, was.Key, is.Key)
		}
		if is.Fence <= was.Fence {
			a.bad("%s was sent with fence %d after fence %d", k, is.Fence, was.Fence)
		}
		if is.Attempt <= was.Attempt {
			a.bad("%s was sent as attempt %d after attempt %d", k, is.Attempt, was.Attempt)
		}
		refused := !was.Answered.IsZero() && was.Status/100 != 2
		worker := a.byFence[was.Fence].Worker
		out := func(cut bool) bool {
			return slices.ContainsFunc(a.b.Outages, func(o Outage) bool {
				return o.Cut == cut && o.hits(worker) && !o.Dead.Add(arrivalSlack).Before(was.Arrived) && !o.Sent.After(is.Arrived)
			})
		}
		switch {
		case refused || out(false):
		case !out(true):
			a.bad("%s is doubled: sent at %s and again at %s, and its worker %s was neither killed nor cut off in between", k, was.Arrived.Format(clock), is.Arrived.Format(clock), worker)
		case !was.over(is.Arrived):
			a.bad("%s is doubled: sent again at %s while %s, which was cut off, still worked on the request of %s", k, is.Arrived.Format(clock), worker, was.Arrived.Format(clock))
		}
	}
}

// over says whether a request had ended at an instant.
func (s Seen) over(at time.Time) bool {
	end := s.Answered
	if end.IsZero() {
		end = s.Gone
	}
	return !end.IsZero() && end.Before(at)
}

const clock = "15:04:05.000"

// occurrences holds the runs of a job against its schedule.
func (a *audit) occurrences(e *entry) {
	for _, r := range e.gaps {
		a.r.NotRun += int(r.Count)
	}
	switch e.Kind {
	case OneOff:
		a.oneOff(e)
	case Every:
		a.grid(e)
	case Manual:
		a.manual(e)
	}
}

func (a *audit) oneOff(e *entry) {
	want := job.RunKey{Job: e.job.ID, At: int64(e.At), Origin: job.OriginSchedule}
	if !slices.Contains(e.runs, want) {
		a.bad("%s (%s) is lost: it never ran", e.Token, e.job.ID)
	}
	for _, k := range e.runs {
		if k != want {
			a.bad("%s was invented: %s runs once, at %s", k, e.Token, e.At)
		}
	}
	for _, r := range e.gaps {
		a.bad("%s did not run at %s: %s (%s)", e.Token, r.First, r.Status, r.Reason)
	}
}

func (a *audit) manual(e *entry) {
	want := map[string]bool{}
	for _, id := range e.triggers {
		if want[id] {
			a.bad("two triggers of %s were answered with the same run %s", e.Token, id)
		}
		want[id] = true
	}
	extra := 0
	for _, k := range e.runs {
		if k.Origin != job.OriginManual {
			a.bad("%s was invented: %s has no schedule", k, e.Token)
		} else if !want[k.String()] {
			extra++
		}
		delete(want, k.String())
	}
	if extra > e.maybe {
		a.bad("%d runs of %s were invented or doubled: nobody asked for them", extra-e.maybe, e.Token)
	}
	for id := range want {
		a.bad("%s is lost: it was acknowledged and never ran", id)
	}
	for _, r := range e.gaps {
		a.bad("%s has no schedule, and did not run at %s: %s (%s)", e.Token, r.First, r.Status, r.Reason)
	}
}

// grid: from the first occurrence after the job was made to the last one before its end, every occurrence either ran or is in
// exactly one interval of those that did not.
func (a *audit) grid(e *entry) {
	step := e.Step.Milliseconds()
	covered := map[int64]int{}
	for _, k := range e.runs {
		if k.Origin != job.OriginSchedule {
			a.bad("%s was invented: nobody triggered %s", k, e.Token)
			continue
		}
		covered[k.At]++
	}
	for _, r := range e.gaps {
		if int64(r.Last-r.First) != (r.Count-1)*step {
			a.bad("%s: an interval from %s to %s cannot have %d occurrences", e.Token, r.First, r.Last, r.Count)
		}
		for i := range r.Count {
			covered[int64(r.First)+i*step]++
		}
	}
	if len(covered) == 0 {
		a.bad("%s (%s) is lost: it has no occurrence at all", e.Token, e.job.ID)
		return
	}
	points := make([]int64, 0, len(covered))
	for at, n := range covered {
		points = append(points, at)
		if n > 1 {
			a.bad("%s: the occurrence at %s is accounted for %d times", e.Token, job.Instant(at), n)
		}
	}
	slices.Sort(points)
	first, last := points[0], points[len(points)-1]
	if created := int64(e.job.CreatedAt); first <= created || first > created+step {
		a.bad("%s was made at %s and its first occurrence is at %s", e.Token, e.job.CreatedAt, job.Instant(first))
	}
	if end := int64(e.job.EndAt); end == 0 {
		a.bad("%s has no end, so its last occurrences cannot be accounted for", e.Token)
	} else if last > end || last <= end-step {
		a.bad("%s ends at %s and its last occurrence is at %s", e.Token, e.job.EndAt, job.Instant(last))
	}
	for i := 1; i < len(points); i++ {
		if points[i]-points[i-1] != step {
			a.bad("%s has a gap in its grid of %s: nothing is known between %s and %s", e.Token, e.Step, job.Instant(points[i-1]), job.Instant(points[i]))
		}
	}
}
