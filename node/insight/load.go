package insight

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// loadJobs is of how many jobs the schedules are read; of more than that they are a sample.
	loadJobs = 10_000
	// loadAlike is how many jobs are computed of those whose schedules differ by nothing but their phase, which comes
	// from the job's number; the others are taken to be like these.
	loadAlike = 64
	// loadTimes bounds how many occurrences of one schedule are computed, and loadSteps of all: behind that the rate so
	// far goes on.
	loadTimes = 100_000
	loadSteps = 2_000_000
	// loadDay is for how long unless the request says otherwise, and maxLoadSteps in how many steps at most: two days
	// by minute, four months by hour.
	loadDay      = 24 * 3600 * 1000
	maxLoadSteps = 2880
	// loadTop is how many schedules of a bucket are named.
	loadTop = 10
)

// UpcomingLoad implements api.Backend. Jobs with the same schedule are counted together: a million of them have a few
// dozen.
func (b *Service) UpcomingLoad(ctx context.Context, q wire.LoadQuery, rd api.Read) (wire.UpcomingLoad, error) {
	from := cmp.Or(int64(q.From), b.now())
	to := cmp.Or(int64(q.To), from+loadDay)
	if n := (to - from) / q.Step; n > maxLoadSteps || to <= from {
		return wire.UpcomingLoad{}, job.Invalid("to", "ask for a shorter interval, or use step=1h",
			"from %s to %s there are %d steps; use 1 to %d", job.Instant(from), job.Instant(to), n, maxLoadSteps)
	}
	from -= from % q.Step
	to += (q.Step - to%q.Step) % q.Step
	l := &load{b: b, space: rd.Space, from: from, to: to, step: q.Step, bucket: -1, groups: map[loadKey]*loadGroup{},
		out: wire.UpcomingLoad{From: job.Instant(from), To: job.Instant(to), StepMS: q.Step,
			Buckets: []wire.LoadBucket{}}}
	if at := int64(q.Bucket); at >= from && at < to {
		l.bucket = (at - from) / q.Step
	}
	done, err := b.Turn(ctx, rd)
	if err != nil {
		return l.out, err
	}
	defer done()
	if err := l.read(ctx); err != nil {
		return l.out, err
	}
	if err := l.sum(ctx); err != nil {
		return l.out, err
	}
	if q.Bucket != 0 {
		l.top(int64(q.Bucket))
	}
	return l.out, nil
}

// loadKey is what jobs have in common that are counted together.
type loadKey struct {
	expr, zone, gap, overlap, calendars string
	start, end                          job.Instant
	jitter                              job.Duration
	ends                                bool // after some runs: each of them by itself
}

// loadGroup is jobs with one schedule.
type loadGroup struct {
	jobs    int64
	alike   []loadJob // those that are computed: one, or some if the schedule depends on the job
	counts  []float64 // by bucket
	guessed bool      // not all of them are computed
	beyond  int64     // from this bucket on a rate goes on
	due     int64     // of those that are computed, how many have something in the bucket that is asked about
	example string    // one of these
}

type loadJob struct {
	id        job.ID
	spec      *job.Spec
	due       int64
	left      int64 // runs that max_runs allows; negative: any number
	forbidden []*schedule.Blackout
}

type load struct {
	b              *Service
	space          api.Space
	from, to, step int64
	bucket         int64 // whose schedules are named; negative: of none
	groups         map[loadKey]*loadGroup
	scale          float64 // how many jobs one that was looked at stands for
	steps          int
	out            wire.UpcomingLoad
}

