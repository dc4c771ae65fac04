package insight

import (
	"slices"
	"sync"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	second     = 1000
	minuteStep = 60 * second
	// Window is how far back the minutes reach; Seconds is how far back seconds do.
	Window  = 24 * 60 * minuteStep
	Seconds = 5 * minuteStep
	// maxSpaces bounds of how many namespaces there are statistics of their own. Those of all are always there.
	maxSpaces = 64
)

// Rings count how runs ended, by second and by minute, for each namespace and for all. They are fed with the history in
// its order and go by the dates of its records, which are committed: nodes that have applied the same agree, over
// changes of the leader, and a node that starts reads them again.
type Rings struct {
	mu       sync.Mutex
	all      ring
	spaces   map[string]*ring
	complete int64 // all records from here on were counted
	caught   bool  // what the history had when counting began was read
	newest   int64 // date of the newest record
}

type ring struct {
	seconds [Seconds / second]*bucket
	minutes [Window / minuteStep]*bucket
}

const bounds = 15

type bucket struct {
	at            int64
	counts        wire.StatsCounts
	lag, duration [bounds + 1]uint32
}

// Begin forgets everything and counts from a time on.
func (r *Rings) Begin(complete int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all, r.spaces, r.complete, r.caught, r.newest = ring{}, map[string]*ring{}, complete, false, 0
}

// Caught says that what the history had at Begin was counted.
func (r *Rings) Caught() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.caught = true
}

// Add counts records. lags are how late they started, negative where that is not known.
func (r *Rings) Add(records []store.Ended, lags []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range records {
		e := &records[i]
		r.newest = max(r.newest, e.Recorded)
		r.all.add(e, lags[i])
		x := r.spaces[e.Namespace]
		if x == nil {
			if len(r.spaces) >= maxSpaces {
				continue
			}
			x = &ring{}
			r.spaces[e.Namespace] = x
		}
		x.add(e, lags[i])
	}
}

func (r *ring) add(e *store.Ended, lag int64) {
	at(r.seconds[:], e.Recorded, second).add(e, lag)
	at(r.minutes[:], e.Recorded, minuteStep).add(e, lag)
}

// at is the bucket of a time. One that an older time left there is begun anew.
func at(all []*bucket, t, step int64) *bucket {
	begin := t - t%step
	p := &all[begin/step%int64(len(all))]
	if *p == nil {
		*p = &bucket{at: begin}
	} else if (*p).at != begin {
		**p = bucket{at: begin}
	}
	return *p
}

func (b *bucket) add(e *store.Ended, lag int64) {
	n := max(1, e.Count)
	if e.Count > 0 || e.Attempt == 0 {
		switch Fate(e.Status, e.Reason) {
		case wire.FatePaused:
			b.counts.NotRun.Paused += n
		case wire.FateBlackout:
			b.counts.NotRun.Blackout += n
		case wire.FateMissed:
			b.counts.NotRun.Missed += n
		case wire.FateExpired:
			b.counts.NotRun.Expired += n
		case wire.FateCanceled:
			b.counts.Canceled += n
		default:
			b.counts.NotRun.Skipped += n
		}
		return
	}
	switch e.Status {
	case job.RunSucceeded:
		b.counts.Succeeded++
	case job.RunFailed:
		b.counts.Failed++
	case job.RunDead:
		b.counts.Dead++
	case job.RunLost:
		b.counts.Lost++
	case job.RunCanceled:
		b.counts.Canceled++
	}
	if e.Attempt > 1 {
		b.counts.Retried++
	}
	if lag >= 0 {
		b.lag[slot(lag)]++
	}
	if e.StartedAt != 0 && e.EndedAt != 0 && e.Reason != job.ReasonWorkerLost { // of such a one the end is not known
		b.duration[slot(max(0, e.EndedAt-e.StartedAt))]++
	}
}

func slot(ms int64) int {
	i, _ := slices.BinarySearch(wire.StatsBounds, ms)
	return i
}

// of is the ring of a namespace, or of all; nil if nothing was counted.
func (r *Rings) of(namespace string) *ring {
	if namespace == job.AllNamespaces {
		return &r.all
	}
	return r.spaces[namespace]
}

// Stats are those of the window before a time, in seconds if these reach so far.
func (r *Rings) Stats(namespace string, now, window int64) wire.Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	step := int64(second)
	if window > Seconds {
		step = minuteStep
	}
	to := now - now%step + step
	s := wire.Stats{From: job.Instant(to - window), To: job.Instant(to), StepMS: step, BoundsMS: wire.StatsBounds,
		Buckets: []wire.StatsBucket{}}
	x := r.of(namespace)
	if r.caught && (x != nil || len(r.spaces) < maxSpaces) {
		s.CompleteFrom = max(s.From, job.Instant(r.complete))
	}
	if x == nil {
		return s
	}
	all := x.seconds[:]
	if step == minuteStep {
		all = x.minutes[:]
	}
	for t := to - window; t < to; t += step {
		b := all[t/step%int64(len(all))]
		if b == nil || b.at != t {
			continue
		}
		out := wire.StatsBucket{At: job.Instant(t), StatsCounts: b.counts}
		out.LagMS, out.DurationMS = filled(&b.lag), filled(&b.duration)
		s.Buckets = append(s.Buckets, out)
	}
	return s
}

func filled(h *[bounds + 1]uint32) []uint32 {
	if *h == ([bounds + 1]uint32{}) {
		return nil
	}
	return slices.Clone(h[:])
}

// lagSeconds is over how many seconds the quantiles of an event go.
const lagSeconds = 10

// Second is what ended in the second that begins at a time, and quantiles of the lag of the last ones, as upper bounds.
// What is above all bounds is shown as the last of them.
func (r *Rings) Second(namespace string, begin int64) (c wire.StatsCounts, p50, p99 *int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.of(namespace)
	if x == nil {
		return c, nil, nil
	}
	var lag [bounds + 1]uint32
	n := uint32(0)
	for i := range int64(lagSeconds) {
		t := begin - i*second
		b := x.seconds[t/second%int64(len(x.seconds))]
		if b == nil || b.at != t {
			continue
		}
		if i == 0 {
			c = b.counts
		}
		for k, v := range b.lag {
			lag[k] += v
			n += v
		}
	}
	if n == 0 {
		return c, nil, nil
	}
	at := func(percent uint32) *int64 {
		want, sum := (n*percent+99)/100, uint32(0)
		for k, v := range lag {
			if sum += v; sum >= want {
				bound := wire.StatsBounds[min(k, bounds-1)]
				return &bound
			}
		}
		return nil
	}
	return c, at(50), at(99)
}
