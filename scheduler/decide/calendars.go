package decide

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// Calendars keeps calendars that were compiled. It is used by one goroutine.
type Calendars struct {
	kept map[calendarKey]*calendar
}

// calendarBytes bounds the calendars that are kept compiled.
const calendarBytes = 4 << 20

// calendarKey names a calendar.
type calendarKey struct{ namespace, name string }

type calendar struct {
	raw      []byte
	blackout *schedule.Blackout // nil: it cannot be read
}

// keep holds a compiled calendar. Those that were deleted are never asked for again, so all are let go when they are
// too large together.
func (c *Calendars) keep(key calendarKey, k *calendar) {
	size := len(k.raw)
	for other, o := range c.kept {
		if other != key {
			size += len(o.raw)
		}
	}
	if c.kept == nil || size > calendarBytes {
		c.kept = map[calendarKey]*calendar{}
	}
	c.kept[key] = k
}

// Blackouts are the job's calendars as they are now. The store does not announce a change of a calendar, so the bytes
// are compared.
func (c *Calendars) Blackouts(look func(namespace, name string) []byte, spec *job.Spec,
	complain func(name, why string)) []*schedule.Blackout {
	var out []*schedule.Blackout
	for _, name := range spec.Calendars {
		raw, key := look(spec.Namespace, name), calendarKey{spec.Namespace, name}
		k := c.kept[key]
		if k == nil || !bytes.Equal(k.raw, raw) && !mutant.On(mutant.StaleCalendar) {
			k = &calendar{raw: raw}
			var err error
			if k.blackout, err = compileCalendar(raw); err != nil {
				complain(name, err.Error())
			}
			c.keep(key, k)
		}
		if k.blackout != nil {
			out = append(out, k.blackout)
		}
	}
	return out
}

func compileCalendar(raw []byte) (b *schedule.Blackout, err error) {
	defer func() {
		if r := recover(); r != nil {
			b, err = nil, fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	if raw == nil {
		return nil, fmt.Errorf("it does not exist")
	}
	var c schedule.Calendar
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, err
	}
	return c.Compile()
}
