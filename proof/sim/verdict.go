package sim

import "github.com/carillon-scheduler/carillon/proof/checker"

// verdict is the checker's.
func verdict(in checker.Input) checker.Report { return checker.Check(&in) }
