// Package daylight makes a job that comes from another scheduler keep to what that one did where the clock changes.
package daylight

import (
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// What a job does with a time that is left out, and with one that comes twice.
const (
	GapSkip, GapAfter         = "skip", "run_after"
	OverlapFirst, OverlapBoth = "first", "both"
)

// years is how far the changes of a zone are looked at: some rules change with the year.
const years = 10

// Keep sets dst_gap and dst_overlap of a job, as far as the defaults do something else in its zone.
func Keep(s *job.Spec, gap, overlap string, now time.Time) error {
	at, _ := changes(s.Timezone, now)
	want, err := around(s, gap, overlap, at)
	if err != nil {
		return err
	}
	for _, o := range [][2]string{{"", ""}, {gap, ""}, {"", overlap}, {gap, overlap}} {
		got, err := around(s, o[0], o[1], at)
		if err != nil {
			return err
		}
		if slices.Equal(got, want) {
			s.DSTGap, s.DSTOverlap = o[0], o[1]
			break
		}
	}
	return nil
}

// changes are when the offset of a zone changes, and by how much.
func changes(zone string, now time.Time) (at []time.Time, by []time.Duration) {
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, nil
	}
	for t := now.In(loc); t.Before(now.AddDate(years, 0, 0)); {
		_, end := t.ZoneBounds()
		if end.IsZero() {
			break
		}
		_, before := end.Add(-time.Second).Zone()
		_, after := end.Zone()
		at, by = append(at, end), append(by, time.Duration(after-before)*time.Second)
		t = end
	}
	return at, by
}

// around are the times of a job in the hours around some changes. H, @every and jitter depend on the id of the job,
// which it does not have yet: any will do.
func around(j *job.Spec, gap, overlap string, at []time.Time) ([]int64, error) {
	s, err := schedule.Parse(j.Schedule, schedule.Options{Zone: j.Timezone, Gap: gap, Overlap: overlap, Seed: 1})
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, c := range at {
		end := c.Add(4 * time.Hour)
		for t, ok := s.Next(c.Add(-4 * time.Hour)); ok && t.Before(end); t, ok = s.Next(t) {
			if !s.Skipped(t) {
				out = append(out, t.Unix())
			}
		}
	}
	return out, nil
}

// SeveralInGap says whether some hour that is left out holds more than one time of a job.
func SeveralInGap(j *job.Spec, now time.Time) bool {
	s, err := schedule.Parse(j.Schedule, schedule.Options{Zone: "UTC", Seed: 1})
	if err != nil {
		return false
	}
	times, by := changes(j.Timezone, now)
	for i, at := range times {
		if by[i] <= 0 {
			continue
		}
		_, offset := at.Zone()
		to := time.Unix(at.Unix()+int64(offset), 0) // the wall clock after the change, read as UTC
		if n, _ := s.Count(to.Add(-by[i]-time.Second), to.Add(-time.Second), 2); n > 1 {
			return true
		}
	}
	return false
}
