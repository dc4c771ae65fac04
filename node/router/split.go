package router

import (
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Split is over how many groups the jobs of a cluster are, as a node knows. See store.Info.
type Split struct {
	Homes, Groups, Listed uint32
	Changed               chan struct{} // closed when there is another one
}

// Follow is what follows a split, nil if there was none, by what the state of the control group says: the same one if
// that says nothing new.
func (s *Split) Follow(info store.Info) *Split {
	next := Split{Homes: info.Homes, Groups: info.Groups, Listed: max(info.Listed, info.Groups)}
	if s != nil {
		if next.Changed = s.Changed; next == *s {
			return s
		}
	}
	next.Changed = make(chan struct{})
	return &next
}

// Several says that jobs are, or may be, in more groups than one.
func (s *Split) Several() bool { return max(s.Homes, s.Listed) > 1 }

// Jobs are the groups that have jobs, or may have; none: there is one group. The control group is among them if the
// cluster began with it alone.
func (s *Split) Jobs() (out []uint32) {
	if s.Homes <= 1 && s.Several() {
		out = append(out, control)
	}
	for number := range s.Listed {
		out = append(out, number+1)
	}
	return out
}

// Place is the group that a new job is put into.
func (s *Split) Place(namespace, name, queue, key string) uint32 {
	switch {
	case queue != "": // a queue stays where it is when there are more groups
		return job.HomeOf(job.NameQueue, namespace, queue, s.Homes)
	case name != "":
		return job.PlaceOf(job.NameJob, namespace, name, s.Groups)
	}
	return job.PlaceOf(job.NameRequest, namespace, key, s.Groups)
}
