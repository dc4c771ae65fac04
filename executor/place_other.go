//go:build !linux

package executor

import "time"

// PlaceOf knows no place here: the boot and the PID namespace cannot be told.
func PlaceOf(string) (Place, bool) { return Place{}, false }

func bootTime() time.Duration { return 0 }
