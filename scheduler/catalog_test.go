package scheduler

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
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

func TestCalendarsAreBoundedByBytes(t *testing.T) {
	c := newCatalog()
	for i := range 100 {
		c.keep(calendarKey{job.DefaultNamespace, fmt.Sprint(i)}, &calendar{raw: make([]byte, 300<<10)})
		n := 0
		for _, k := range c.calendars {
			n += len(k.raw)
		}
		if n > calendarBytes {
			t.Fatalf("%d calendars leave %d bytes", i+1, n)
		}
	}
}
