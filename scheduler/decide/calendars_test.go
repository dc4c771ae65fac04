package decide

import (
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

func TestCalendarsAreBoundedByBytes(t *testing.T) {
	var c Calendars
	for i := range 100 {
		c.keep(calendarKey{job.DefaultNamespace, fmt.Sprint(i)}, &calendar{raw: make([]byte, 300<<10)})
		n := 0
		for _, k := range c.kept {
			n += len(k.raw)
		}
		if n > calendarBytes {
			t.Fatalf("%d calendars leave %d bytes", i+1, n)
		}
	}
}
