//go:build !carillon_crash

package crash

import "time"

// At is a point.
func At(string) {}

// Soon is how long to wait for what a test would wait too long for.
func Soon(d time.Duration) time.Duration { return d }
