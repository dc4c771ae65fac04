package service

import (
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// The limits that docs/secure.md names, of a namespace and of all of them together.
func TestRoomForCalendars(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		in, all store.CalendarSize
		size    int
		fits    bool
	}{
		"the first":               {size: 10, fits: true},
		"the last of a namespace": {in: store.CalendarSize{Count: 511}, all: store.CalendarSize{Count: 511}, fits: true},
		"one more in a namespace": {in: store.CalendarSize{Count: 512}, all: store.CalendarSize{Count: 512}},
		"the last byte of it":     {in: store.CalendarSize{Count: 1, Bytes: 4*mib - 10}, size: 10, fits: true},
		"one more byte of it":     {in: store.CalendarSize{Count: 1, Bytes: 4*mib - 10}, size: 11},
		"the last of all":         {all: store.CalendarSize{Count: 4095}, fits: true},
		"one more of all":         {all: store.CalendarSize{Count: 4096}},
		"the last byte of all":    {all: store.CalendarSize{Count: 1, Bytes: 32*mib - 10}, size: 10, fits: true},
		"one more byte of all":    {all: store.CalendarSize{Count: 1, Bytes: 32*mib - 10}, size: 11},
	} {
		if err := oneMoreCalendar("team-a", c.in, c.all, c.size); (err == nil) != c.fits || err != nil && job.CodeOf(err) != job.CodeState {
			t.Errorf("%s: %v", name, err)
		}
	}
}
