// Package faultpoint holds the seams through which tests and the simulator break the product. Outside of them every one
// is off.
package faultpoint

import "errors"

// ErrProcessGone is what a simulated disk answers once the process that writes to it is dead.
var ErrProcessGone = errors.New("the process is gone")
