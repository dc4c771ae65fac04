package job

import "math"

// Interval is a run of occurrences that did not happen, for one reason. Consecutive ones coalesce.
type Interval struct {
	First, Last int64
	Count       int64
	AtLeast     bool // counting stopped at Count
	Status      RunStatus
	Reason      Reason
}

// Empty says that nothing is in it.
func (i Interval) Empty() bool { return i.Count == 0 }

// Add joins another interval that follows this one. It says false, and does nothing, if they are of different kinds.
func (i *Interval) Add(n Interval) bool {
	if n.Empty() {
		return true
	}
	if i.Empty() {
		*i = n
		return true
	}
	if i.Status != n.Status || i.Reason != n.Reason {
		return false
	}
	i.First = min(i.First, n.First)
	i.Last = max(i.Last, n.Last)
	if i.Count > math.MaxInt64-n.Count {
		i.Count = math.MaxInt64
	} else {
		i.Count += n.Count
	}
	i.AtLeast = i.AtLeast || n.AtLeast
	return true
}
