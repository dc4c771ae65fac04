//go:build !linux

package bench

import "errors"

type usage struct {
	cpu        float64
	written    uint64
	anon, file uint64
	peak       uint64
	wakeups    uint64
}

func usageOf(int) (usage, error) {
	return usage{}, errors.New("what a process uses is only known on Linux")
}
