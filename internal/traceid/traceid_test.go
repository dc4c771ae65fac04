package traceid

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-scheduler/carillon/job"
)

var run = job.RunKey{Job: 42, At: 1_700_000_000_000, Origin: job.OriginSchedule}

// The ids are the same for ever: a run whose attempts are years apart, over versions, is one trace.
func TestIDsAreStable(t *testing.T) {
	id := Of("thecluster", run)
	got := []string{id.String(), id.Run().String(), id.Wait(7).String(), id.Attempt(7).String()}
	want := []string{"5b45f6bd3df6bcfbd316c399eed22ae9", "488eb25c6f33f168", "2938c483a44b0670", "b3aeb44a7c45c2c6"}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("ids %q, want %q", got, want)
	}
	if p, want := id.Parent(7, true), "00-"+got[0]+"-"+got[3]+"-01"; p != want {
		t.Errorf("traceparent %q, want %q", p, want)
	}
}

func TestIDsDiffer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cluster := rapid.StringN(1, 60, 60).Draw(rt, "cluster")
		k := job.RunKey{Job: job.ID(rapid.Uint64Min(1).Draw(rt, "job")), At: rapid.Int64().Draw(rt, "at"),
			Origin: job.Origin(rapid.IntRange(1, 3).Draw(rt, "origin"))}
		fence := rapid.Uint64Max(math.MaxUint64-1).Draw(rt, "fence")
		id := Of(cluster, k)
		traces := map[Trace]bool{id: true}
		for _, o := range []Trace{Of(cluster+"x", k), Of(cluster, job.RunKey{Job: k.Job + 1, At: k.At, Origin: k.Origin}),
			Of(cluster, job.RunKey{Job: k.Job, At: k.At ^ 1, Origin: k.Origin}),
			Of(cluster, job.RunKey{Job: k.Job, At: k.At, Origin: k.Origin%3 + 1})} {
			if traces[o] {
				rt.Fatalf("two runs have the trace %s", o)
			}
			traces[o] = true
		}
		spans := map[Span]bool{{}: true}
		for _, s := range []Span{id.Run(), id.Wait(fence), id.Attempt(fence), id.Wait(fence + 1), id.Attempt(fence + 1)} {
			if spans[s] {
				rt.Fatalf("two spans of a trace have the id %s, or it is zero", s)
			}
			spans[s] = true
		}
	})
}

var traceparent = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$`)

func TestSampler(t *testing.T) {
	var off *Sampler
	if p := off.Traceparent("c", run, 1); p != Of("c", run).Parent(1, true) || off.Sampled(Of("c", run)) {
		t.Errorf("without tracing a target is told %q", p)
	}
	const n = 20_000
	for _, ratio := range []float64{0, 0.01, 0.5, 1} {
		s, other := NewSampler(ratio), NewSampler(ratio)
		hits := 0
		for i := range n {
			k := run
			k.At += int64(i) * 1000
			id := Of("c", k)
			sampled := s.Sampled(id)
			if sampled {
				hits++
			}
			if other.Sampled(id) != sampled {
				t.Fatalf("two nodes disagree about %s", id)
			}
			for fence := range uint64(3) {
				p := s.Traceparent("c", k, fence)
				if !traceparent.MatchString(p) || strings.HasSuffix(p, "-01") != sampled || p[3:35] != id.String() ||
					p[36:52] != id.Attempt(fence).String() {
					t.Fatalf("attempt %d of a run with sampled %t is told %q", fence, sampled, p)
				}
			}
		}
		if got := float64(hits) / n; math.Abs(got-ratio) > 0.02 {
			t.Errorf("ratio %g: %g of the runs are sampled", ratio, got)
		}
	}
}

func BenchmarkTraceparent(b *testing.B) {
	s := NewSampler(0.5)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Traceparent("abcdefghijklmnopqrstuvwxyz", run, uint64(i))
	}
}
