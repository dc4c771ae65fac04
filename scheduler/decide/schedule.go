package decide

import (
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// Compile reads a job's schedule. What a schedule's H, jitter and @every mean depends on the job's number.
func Compile(spec *job.Spec, id job.ID) (*schedule.Schedule, error) {
	return schedule.Parse(spec.Schedule, schedule.Options{
		Zone: spec.Timezone, Gap: spec.DSTGap, Overlap: spec.DSTOverlap,
		Seed: uint64(id), Jitter: time.Duration(spec.Jitter),
		StartAt: spec.StartAt.Time(), EndAt: spec.EndAt.Time(),
	})
}

// NextAfter is the first occurrence after a nominal time, for a job that has run runs times. The zero When means that
// there is none: the schedule has ended, or max_runs is reached.
func NextAfter(spec *job.Spec, sched *schedule.Schedule, runs uint32, after int64) fsm.When {
	if spec.MaxRuns > 0 && int64(runs) >= int64(spec.MaxRuns) {
		return fsm.When{}
	}
	t, ok := sched.Next(time.UnixMilli(after))
	if !ok {
		return fsm.When{}
	}
	return when(sched, t.UnixMilli())
}

func when(sched *schedule.Schedule, at int64) fsm.When {
	return fsm.When{At: at, Ready: at + sched.Delay().Milliseconds()}
}
