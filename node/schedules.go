package node

import (
	"sync"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/scheduler"
)

// schedules keeps schedules that were read: those of a bulk load are a few, again and again.
type schedules struct {
	mu   sync.Mutex
	kept map[scheduler.ScheduleKey]*schedule.Schedule
}

// maxSchedules bounds it; a schedule has some hundred bytes, and its expression at most 64 KiB.
const (
	maxSchedules    = 8192
	maxScheduleText = 128
)

func newSchedules() *schedules {
	return &schedules{kept: map[scheduler.ScheduleKey]*schedule.Schedule{}}
}

// compile reads a job's schedule.
func (s *schedules) compile(spec *job.Spec, id job.ID) (*schedule.Schedule, error) {
	key, shared := scheduler.SharedSchedule(spec)
	if !shared || len(spec.Schedule) > maxScheduleText {
		return compile(spec, id)
	}
	s.mu.Lock()
	known := s.kept[key]
	s.mu.Unlock()
	if known != nil {
		return known, nil
	}
	read, err := compile(spec, id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.kept) >= maxSchedules {
		clear(s.kept)
	}
	s.kept[key] = read
	return read, nil
}
