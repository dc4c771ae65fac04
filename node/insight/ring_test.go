package insight

import (
	"reflect"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

const noon = int64(1_800_000_000_000)

func ended(at int64, status job.RunStatus, attempt uint16) store.Ended {
	return store.Ended{Job: 1, Recorded: at, Namespace: job.DefaultNamespace, Status: status, Attempt: attempt,
		StartedAt: at - 40, EndedAt: at, Ready: at - 43}
}

func feed(r *Rings, records ...store.Ended) {
	for _, e := range records { // in whatever portions
		lag := int64(-1)
		if e.StartedAt != 0 {
			lag = e.StartedAt - e.Ready
		}
		r.Add([]store.Ended{e}, []int64{lag})
	}
}

func TestRingsCountByTheDatesOfRecords(t *testing.T) {
	r := &Rings{}
	r.Begin(noon - Window)
	outage := store.Ended{Recorded: noon + 1500, Namespace: "team-a", Status: job.RunMissed, Reason: job.ReasonOutage, Count: 7}
	paused := store.Ended{Recorded: noon + 1600, Namespace: job.DefaultNamespace, Status: job.RunSkipped, Reason: job.ReasonPaused, Count: 2}
	feed(r, ended(noon-10, job.RunSucceeded, 1), ended(noon+100, job.RunSucceeded, 1), ended(noon+900, job.RunFailed, 1),
		ended(noon+1100, job.RunDead, 2), outage, paused,
		store.Ended{Recorded: noon + 1700, Namespace: job.DefaultNamespace, Status: job.RunExpired, Reason: job.ReasonDeadline})
	if s := r.Stats("*", noon+2000, Seconds); s.CompleteFrom != 0 {
		t.Errorf("complete from %s before the history was read", s.CompleteFrom)
	}
	r.Caught()
	s := r.Stats("*", noon+2000, Seconds)
	if len(s.Buckets) != 3 || s.StepMS != 1000 || s.CompleteFrom != s.From || s.To-s.From != Seconds {
		t.Fatalf("%+v", s)
	}
	if b := s.Buckets[1]; int64(b.At) != noon || b.Succeeded != 1 || b.Failed != 1 || b.LagMS[2] != 2 || b.DurationMS[5] != 2 {
		t.Errorf("%+v", b)
	}
	want := wire.StatsCounts{Dead: 1, Retried: 1, NotRun: wire.NotRunCount{Missed: 7, Paused: 2, Expired: 1}}
	if b := s.Buckets[2]; b.StatsCounts != want {
		t.Errorf("%+v", b)
	}
	if s := r.Stats("team-a", noon+2000, Window); len(s.Buckets) != 1 || s.Buckets[0].NotRun.Missed != 7 || s.StepMS != 60_000 {
		t.Errorf("%+v", s)
	}
	if s := r.Stats("team-b", noon+2000, Window); len(s.Buckets) != 0 || s.CompleteFrom == 0 {
		t.Errorf("%+v", s)
	}
	c, p50, p99 := r.Second("*", noon)
	if c.Succeeded != 1 || *p50 != 5 || *p99 != 5 {
		t.Errorf("%+v %d %d", c, *p50, *p99)
	}
	// What is older than the ring does not show in the place of what is new.
	feed(r, ended(noon+Seconds+100, job.RunSucceeded, 1))
	if s := r.Stats("*", noon+Seconds+200, Seconds); len(s.Buckets) != 2 || s.Buckets[1].Succeeded != 1 || s.Buckets[1].Failed != 0 {
		t.Errorf("%+v", s.Buckets)
	}
}

// Two nodes that read the same history, in other portions, agree.
func TestRingsAgree(t *testing.T) {
	var all []store.Ended
	var lags []int64
	for i := range int64(5000) {
		all = append(all, ended(noon+i*37, []job.RunStatus{job.RunSucceeded, job.RunFailed, job.RunDead}[i%3], uint16(1+i%2)))
		lags = append(lags, i%90)
	}
	a, b := &Rings{}, &Rings{}
	for _, r := range []*Rings{a, b} {
		r.Begin(noon)
	}
	a.Add(all, lags)
	for i := 0; i < len(all); i += 7 {
		b.Add(all[i:min(i+7, len(all))], lags[i:min(i+7, len(all))])
	}
	for _, window := range []int64{Seconds, Window} {
		if x, y := a.Stats("*", noon+200_000, window), b.Stats("*", noon+200_000, window); !reflect.DeepEqual(x, y) || len(x.Buckets) == 0 {
			t.Errorf("%+v\n%+v", x, y)
		}
	}
}

// A hot second has some thousand records: counting them must not be felt.
func BenchmarkRings(b *testing.B) {
	r := &Rings{}
	r.Begin(noon)
	records, lags := make([]store.Ended, 500), make([]int64, 500)
	for i := range records {
		records[i], lags[i] = ended(noon+int64(i), job.RunSucceeded, 1), int64(i)
	}
	for b.Loop() {
		r.Add(records, lags)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(records)), "ns/record")
}
