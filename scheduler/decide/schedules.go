package decide

import (
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// Schedules keeps schedules that were compiled: a million jobs have a few dozen of them, again and again.
type Schedules struct {
	mu   sync.Mutex
	kept map[scheduleKey]*schedule.Schedule
}

// scheduleKey is all that the schedule of most jobs depends on.
type scheduleKey struct {
	expr, zone, gap, overlap string
	start, end               job.Instant
}

// What is kept is bounded; a schedule has some hundred bytes, and its expression may have 64 KiB.
const (
	maxSchedules    = 8192
	maxScheduleText = 128
)

// Compile is Compile, for jobs that may have the schedule of another. H, @every and jitter depend on the job's number.
func (s *Schedules) Compile(spec *job.Spec, id job.ID) (*schedule.Schedule, error) {
	if spec.Jitter != 0 || len(spec.Schedule) > maxScheduleText || strings.ContainsAny(spec.Schedule, "Hh@") {
		return Compile(spec, id)
	}
	key := scheduleKey{spec.Schedule, spec.Timezone, spec.DSTGap, spec.DSTOverlap, spec.StartAt, spec.EndAt}
	s.mu.Lock()
	known := s.kept[key]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	read, err := Compile(spec, id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil || len(s.kept) >= maxSchedules {
		s.kept = map[scheduleKey]*schedule.Schedule{}
	}
	s.kept[key] = read
	return read, nil
}

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
