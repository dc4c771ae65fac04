package wire

import (
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

// NumberBits is where the group of a number among all groups begins. Numbers stay below 2^53, for those that read JSON
// numbers as floats, and those of group 0 stay as they are.
const NumberBits = 46

// Seqs say how far an export has come: the highest number of each Raft group of the cluster, in any order. With one
// group that is the number of the last line.
type Seqs []uint64

// ParseSeqs reads numbers with commas between them.
func ParseSeqs(text string) (all Seqs, err error) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return nil, job.Invalid("after", "use the seq of the last line you have, or with several groups the "+
				"highest of each, separated by commas", "%q is not a sequence number", part)
		}
		all.Add(n)
	}
	return all, nil
}

// Add notes a line.
func (s *Seqs) Add(n uint64) {
	i := slices.IndexFunc(*s, func(have uint64) bool { return have>>NumberBits == n>>NumberBits })
	if i < 0 {
		*s = append(*s, n)
		return
	}
	(*s)[i] = max((*s)[i], n)
}

// Own is the number within the one group that they are about.
func (s Seqs) Own() uint64 {
	if len(s) == 0 {
		return 0
	}
	return slices.Max(s)
}

func (s Seqs) String() string {
	texts := make([]string, len(s))
	for i, n := range s {
		texts[i] = strconv.FormatUint(n, 10)
	}
	return strings.Join(texts, ",")
}
