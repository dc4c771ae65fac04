package sim

import "github.com/carillon-scheduler/carillon/proof/checker"

// Explain tells what was seen of the job of a problem.
func (r *Result) Explain(p checker.Problem) string { return r.Input.Explain(p) }
