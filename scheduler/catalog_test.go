package scheduler

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// What the leader keeps of jobs is bounded by bytes, not only by number: payloads may be large.
func TestTheCatalogIsBoundedByBytes(t *testing.T) {
	c := newCatalog()
	payload := json.RawMessage(strings.Repeat("x", 100<<10))
	kept := func() (bytes int) {
		for _, g := range []map[job.ID]*info{c.young, c.old} {
			for _, i := range g {
				bytes += len(i.def.Spec.Payload)
			}
		}
		return bytes
	}
	for id := range job.ID(2500) {
		i := &info{id: id + 1}
		i.def.Spec.Payload = payload
		c.put(i)
		if n := kept(); n > 2*catalogBytes {
			t.Fatalf("%d jobs leave %d bytes", id+1, n)
		}
		if c.get(id+1) != i {
			t.Fatalf("job %d is not kept", id+1)
		}
	}
	// The same ones again, and forgotten: nothing is counted twice.
	for range 3 {
		for id := range c.young {
			c.put(c.young[id])
		}
	}
	var all []job.ID
	for id := range c.young {
		all = append(all, id)
	}
	if c.forget(all); c.bytes != 0 {
		t.Errorf("%d bytes are counted of nothing", c.bytes)
	}
	small := 0
	for id := range job.ID(3 * catalogSize) {
		c.put(&info{id: id + 1})
		small = max(small, len(c.young)+len(c.old))
	}
	if small > 2*catalogSize {
		t.Errorf("%d jobs are kept", small)
	}
}

// A schedule is shared between jobs only if it means the same for all of them.
func TestSharedSchedulesMeanTheSame(t *testing.T) {
	c := newCatalog()
	after := time.UnixMilli(1_800_000_000_000)
	for _, expr := range []string{"*/5 * * * *", "H * * * *", "H(0-29) 3 * * *", "0 9 * * THU", "@every 97s", "@hourly", "2027-03-01T09:00:00Z", "DTSTART:20270301T090000 RRULE:FREQ=DAILY"} {
		for _, jitter := range []time.Duration{0, time.Hour} {
			for id := job.ID(1); id < 50; id++ {
				i := &info{id: id, def: store.Definition{Spec: *testSpec(expr, func(s *job.Spec) { s.Jitter = job.Duration(jitter) })}}
				if bad := c.compile(i); bad != "" {
					t.Fatal(bad)
				}
				own, err := Compile(&i.def.Spec, id)
				if err != nil {
					t.Fatal(err)
				}
				a, ok1 := i.sched.Next(after)
				b, ok2 := own.Next(after)
				if ok1 != ok2 || !a.Equal(b) || i.sched.Delay() != own.Delay() {
					t.Fatalf("%q of %s: %s+%s, alone %s+%s", expr, id, a, i.sched.Delay(), b, own.Delay())
				}
			}
		}
	}
}

func testSpec(sched string, edit func(*job.Spec)) *job.Spec {
	s := &job.Spec{Type: job.TypeShell, Schedule: sched, Payload: []byte(`{"command":"true"}`)}
	if edit != nil {
		edit(s)
	}
	s.Normalize()
	return s
}
