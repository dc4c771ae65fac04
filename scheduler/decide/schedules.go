package decide

import (
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/store"
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

// Missing is the occurrence that a job has to have before it and has not; the zero When if it has all that it should.
// It is the one rule about which jobs need an entry in the due index. A job whose state is there is the business of the
// scheduler. A job without one is right if it is paused or in quarantine, if it is manual, if its one-off was canceled,
// or if nothing of its schedule is left: after the last occurrence that is accounted for, within end_at and max_runs.
// Open runs, the overlap policy, dead letters and a hold move no occurrence without naming the next one.
func Missing(def *store.Definition, sched *schedule.Schedule, s *store.State, p store.Place) fsm.When {
	if !p.Parked || s.Paused || s.Quarantined || s.Manual || s.Canceled {
		return fsm.When{}
	}
	follows := def.Follows
	if follows == 0 && sched.Kind() != schedule.Instant { // a one-off may be made for a time in the past
		follows = def.CreatedAt
	}
	return NextAfter(&def.Spec, sched, s.Runs, max(s.LastNominal, follows))
}
