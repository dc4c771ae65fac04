package sim

import "github.com/carillon-scheduler/carillon/proof/checker"

// Explain tells what was seen of the job of a problem.
func (r *Result) Explain(p checker.Problem) string {
	for i, group := range r.Plan.o.jobGroups() {
		if i < len(r.Groups) && uint32(p.Job.Group()) == group {
			return r.Groups[i].Explain(p)
		}
	}
	return ""
}
