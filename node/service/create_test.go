package service

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/scheduler"
	"github.com/carillon-scheduler/carillon/store"
)

// An entry is filled by what its jobs take at most: one that is too large would fail with everything in it.
func TestSizeOfAJobIsNotUnderestimated(t *testing.T) {
	long := strings.Repeat("x", 200)
	many := map[string]string{}
	for i := range job.MaxTags {
		many[strings.Repeat("k", i+1)] = strings.Repeat("v", 190)
	}
	n, f := math.MaxInt32+1, 0.123
	huge := job.Duration(math.MaxInt64)
	for name, spec := range map[string]job.Spec{
		"small": {Type: job.TypeHTTP, Schedule: "@daily", Payload: []byte(`{"url":"http://x"}`)},
		"everything": {Name: long, Type: job.TypeMessage, Schedule: strings.Repeat("x", 60_000),
			Timezone: "America/Argentina/ComodRivadavia", Payload: make([]byte, job.MaxPayload),
			Retry: job.Retry{MaxRetries: &n, Backoff: job.BackoffExponential, Base: huge, Cap: huge,
				Jitter: &f}, Timeout: huge, Deadline: huge,
			Missed: job.Missed{Policy: job.MissedRunOnce, Window: strings.Repeat("0", 62) + "1h", Max: n,
				Grace: huge}, Overlap: job.OverlapReplace, Delivery: job.DeliverAtLeastOnce,
			Priority: "critical", Concurrency: n, Jitter: huge, StartAt: math.MaxInt64, EndAt: math.MaxInt64, MaxRuns: n, Calendars: []string{long, long, long}, Tags: many, Workers: many,
			IdempotencyKey: long, Retention: huge, DSTGap: "run_after", DSTOverlap: "first",
			Notify: &job.Notify{On: []string{job.NotifyFailure, job.NotifyRecovery}, Webhook: strings.Repeat("x", 2000),
				Email: []string{long, long}}},
	} {
		spec.Normalize()
		def := store.Definition{Spec: spec, Version: math.MaxUint64, CreatedAt: math.MaxInt64, UpdatedAt: math.MaxInt64}
		data := def.Append(nil)
		size := func(items ...fsm.CreateItem) int {
			b, err := fsm.Encode(&fsm.Create{Items: items})
			if err != nil {
				t.Fatal(err)
			}
			return len(b)
		}
		q := fsm.Request{ID: "k:" + strings.Repeat("k", 255), Fingerprint: math.MaxUint64, Expires: math.MaxInt64}
		real := size(fsm.CreateItem{Job: math.MaxUint64, Def: data,
			Next: fsm.When{At: math.MaxInt64, Ready: math.MaxInt64}, Request: q}) - size()
		c := creation{size: sizeOf(&spec), request: q}
		if got := c.bytes(); got < real || got > real+250+real/100 {
			t.Errorf("%s: %d bytes are thought to be %d at most", name, real, got)
		}
	}
}

// What waits is cut into entries that can be proposed, and into waves of a few of them, in the order in which it came.
func TestGatherCutsWavesIntoEntries(t *testing.T) {
	b := newBatcher(&forward.Epoch{}, &scheduler.Schedules{}, 0)
	if b.gather(1) != nil {
		t.Fatal("something of nothing")
	}
	var items []*creation
	for i := range 3*waveEntries*maxCreateItems + 7 {
		c := &creation{size: 10, batch: &createBatch{}}
		if i%1000 == 999 {
			c.size = maxCreateBytes/2 + 1
		}
		if i == 20_000 {
			c.size = 10 * maxCreateBytes // larger than an entry may be: it fails alone
		}
		items = append(items, c)
	}
	b.queue = append(b.queue, items...)
	for range 3 { // these came later, and go first
		single := &creation{size: 10, batch: &createBatch{}}
		items = slices.Insert(items, len(b.singles), single)
		b.singles = append(b.singles, single)
	}
	seen := 0
	for waves := b.gather(1); waves != nil; waves = b.gather(1) {
		if len(waves) > waveEntries {
			t.Fatalf("%d entries in a wave", len(waves))
		}
		for _, batch := range waves {
			size := 0
			for _, c := range batch {
				if c != items[seen] {
					t.Fatalf("job %d is out of order", seen)
				}
				seen++
				size += c.bytes()
			}
			if len(batch) == 0 || len(batch) > maxCreateItems || size > maxCreateBytes && len(batch) > 1 {
				t.Fatalf("%d jobs of %d bytes in an entry", len(batch), size)
			}
		}
	}
	if seen != len(items) {
		t.Fatalf("%d of %d", seen, len(items))
	}
}

// A few jobs wait for the wave before them, which they would hardly overtake; many do not, and none waits when there is
// none.
func TestGatherWaitsForTheWaveBefore(t *testing.T) {
	b := newBatcher(&forward.Epoch{}, &scheduler.Schedules{}, 0)
	add := func(n int) {
		for range n {
			b.singles = append(b.singles, &creation{size: 10, batch: &createBatch{}})
		}
	}
	add(3)
	if got := b.gather(leastInWave(1)); got != nil || len(b.singles) != 3 {
		t.Fatalf("%d entries beside another wave, %d still wait", len(got), len(b.singles))
	}
	if got := b.gather(leastInWave(0)); len(got) != 1 || len(got[0]) != 3 {
		t.Fatalf("%d entries alone", len(got))
	}
	add(besideWave)
	if got := b.gather(leastInWave(1)); len(got) != 1 || len(got[0]) != besideWave {
		t.Fatalf("%d entries of many beside another wave", len(got))
	}
}
