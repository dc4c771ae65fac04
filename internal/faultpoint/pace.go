package faultpoint

import "time"

// Pace makes housekeeping beat this many times slower, so that simulated months are cheap; 0 and 1: as designed.
type Pace int

// Of is how long a duration takes at this pace.
func (p Pace) Of(d time.Duration) time.Duration { return d * time.Duration(max(p, 1)) }
