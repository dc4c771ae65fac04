package faultpoint

import "errors"

// Step is called between the steps of something that a crash may cut off. An error ends it there and is returned; nil:
// nothing is called.
type Step func(name string) error

// ErrCutOff ends a sequence of steps as a crash would: nothing is tidied up.
var ErrCutOff = errors.New("cut off")

// At is called between two steps.
func (s Step) At(name string) error {
	if s == nil {
		return nil
	}
	return s(name)
}
