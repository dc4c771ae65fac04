package store

import (
	"maps"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// SampleJobs are up to n jobs in the order of their numbers, one of each n-th part of all of them. Which one of its
// part is decided by a hash, not by an equal distance: people make jobs in loops, and a distance that fits the loop
// would find the same kind of job every time. It is the same sample as long as the jobs are the same. It goes by the
// index, so that numbers that were skipped, by deletes or by a restore, weigh nothing.
func (v *View) SampleJobs(n int) []job.ID {
	all := uint64(v.idx.jobs())
	if all == 0 || n <= 0 {
		return nil
	}
	parts := min(uint64(n), all)
	out := make([]job.ID, 0, parts)
	before := uint64(0) // jobs in the chunks before
	for _, at := range slices.Sorted(maps.Keys(v.idx.chunks)) {
		c := v.idx.chunks[at]
		next := 0 // spot of the chunk
		rank := before
		for uint64(len(out)) < parts {
			part := uint64(len(out))
			begin, end := part*all/parts, (part+1)*all/parts
			want := begin + scattered(part)%(end-begin)
			if want >= before+uint64(c.used) {
				break
			}
			for ; ; next++ {
				if c.where[next] == (spot{}) {
					continue
				}
				if rank == want {
					break
				}
				rank++
			}
			out = append(out, job.ID(at*chunkSize+uint64(next)))
		}
		before += uint64(c.used)
	}
	return out
}

// scattered is a number without any pattern for one that has some (the finalizer of splitmix64).
func scattered(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
