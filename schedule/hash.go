package schedule

// Salts keep the values drawn from one seed independent of each other. The numbers are part of the format: changing
// one moves the fire times of every existing job that uses H, @every or jitter.
const (
	saltSecond uint64 = 1 + iota
	saltMinute
	saltHour
	saltDom
	saltMonth
	saltDow
	saltEvery
	saltJitter
)

// spread draws a number in [0, n) from a seed. Job ids are dense small numbers, so the seed is mixed (splitmix64)
// before the remainder is taken: neighbours must not land next to each other.
func spread(seed, salt, n uint64) uint64 {
	x := seed + salt*0x9e3779b97f4a7c15
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	x ^= x >> 31
	return x % n
}
