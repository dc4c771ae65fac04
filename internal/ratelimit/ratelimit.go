// Package ratelimit bounds how often each of many may do something: token buckets in a bounded amount of memory.
package ratelimit

import (
	"sync"
	"time"
)

// Limiter has a bucket for each key.
type Limiter[K comparable] struct {
	rate  float64 // a second
	burst float64
	most  int
	began time.Time

	mu      sync.Mutex
	buckets map[K]bucket
}

// bucket is what is used up of a burst, as it was at a time. It drains by the rate.
type bucket struct {
	used float64
	at   time.Duration
}

// New makes a limiter: so many a second for each key, and so many at once after a rest. It remembers at most most keys.
// Beyond that it forgets those that have used the least: who comes from many addresses finds each fresh, and takes no
// memory.
func New[K comparable](perSecond float64, burst, most int) *Limiter[K] {
	return &Limiter[K]{rate: perSecond, burst: float64(burst), most: most, began: time.Now(), buckets: map[K]bucket{}}
}

// Take counts one, and returns 0; or it counts nothing, and returns after how long one would be counted.
func (l *Limiter[K]) Take(key K) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.began)
	b, known := l.buckets[key]
	b = l.drained(b, now)
	if b.used+1 > l.burst {
		return l.wait(b)
	}
	if !known && len(l.buckets) >= l.most {
		l.forget(now)
	}
	b.used++
	l.buckets[key] = b
	return 0
}

// Wait is what Take would return.
func (l *Limiter[K]) Wait(key K) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.drained(l.buckets[key], time.Since(l.began)); b.used+1 > l.burst {
		return l.wait(b)
	}
	return 0
}

func (l *Limiter[K]) drained(b bucket, now time.Duration) bucket {
	return bucket{used: max(0, b.used-(now-b.at).Seconds()*l.rate), at: now}
}

func (l *Limiter[K]) wait(b bucket) time.Duration {
	return max(time.Duration((b.used+1-l.burst)/l.rate*float64(time.Second)), time.Nanosecond)
}

// looks is how many buckets are looked at to make room for another one.
const looks = 16

// forget makes room: of some buckets, those that are empty go, and if there is none, the one with the least in it.
func (l *Limiter[K]) forget(now time.Duration) {
	var least K
	lowest, seen, gone := 0.0, 0, false
	for k, b := range l.buckets {
		used := l.drained(b, now).used
		if used == 0 {
			delete(l.buckets, k)
			gone = true
		} else if seen == 0 || used < lowest {
			least, lowest = k, used
		}
		if seen++; seen == looks {
			break
		}
	}
	if !gone {
		delete(l.buckets, least)
	}
}
