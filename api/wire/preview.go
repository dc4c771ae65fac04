package wire

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// LocalPreview answers a PreviewRequest without a node: the CLI does so for `schedule next`, and a node for its route.
// From 0 means now; the first time is after it. Count must be set.
func LocalPreview(p PreviewRequest, now time.Time, calendars []schedule.Calendar) (PreviewResult, error) {
	zone := p.Timezone
	o := schedule.Options{
		Zone: zone, Gap: p.DSTGap, Overlap: p.DSTOverlap, Jitter: time.Duration(p.Jitter),
		StartAt: p.StartAt.Time(), EndAt: p.EndAt.Time(),
	}
	if p.JobID != nil {
		o.Seed = uint64(*p.JobID)
	}
	s, err := schedule.Parse(p.Schedule, o)
	if err != nil {
		return PreviewResult{}, ScheduleError(err)
	}
	text, err := schedule.Describe(p.Schedule, zone)
	if p.JobID != nil {
		text, err = schedule.DescribeFor(p.Schedule, zone, o.Seed)
	}
	if err != nil {
		return PreviewResult{}, ScheduleError(err)
	}
	blackouts, err := compile(p.Calendars, calendars)
	if err != nil {
		return PreviewResult{}, err
	}
	zones, err := locations(p.Zones)
	if err != nil {
		return PreviewResult{}, err
	}
	from := now
	if p.From != 0 {
		from = p.From.Time()
	}
	fires := s.Preview(from, p.Count)
	if zone == "" {
		zone = "UTC"
		if len(fires) > 0 {
			zone = fires[0].At.Location().String() // the expression may name it itself
		}
	}
	res := PreviewResult{Schedule: p.Schedule, Timezone: zone, Description: text, Times: []PreviewTime{},
		ByJob: p.JobID == nil && s.ByJob()}
	for _, f := range fires {
		at := f.At
		if p.JobID != nil { // the jitter of a job that is not there yet is not known
			at = at.Add(s.Delay())
		}
		if p.Until != 0 && job.At(at) > p.Until {
			break
		}
		t := PreviewTime{At: at.Format(timeInZone), UTC: job.At(at), Note: f.Note, Fires: !f.Skipped}
		for i, b := range blackouts {
			if b.Contains(f.At) {
				t.Fires = false
				t.Note = strings.TrimPrefix(t.Note+"; not run: calendar "+p.Calendars[i], "; ")
			}
		}
		for i, z := range zones {
			if t.Zones == nil {
				t.Zones = map[string]string{}
			}
			t.Zones[p.Zones[i]] = at.In(z).Format(timeInZone)
		}
		res.Times = append(res.Times, t)
	}
	return res, nil
}

// timeInZone is RFC 3339 with the zone's offset.
const timeInZone = "2006-01-02T15:04:05.999Z07:00"

// maxZones bounds in how many zones times are said.
const maxZones = 5

func locations(names []string) (out []*time.Location, err error) {
	if len(names) > maxZones {
		return nil, job.Invalid("zones", "ask for fewer", "%d zones, at most %d are allowed", len(names), maxZones)
	}
	for _, name := range names {
		z, err := time.LoadLocation(name)
		if err != nil || name == "" || name == "Local" {
			return nil, job.Invalid("zones", "use an IANA name such as UTC, Europe/London or America/New_York",
				"unknown time zone %q", name)
		}
		out = append(out, z)
	}
	return out, nil
}

func compile(names []string, all []schedule.Calendar) ([]*schedule.Blackout, error) {
	var out []*schedule.Blackout
	for _, name := range names {
		i := slices.IndexFunc(all, func(c schedule.Calendar) bool { return c.Name == name })
		if i < 0 {
			return nil, job.Invalid("calendars", "create it with `carillon calendars set`",
				"there is no calendar %q", name)
		}
		b, err := all[i].Compile()
		if err != nil {
			return nil, ScheduleError(err)
		}
		out = append(out, b)
	}
	return out, nil
}

// ScheduleError turns an error of package schedule into the one that travels.
func ScheduleError(err error) error {
	var e *schedule.Error
	if errors.As(err, &e) {
		field := cmp.Or(e.Field, "schedule")
		return job.Invalid(field, e.Remedy, "%s", e.Msg)
	}
	return err
}
