//go:build !linux || !amd64

package harness

import "errors"

// CanFault says why processes cannot be made to fail here, or nothing.
func CanFault() string { return "faults are put in with ptrace, and written for Linux on amd64" }

func filtered([]string) error { return errors.New(CanFault()) }

func (f Fault) trace([]string) (int, error) { return 0, errors.New(CanFault()) }
