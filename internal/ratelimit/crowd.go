package ratelimit

import "time"

// Crowd is for callers that are strangers: each has a rate, and so have all of them together.
type Crowd[K comparable] struct {
	each *Limiter[K]
	all  *Limiter[struct{}]
	// quiet lets a caller in that asks about once a second although all together ask too often: it is not kept out by a
	// flood from elsewhere.
	quiet *Limiter[K]
}

// NewCrowd has rate and burst for each of the latest most callers, and share times that for all.
func NewCrowd[K comparable](rate float64, burst, most, share int) *Crowd[K] {
	return &Crowd[K]{each: New[K](rate, burst, most), all: New[struct{}](float64(share)*rate, share*burst, 1),
		quiet: New[K](1, 2, most)}
}

// Take counts a request, and returns 0; or after how long it would be counted.
func (c *Crowd[K]) Take(from K) time.Duration {
	if wait := c.each.Take(from); wait > 0 {
		return wait
	}
	wait := c.all.Take(struct{}{})
	if wait > 0 && c.quiet.Take(from) == 0 {
		return 0
	}
	return wait
}
