package client

import (
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/worker"
)

// listEvery is how often a worker that is no node looks for more groups.
const listEvery = 10 * time.Second

// FindGroups is the groups of a cluster, for a worker that takes runs of all of them. Any node says which there are.
// hangUp gives up connections, when the worker has ended.
func FindGroups(addrs []string, opts ...LeaderOption) (groups worker.Groups, hangUp func()) {
	all := []*Leader{NewLeader(addrs, opts...)}
	groups = worker.Groups{List: all[0].Groups, Every: listEvery, Leader: func(group uint32) worker.Leader {
		l := NewLeader(addrs, append(slices.Clone(opts), WithGroup(group))...)
		all = append(all, l)
		return l
	}}
	return groups, func() {
		for _, l := range all {
			l.Close()
		}
	}
}
