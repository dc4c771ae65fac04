package placement

import (
	"cmp"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
)

// FitSkew is how far from the majority's the clock of a node may be that is given the leadership on purpose: well
// inside of what makes a leader hold, so that an error of the measurement does not send the leadership round.
const FitSkew = stamp.MaxSkew / 2

// Why a node is unfit to lead.
const (
	UnfitClock = "clock"
	UnfitDisk  = "disk"
)

// Candidate is a member that could lead.
type Candidate struct {
	ID      string
	Off     time.Duration // from the majority's clock
	Applied uint64
	Disk    wire.DiskSpace
	Failed  bool
}

// FitToLead are the candidates that may lead instead of a node that is unfit; rest says why the others may not. own is
// how far its own clock is from the majority's.
func FitToLead(list []Candidate, why string, own time.Duration, flaps bool) (fit []Candidate, rest []string) {
	for _, c := range list {
		switch {
		case mutant.On(mutant.WrongSuccessor) && why == UnfitClock:
			fit = append(fit, c)
		case c.Off.Abs() > FitSkew:
			rest = append(rest, fmt.Sprintf("the clock of %s differs by %s from the majority's", c.ID,
				c.Off.Round(100*time.Millisecond)))
		case why == UnfitClock && !flaps && c.Off.Abs() >= own.Abs():
			rest = append(rest, "the clock of "+c.ID+" is no nearer to the majority's")
		case why == UnfitDisk && !HasRoom(c.Disk):
			rest = append(rest, c.ID+" has too little room as well")
		default:
			fit = append(fit, c)
		}
	}
	return fit, rest
}

// ByFitness orders by who should lead: one that did not fail to take over lately, has room, has the most of the log,
// and the best clock.
func ByFitness(a, b Candidate) int {
	if mutant.On(mutant.WrongSuccessor) {
		return -cmp.Compare(a.Off.Abs(), b.Off.Abs())
	}
	rank := func(yes bool) int {
		if yes {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(rank(a.Failed), rank(b.Failed)), cmp.Compare(rank(a.Disk.Low), rank(b.Disk.Low)),
		-cmp.Compare(a.Applied, b.Applied),
		cmp.Compare(a.Off.Abs(), b.Off.Abs()), cmp.Compare(a.ID, b.ID))
}

// HasRoom says that a disk has room for a leader, and some more: one just above its limit would hand over again in a
// moment.
func HasRoom(d wire.DiskSpace) bool { return d.Total > 0 && !d.Low && d.Free >= d.Limit+d.Limit/2 }
