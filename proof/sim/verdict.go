package sim

import "github.com/carillon-scheduler/carillon/proof/checker"

// verdict is the checker's on all groups.
func verdict(groups []checker.Input) (all checker.Report) {
	for i := range groups {
		r := checker.Check(&groups[i])
		all.Problems = append(all.Problems, r.Problems...)
		all.Jobs += r.Jobs
		all.Runs += r.Runs
		all.Attempts += r.Attempts
		all.Effects += r.Effects
		all.Occurrences += r.Occurrences
		all.NotRun += r.NotRun
		all.Repeated += r.Repeated
		all.LostWorkers += r.LostWorkers
		all.Worlds += r.Worlds
	}
	return all
}