// read groups the jobs by their schedules, in short views.
func (l *load) read(ctx context.Context) error {
	var sample []job.ID
	err := l.b.view(func(r *view.Reader) error {
		if l.space.All {
			l.out.Total = r.C.Jobs
		}
		if l.out.Sampled = r.C.Jobs > loadJobs; l.out.Sampled {
			sample = r.SampleJobs(loadJobs)
			l.scale = float64(r.C.Jobs) / float64(len(sample))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if l.out.Sampled {
		return l.readThese(ctx, sample)
	}
	l.scale = 1
	at := job.ID(0)
	for n := viewJobs; n == viewJobs; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := l.b.view(func(r *view.Reader) (inner error) {
			n = 0
			err := r.EachJob(at, func(id job.ID, d store.Definition) bool {
				at = id
				n++
				inner = l.add(r, id, &d)
				return inner == nil && n < viewJobs
			})
			return cmp.Or(err, inner)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readThese groups some jobs; those that are gone by now do not count.
func (l *load) readThese(ctx context.Context, ids []job.ID) error {
	for some := range slices.Chunk(ids, viewJobs) {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := l.b.view(func(r *view.Reader) error {
			for _, id := range some {
				d, ok, err := r.Definition(id)
				if err == nil && ok {
					err = l.add(r, id, &d)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *load) add(r *view.Reader, id job.ID, d *store.Definition) error {
	spec := &d.Spec
	if view.Counts(l.space, spec.Namespace) {
		l.out.Scanned++
	}
	if !l.space.Lists(spec.Namespace) {
		return nil
	}
	st, p, ok, err := r.State(id)
	if err != nil || !ok || p.Parked {
		return err
	}
	k := loadKey{spec.Schedule, spec.Timezone, spec.DSTGap, spec.DSTOverlap, "", spec.StartAt, spec.EndAt, spec.Jitter,
		spec.MaxRuns != 0}
	if len(spec.Calendars) > 0 {
		k.calendars = spec.Namespace + "/" + strings.Join(spec.Calendars, "/")
	}
	g := l.groups[k]
	if g == nil {
		g = &loadGroup{beyond: math.MaxInt64}
		l.groups[k] = g
	}
	g.jobs++
	most := 1
	if spec.Jitter != 0 || spec.MaxRuns != 0 || strings.ContainsAny(spec.Schedule, "Hh@") {
		most = loadAlike
	}
	if len(g.alike) == most {
		g.guessed = g.guessed || most > 1
		return nil
	}
	j := loadJob{id: id, spec: spec, due: p.At, left: -1}
	if spec.MaxRuns > 0 {
		j.left = max(0, int64(spec.MaxRuns)-int64(st.Runs))
	}
	if j.forbidden, err = r.Blackouts(spec.Namespace, spec.Calendars); err != nil {
		return err
	}
	g.alike = append(g.alike, j)
	return nil
}

// sum counts the occurrences of the groups.
func (l *load) sum(ctx context.Context) error {
	n := int((l.to - l.from) / l.step)
	total, guessed := make([]float64, n), make([]bool, n)
	for _, g := range l.groups {
		if err := ctx.Err(); err != nil {
			return err
		}
		g.counts = make([]float64, n)
		for i := range g.alike {
			j := &g.alike[i]
			before := l.asked(g)
			if l.count(g, j); l.asked(g) > before {
				g.due++
				g.example = cmp.Or(g.example, j.spec.Name, j.id.String())
			}
		}
		factor := l.scale * float64(g.jobs) / float64(len(g.alike))
		for i, c := range g.counts {
			if c == 0 {
				continue
			}
			g.counts[i] = c * factor
			total[i] += g.counts[i]
			guessed[i] = guessed[i] || g.guessed || int64(i) >= g.beyond || l.out.Sampled
		}
	}
	l.out.ExactUntil = l.out.To
	for i, c := range total {
		at, kind := job.Instant(l.from+int64(i)*l.step), wire.LoadExact
		if guessed[i] {
			kind = wire.LoadProjected
			l.out.ExactUntil = min(l.out.ExactUntil, at)
		}
		if c > 0 {
			l.out.Buckets = append(l.out.Buckets, wire.LoadBucket{At: at, Count: int64(math.Round(c)), Kind: kind})
		}
	}
	return nil
}

// asked is how many occurrences a group has so far in the bucket that is asked about.
func (l *load) asked(g *loadGroup) float64 {
	if l.bucket < 0 {
		return 0
	}
	return g.counts[l.bucket]
}

// count adds the occurrences of one job to its group.
func (l *load) count(g *loadGroup, j *loadJob) {
	sched, err := l.b.schedules.Compile(j.spec, j.id)
	if err != nil {
		return // it will be in quarantine
	}
	delay := sched.Delay().Milliseconds()
	first := j.due
	if j.left < 0 { // otherwise those before count towards max_runs
		first = max(first, l.from-delay)
	}
	at := first - 1
	for n := 0; j.left != 0; n++ {
		t, ok := sched.Next(time.UnixMilli(at))
		if at = t.UnixMilli(); !ok || at+delay >= l.to {
			return
		}
		if l.steps++; n == loadTimes || l.steps > loadSteps {
			if n > 0 {
				l.extend(g, max(l.from, at+delay), float64(n)/float64(at-first+1))
			} else {
				g.guessed = true
			}
			return
		}
		if view.Forbids(j.forbidden, t) || sched.Skipped(t) {
			continue
		}
		if j.left--; at+delay >= l.from {
			g.counts[(at+delay-l.from)/l.step]++
		}
	}
}

// extend goes on at a rate of occurrences a millisecond.
func (l *load) extend(g *loadGroup, from int64, rate float64) {
	g.beyond = min(g.beyond, (from-l.from)/l.step)
	for i := (from - l.from) / l.step; i < int64(len(g.counts)); i++ {
		begin := max(from, l.from+i*l.step)
		g.counts[i] += rate * float64(l.from+(i+1)*l.step-begin)
	}
}

// top names the schedules that have most in a bucket.
func (l *load) top(at int64) {
	at -= at % l.step
	out := wire.LoadTop{At: job.Instant(at), Schedules: []wire.LoadSchedule{}}
	if i := (at - l.from) / l.step; at >= l.from && at < l.to {
		all := map[[2]string]*wire.LoadSchedule{}
		for k, g := range l.groups {
			c := int64(math.Round(g.counts[i]))
			if c == 0 {
				continue
			}
			as := [2]string{k.expr, cmp.Or(k.zone, "UTC")}
			if all[as] == nil {
				all[as] = &wire.LoadSchedule{Schedule: as[0], Timezone: as[1], Example: g.example}
			}
			due := l.scale * float64(g.due) * float64(g.jobs) / float64(len(g.alike))
			all[as].Count, all[as].Jobs = all[as].Count+c, all[as].Jobs+int64(math.Round(due))
			all[as].Example = min(all[as].Example, g.example)
		}
		for _, s := range all {
			out.Schedules = append(out.Schedules, *s)
		}
	}
	slices.SortFunc(out.Schedules, func(x, y wire.LoadSchedule) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Schedule, y.Schedule),
			cmp.Compare(x.Example, y.Example))
	})
	out.Schedules = out.Schedules[:min(len(out.Schedules), loadTop)]
	l.out.Top = []wire.LoadTop{out}
}

// jitters are those that are tried, in minutes.
var jitters = []int64{1, 5, 15, 60}

// Share is what else there is in the minute of a time, and what it would be if that were spread over a jitter.
func (b *Service) Share(ctx context.Context, at int64, rd api.Read) (*wire.Sharing, error) {
	const minute = 60_000
	at -= at % minute
	most := jitters[len(jitters)-1]
	q := wire.LoadQuery{From: job.Instant(at), To: job.Instant(at + most*minute), Step: minute}
	l, err := b.UpcomingLoad(ctx, q, rd)
	if err != nil {
		return nil, err
	}
	out := &wire.Sharing{Minute: job.Instant(at), Kind: wire.LoadExact, Peaks: []wire.JitterPeak{}}
	ahead := make([]int64, most)
	for _, bucket := range l.Buckets {
		if i := (int64(bucket.At) - at) / minute; i == 0 {
			out.Jobs, out.Kind = bucket.Count, bucket.Kind
		} else {
			ahead[i] = bucket.Count
		}
	}
	for _, j := range jitters {
		part := (out.Jobs + j - 1) / j
		peak := int64(0)
		for i := range j {
			peak = max(peak, ahead[i]+part)
		}
		out.Peaks = append(out.Peaks, wire.JitterPeak{JitterMS: j * minute, Peak: peak})
	}
	return out, nil
}
