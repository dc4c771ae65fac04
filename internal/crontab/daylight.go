package crontab

import (
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/schedule"
)

// Daylight saving under cron: a job with a wildcard in minute or hour follows the wall clock, and so has nothing in an
// hour that is left out and runs in both of an hour that comes twice. Any other runs right after the hour that is left
// out, and in the first of the two.
const (
	gapSkip, gapAfter         = "skip", "run_after"
	overlapFirst, overlapBoth = "first", "both"
)

// daylight sets what makes the job keep to that, where the defaults do not in its zone.
func daylight(l *Line, wild bool, now time.Time) {
	s := l.Job
	gap, overlap := gapAfter, overlapFirst
	if wild {
		gap, overlap = gapSkip, overlapBoth
	}
	want, err := around(s.Schedule, s.Timezone, gap, overlap, now)
	if err != nil {
		l.fail("%v", err)
		return
	}
	for _, o := range [][2]string{{"", ""}, {gap, ""}, {"", overlap}, {gap, overlap}} {
		if got, err := around(s.Schedule, s.Timezone, o[0], o[1], now); err == nil && slices.Equal(got, want) {
			s.DSTGap, s.DSTOverlap = o[0], o[1]
			break
		}
	}
	if !wild && severalInGap(s.Schedule, s.Timezone, now) {
		l.note("where the clock goes forward cron makes up for every run that is left out; Carillon runs once")
	}
}

// changes are when the offset of a zone changes in the ten years from now: some rules change with the year.
func changes(zone string, now time.Time) (at []time.Time, delta []time.Duration) {
	loc, err := time.LoadLocation(zone)
	if err != nil {
		return nil, nil
	}
	for t := now.In(loc); t.Before(now.AddDate(10, 0, 0)); {
		_, end := t.ZoneBounds()
		if end.IsZero() {
			break
		}
		_, before := end.Add(-time.Second).Zone()
		_, after := end.Zone()
		at, delta = append(at, end), append(delta, time.Duration(after-before)*time.Second)
		t = end
	}
	return at, delta
}

// around are the times of a schedule in the hours around the changes of its zone.
func around(expr, zone, gap, overlap string, now time.Time) ([]int64, error) {
	// H, @every and jitter depend on the job's id, which is not known: any will do.
	s, err := schedule.Parse(expr, schedule.Options{Zone: zone, Gap: gap, Overlap: overlap, Seed: 1})
	if err != nil {
		return nil, err
	}
	var out []int64
	times, _ := changes(zone, now)
	for _, at := range times {
		end := at.Add(4 * time.Hour)
		for t, ok := s.Next(at.Add(-4 * time.Hour)); ok && t.Before(end); t, ok = s.Next(t) {
			out = append(out, t.Unix())
		}
	}
	return out, nil
}

// severalInGap says whether an hour that is left out holds more than one time of a schedule.
func severalInGap(expr, zone string, now time.Time) bool {
	s, err := schedule.Parse(expr, schedule.Options{Zone: "UTC", Seed: 1})
	if err != nil {
		return false
	}
	times, deltas := changes(zone, now)
	for i, at := range times {
		if deltas[i] <= 0 {
			continue
		}
		_, offset := at.Zone()
		to := time.Unix(at.Unix()+int64(offset), 0) // the wall clock after the change, read as UTC
		if n, _ := s.Count(to.Add(-deltas[i]-time.Second), to.Add(-time.Second), 2); n > 1 {
			return true
		}
	}
	return false
}
