package cmd

import (
	"time"

	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/job"
)

// timeFlag is a flag that is a time, and where it goes.
type timeFlag struct {
	flag, text string
	to         *job.Instant
}

// instants reads the flags that are given. Times without an offset are in loc, those without a sign on a side.
func (a *app) instants(loc *time.Location, side values.Side, flags ...timeFlag) error {
	for _, t := range flags {
		if t.text == "" {
			continue
		}
		at, err := values.Instant(t.flag, t.text, a.now(), loc, side)
		if err != nil {
			return err
		}
		*t.to = job.At(at)
	}
	return nil
}
