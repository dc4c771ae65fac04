package apitest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// What is to come is in order and complete, over pages and from a later time on: as each job's own schedule has it,
// without what calendars forbid, what max_runs ends and what is paused. The load is the same, counted.
func TestUpcomingIsWhatTheSchedulesHave(t *testing.T) {
	t.Parallel()
	n := apitest.Start(t)
	d := &day{t: t, n: n}
	ctx, rd := t.Context(), api.Read{Space: api.Space{Namespace: job.AllNamespaces, All: true}}
	now := n.Clock.Now()
	closed := schedule.Window{From: now.Add(2 * time.Hour), To: now.Add(3 * time.Hour)}
	if _, err := n.Backend.PutCalendar(ctx, schedule.Calendar{Name: "closed", Windows: []schedule.Window{closed}}, api.Request{Key: "c", Space: anywhere}); err != nil {
		t.Fatal(err)
	}
	specs := map[string]string{"minutely": "* * * * *", "often": "@every 7m", "hashed": "H/10 * * * *", "once": now.Add(90 * time.Minute).Format(time.RFC3339),
		"limited": "* * * * *", "closed": "*/3 * * * *", "jittered": "0 * * * *", "halted": "* * * * *", "manual": "@manual"}
	for name, expr := range specs {
		d.create(name, expr, "ok", func(s *job.Spec) {
			switch name {
			case "limited":
				s.MaxRuns = 4
			case "closed":
				s.Calendars = []string{"closed"}
			case "jittered":
				s.Jitter, s.Tags = job.Duration(20*time.Minute), map[string]string{"team": "a"}
			case "once":
				s.Priority = "high"
			}
		})
	}
	if _, err := n.Backend.PauseJob(ctx, "halted", api.Request{Key: "p", Space: anywhere}); err != nil {
		t.Fatal(err)
	}
	type occurrence struct {
		name string
		at   job.Instant
	}
	for _, from := range []time.Time{now, now.Add(150 * time.Minute)} {
		until := job.At(now.Add(5 * time.Hour))
		want := map[occurrence]bool{}
		starts := map[job.Instant]int64{}
		for name, expr := range specs {
			j, err := n.Backend.GetJob(ctx, name, api.Read{Space: anywhere})
			if err != nil {
				t.Fatal(err)
			}
			if name == "halted" || name == "manual" {
				continue
			}
			sched, err := schedule.Parse(expr, schedule.Options{Zone: "UTC", Seed: uint64(j.ID), Jitter: time.Duration(j.Jitter)})
			if err != nil {
				t.Fatal(err)
			}
			runs := 0
			for at, ok := sched.Next(now); ok; at, ok = sched.Next(at) {
				start := job.At(at.Add(sched.Delay()))
				if runs++; start >= until || name == "limited" && runs > 4 {
					break
				}
				if start >= job.At(from) && (name != "closed" || at.Before(closed.From) || !at.Before(closed.To)) {
					want[occurrence{name, job.At(at)}] = true
					starts[start-start%60_000]++
				}
			}
		}
		got := map[occurrence]bool{}
		last := job.Instant(0)
		q := wire.UpcomingQuery{From: job.At(from), Limit: 17}
		for done := false; !done; {
			page, err := n.Backend.Upcoming(ctx, q, rd)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range page.Occurrences {
				if done = o.StartAt >= until; done {
					break
				}
				k := occurrence{o.Name, o.ScheduledAt}
				if got[k] || o.StartAt < last || o.StartAt < o.ScheduledAt || o.Type != job.TypeShell {
					t.Errorf("twice, or out of order: %+v behind %s", o, last)
				}
				got[k], last = true, o.StartAt
			}
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				t.Fatal("it ends")
			}
		}
		for k := range want {
			if !got[k] {
				t.Errorf("from %s: %+v is missing", from, k)
			}
		}
		for k := range got {
			if !want[k] {
				t.Errorf("from %s: %+v is there", from, k)
			}
		}
		load, err := n.Backend.UpcomingLoad(ctx, wire.LoadQuery{From: job.At(from), To: until, Step: 60_000, Bucket: job.At(from.Add(time.Hour))}, rd)
		if err != nil || load.Sampled || load.ExactUntil != until || load.Scanned != len(specs) || load.Total != uint64(len(specs)) {
			t.Fatalf("%+v %v", load, err)
		}
		for _, b := range load.Buckets {
			if starts[b.At] != b.Count || b.Kind != wire.LoadExact {
				t.Errorf("from %s: %+v, want %d", from, b, starts[b.At])
			}
			delete(starts, b.At)
		}
		if len(starts) != 0 {
			t.Errorf("from %s: %v is missing", from, starts)
		}
		if top := load.Top; len(top) != 1 || len(top[0].Schedules) == 0 || top[0].Schedules[0].Count != 1 || top[0].Schedules[0].Jobs != 1 {
			t.Errorf("%+v", top)
		}
	}
	page, err := n.Backend.Upcoming(ctx, wire.UpcomingQuery{Limit: 10, Tags: map[string]string{"team": "a"}}, rd)
	if err != nil || len(page.Occurrences) != 10 || page.Occurrences[9].Name != "jittered" {
		t.Errorf("%+v %v", page, err)
	}
	page, err = n.Backend.Upcoming(ctx, wire.UpcomingQuery{Limit: 10, Job: "limited"}, api.Read{Space: anywhere})
	if err != nil || len(page.Occurrences) != 4 || page.NextCursor != "" {
		t.Errorf("%+v %v", page, err)
	}
}

// Of schedules that differ by their phase only some are computed, and the others taken to be like these; of one with very
// many occurrences the rate goes on. Both say so.
func TestLoadIsProjected(t *testing.T) {
	n := apitest.Start(t)
	d := &day{t: t, n: n}
	for i := range 140 {
		d.create(fmt.Sprint("every-", i), "@every 10m", "ok", nil)
	}
	now := n.Clock.Now()
	load := func(hours int) wire.UpcomingLoad {
		l, err := n.Backend.UpcomingLoad(t.Context(), wire.LoadQuery{From: job.At(now), To: job.At(now.Add(time.Duration(hours) * time.Hour)),
			Step: 3_600_000}, api.Read{Space: anywhere})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for i, b := range load(5).Buckets {
		if b.Kind != wire.LoadProjected || b.Count < 820 || b.Count > 860 && i > 0 {
			t.Errorf("%+v", b)
		}
	}
	d.create("seconds", "* * * * * *", "ok", nil)
	l := load(48)
	if len(l.Buckets) != 48 || l.ExactUntil != l.From {
		t.Fatalf("%+v", l)
	}
	for _, b := range l.Buckets {
		if b.Count < 3600+820 || b.Count > 3600+860 {
			t.Errorf("%+v", b)
		}
	}
}

// A bucket names the jobs that are due in it, not all that have the same schedule; and what a rate goes on from later is
// exact until then.
func TestLoadNamesWhatIsDue(t *testing.T) {
	t.Parallel()
	n := apitest.Start(t)
	d := &day{t: t, n: n}
	now := n.Clock.Now().Truncate(time.Hour).Add(time.Hour)
	minutes := map[int]map[string]bool{}
	for i := range 20 {
		name := fmt.Sprint("hashed-", i)
		d.create(name, "H * * * *", "ok", nil)
		j, err := n.Backend.GetJob(t.Context(), name, api.Read{Space: anywhere})
		if err != nil {
			t.Fatal(err)
		}
		sched, err := schedule.Parse("H * * * *", schedule.Options{Zone: "UTC", Seed: uint64(j.ID)})
		if err != nil {
			t.Fatal(err)
		}
		at, _ := sched.Next(now.Add(-time.Second))
		if minutes[at.Minute()] == nil {
			minutes[at.Minute()] = map[string]bool{}
		}
		minutes[at.Minute()][name] = true
	}
	ask := func(q wire.LoadQuery) wire.UpcomingLoad {
		l, err := n.Backend.UpcomingLoad(t.Context(), q, api.Read{Space: anywhere})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for minute, due := range minutes {
		at := job.At(now.Add(time.Duration(minute) * time.Minute))
		l := ask(wire.LoadQuery{From: at, To: at + 60_000, Step: 60_000, Bucket: at})
		if len(l.Top) != 1 || len(l.Top[0].Schedules) != 1 || l.ExactUntil != l.To {
			t.Fatalf("minute %d: %+v", minute, l)
		}
		if s := l.Top[0].Schedules[0]; s.Jobs != int64(len(due)) || s.Count != int64(len(due)) || !due[s.Example] {
			t.Errorf("minute %d: %+v, due are %v", minute, s, due)
		}
	}
	d.create("seconds", "* * * * * *", "ok", nil)
	at := job.At(now)
	if l := ask(wire.LoadQuery{From: at, To: at + 48*3_600_000, Step: 3_600_000}); l.ExactUntil < at+24*3_600_000 ||
		l.ExactUntil >= l.To {
		t.Errorf("exact until %s", l.ExactUntil)
	}
}

// Jobs that were made in a loop, one for each minute, are spread over the hour in a sample too.
func TestLoadOfASample(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	n := apitest.Start(t)
	const many = 20_000
	var lines strings.Builder
	for i := range many {
		fmt.Fprintf(&lines, `{"type":"queue","schedule":"%d * * * *","tags":{"i":"%d"},"payload":{"queue":"q"}}`+"\n", i%60, i)
	}
	for _, r := range results(t, serve(t, n.Backend, "POST", "/api/v1/jobs:bulk", nil, lines.String()).Body.String()) {
		if r.Status != "created" {
			t.Fatalf("%+v", r)
		}
	}
	from := n.Clock.Now().Add(time.Hour).Truncate(time.Hour)
	l, err := n.Backend.UpcomingLoad(t.Context(), wire.LoadQuery{From: job.At(from), To: job.At(from.Add(time.Hour)),
		Step: 60_000}, api.Read{Space: anywhere})
	if err != nil || !l.Sampled || l.Scanned != 10_000 || l.Total != many || len(l.Buckets) != 60 {
		t.Fatalf("%+v %v", l, err)
	}
	sum := int64(0)
	for _, b := range l.Buckets {
		if sum += b.Count; b.Count < many/60/2 || b.Count > many/60*2 || b.Kind != wire.LoadProjected {
			t.Errorf("%+v of %d", b, many/60)
		}
	}
	if sum < many-30 || sum > many+30 { // each is rounded
		t.Errorf("%d in all", sum)
	}
}

// A minute that many share is said to be shared, and jitter spreads it.
func TestSharingOfAMinute(t *testing.T) {
	n := apitest.Start(t)
	d := &day{t: t, n: n}
	for i := range 30 {
		d.create(fmt.Sprint("nine-", i), "0 9 * * *", "ok", nil)
	}
	for i := range 4 {
		d.create(fmt.Sprint("after-", i), "3 9 * * *", "ok", nil)
	}
	p, err := n.Backend.Preview(t.Context(), wire.PreviewRequest{Schedule: "0 9 * * *", Count: 1, Sharing: true}, api.Read{Space: anywhere})
	if err != nil || p.Sharing == nil || p.Sharing.Minute != p.Times[0].UTC || p.Sharing.Jobs != 30 || p.Sharing.Kind != wire.LoadExact {
		t.Fatalf("%+v %+v %v", p, p.Sharing, err)
	}
	want := []wire.JitterPeak{{JitterMS: 60_000, Peak: 30}, {JitterMS: 300_000, Peak: 6 + 4}, {JitterMS: 900_000, Peak: 2 + 4}, {JitterMS: 3_600_000, Peak: 1 + 4}}
	if !slices.Equal(p.Sharing.Peaks, want) {
		t.Errorf("%+v, want %+v", p.Sharing.Peaks, want)
	}
	if p, err := n.Backend.Preview(t.Context(), wire.PreviewRequest{Schedule: "@manual", Count: 1, Sharing: true}, api.Read{Space: anywhere}); err != nil || p.Sharing != nil {
		t.Errorf("%+v %v", p, err)
	}
}
