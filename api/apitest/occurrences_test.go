package apitest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// pump carries runs out as the payload says: "ok", "fail" or "slow", which takes some steps of the test's clock.
type pump struct {
	t    *testing.T
	n    *apitest.Node
	stop context.CancelFunc
	done sync.WaitGroup
}

func newPump(t *testing.T, n *apitest.Node) *pump {
	ctx, stop := context.WithCancel(t.Context())
	p := &pump{t: t, n: n, stop: stop}
	w := n.Register(t, job.Poll{Worker: "w", Secret: "s", Types: []job.Type{job.TypeShell}, Slots: 100})
	p.done.Go(func() { p.run(ctx, w.Session) })
	return p
}

func (p *pump) run(ctx context.Context, session string) {
	began := map[uint64]job.Instant{} // of the slow ones, by fence
	for ctx.Err() == nil {
		r, err := p.n.Options.Workers.Poll(ctx, job.Poll{Session: session, Types: []job.Type{job.TypeShell}, Free: 50, Wait: job.Duration(2 * time.Millisecond)})
		if err != nil {
			return
		}
		session = r.Session
		now := job.At(p.n.Clock.Now())
		var done []job.Result
		for _, a := range r.Runs {
			var payload struct{ Command string }
			if err := json.Unmarshal(a.Payload, &payload); err != nil {
				p.t.Error(err)
			}
			result := job.Result{Ref: job.Ref{Fence: a.Fence}, Outcome: job.OutcomeSucceeded, StartedAt: now, FinishedAt: now}
			switch payload.Command {
			case "slow":
				began[a.Fence] = now
				continue
			case "fail":
				result.Outcome = job.OutcomeFailed
			}
			done = append(done, result)
		}
		beat := job.Heartbeat{Session: session}
		for fence, at := range began {
			if now < at+3500 {
				beat.Runs = append(beat.Runs, job.Ref{Fence: fence})
				continue
			}
			done = append(done, job.Result{Ref: job.Ref{Fence: fence}, Outcome: job.OutcomeSucceeded, StartedAt: at, FinishedAt: now})
			delete(began, fence)
		}
		if len(done) > 0 {
			if _, err := p.n.Options.Workers.Report(ctx, job.Report{Session: session, Results: done}); err != nil {
				return
			}
		}
		if _, err := p.n.Options.Workers.Heartbeat(ctx, beat); err != nil {
			return
		}
	}
}

func (p *pump) end() {
	p.stop()
	p.done.Wait()
}

// day is a script over a node: every second has what a day has.
type day struct {
	t    *testing.T
	n    *apitest.Node
	jobs []string
}

var anywhere = api.Space{All: true}

func (d *day) create(name, schedule, command string, change func(*job.Spec)) {
	d.t.Helper()
	spec := job.Spec{Name: name, Namespace: job.DefaultNamespace, Type: job.TypeShell, Schedule: schedule,
		Payload: fmt.Appendf(nil, `{"command":%q}`, command)}
	if change != nil {
		change(&spec)
	}
	if _, _, err := d.n.Backend.CreateJob(d.t.Context(), spec, api.Request{Key: "create-" + name, Space: anywhere}); err != nil {
		d.t.Fatal(err)
	}
	d.jobs = append(d.jobs, name)
}

// strips are the occurrences of all jobs; none is unaccounted, whenever one looks.
func (d *day) strips() map[string]wire.OccurrencePage {
	d.t.Helper()
	out := map[string]wire.OccurrencePage{}
	for _, name := range d.jobs {
		page, err := d.n.Backend.Occurrences(d.t.Context(), name, wire.OccurrenceQuery{Limit: 5000}, api.Read{Space: anywhere})
		if err != nil {
			d.t.Fatal(err)
		}
		s := page.Summary
		if s.Unaccounted != 0 || s.Expected != s.Ran+s.Open+s.Explained {
			for _, o := range page.Occurrences {
				if o.Fate == wire.FateUnaccounted {
					d.t.Errorf("%s at %s: %+v", name, d.n.Clock.Now(), o)
				}
			}
			d.t.Fatalf("%s: %+v", name, s)
		}
		out[name] = page
	}
	return out
}

// pass lets seconds pass, each once all that is due was dealt with, and looks at all jobs meanwhile.
func (d *day) pass(seconds int) {
	d.t.Helper()
	for range seconds {
		d.n.Clock.Advance(time.Second)
		limit := time.Now().Add(time.Minute)
		for {
			waits := ""
			now := job.At(d.n.Clock.Now())
			for name, page := range d.strips() {
				for _, o := range page.Occurrences {
					slow := name == "skips" || name == "queues" || name == "replaces"
					if name != "unpolled" && o.ScheduledAt <= now && (o.Reason == "due" || o.Fate == wire.FateRunning && !slow) {
						waits = name
					}
				}
			}
			if waits == "" {
				break
			}
			if time.Now().After(limit) {
				d.t.Fatalf("%s waits and waits", waits)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// Over a day with everything in it each occurrence has a fate, and it is the right one.
func TestEveryOccurrenceHasAFate(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	t.Parallel()
	dir := t.TempDir()
	n, err := apitest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := &day{t: t, n: n}
	rq := func(key string) api.Request { return api.Request{Key: key, Space: anywhere} }
	noon := n.Clock.Now()
	if _, err := n.Backend.PutCalendar(t.Context(), schedule.Calendar{Name: "lunch", Windows: []schedule.Window{
		{From: noon.Add(4 * time.Second), To: noon.Add(9 * time.Second)}}}, rq("calendar")); err != nil {
		t.Fatal(err)
	}
	p := newPump(t, n)
	one := 1
	none := 0
	d.create("plain", "* * * * * *", "ok", nil)
	d.create("skips", "* * * * * *", "slow", func(s *job.Spec) { s.Overlap = job.OverlapSkip })
	d.create("queues", "*/2 * * * * *", "slow", func(s *job.Spec) { s.Overlap = job.OverlapQueue })
	d.create("replaces", "* * * * * *", "slow", func(s *job.Spec) { s.Overlap = job.OverlapReplace })
	d.create("closed", "* * * * * *", "ok", func(s *job.Spec) { s.Calendars = []string{"lunch"} })
	d.create("unpolled", "* * * * * *", "ok", func(s *job.Spec) {
		s.Deadline, s.Workers = job.Duration(2*time.Second), map[string]string{"gpu": "yes"}
	})
	d.create("fails", "*/5 * * * * *", "fail", func(s *job.Spec) {
		s.Retry.MaxRetries, s.Retry.Base = &one, job.Duration(time.Second)
	})
	d.create("dies", "*/5 * * * * *", "fail", func(s *job.Spec) { s.Retry.MaxRetries = &none })
	d.create("some", "* * * * * *", "ok", func(s *job.Spec) { s.MaxRuns = 4 })
	d.create("once", noon.Add(3*time.Second).Format(time.RFC3339), "ok", func(s *job.Spec) { s.Retention = job.Duration(time.Hour) })
	d.create("jitter", "*/3 * * * * *", "ok", func(s *job.Spec) { s.Jitter = job.Duration(2 * time.Second) })
	d.create("paused", "* * * * * *", "ok", nil)
	d.create("edited", "* * * * * *", "ok", nil)
	d.create("catches", "*/10 * * * * *", "ok", func(s *job.Spec) {
		s.Missed.Policy, s.Missed.Window, s.Missed.Max = job.MissedRunAll, "1h", 3
	})
	d.pass(5)
	for _, name := range []string{"paused", "unpolled"} {
		if _, err := n.Backend.PauseJob(t.Context(), name, rq("pause-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	d.pass(4)
	if _, err := n.Backend.ResumeJob(t.Context(), "paused", rq("resume-1")); err != nil {
		t.Fatal(err)
	}
	j, err := n.Backend.GetJob(t.Context(), "edited", api.Read{Space: anywhere})
	if err != nil {
		t.Fatal(err)
	}
	j.Schedule = "*/3 * * * * *"
	if _, err := n.Backend.UpdateJob(t.Context(), "edited", j.Spec, 0, rq("edit")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Backend.ResumeJob(t.Context(), "unpolled", rq("resume-2")); err != nil {
		t.Fatal(err)
	}
	d.pass(6)
	// A night without a leader, longer than anybody's grace.
	p.end()
	now := n.Clock.Now()
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	if d.n, err = apitest.Open(dir, apitest.At(now.Add(10*time.Minute))); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.n.Stop(); err != nil {
			t.Error(err)
		}
	}()
	p = newPump(t, d.n)
	defer p.end()
	d.strips()
	d.pass(6)

	strips := d.strips()
	fates := map[string]map[string]int64{}
	for name, page := range strips {
		fates[name] = map[string]int64{}
		for _, o := range page.Occurrences {
			if o.Fate != wire.FateUpcoming {
				fates[name][o.Fate+" "+o.Reason] += o.Count
			}
		}
	}
	const seconds = 15 + 600 + 6
	for name, want := range map[string][]string{
		"plain":    {"succeeded ", "missed outage"},
		"skips":    {"succeeded ", "skipped overlap", "missed outage"},
		"queues":   {"succeeded ", "waiting overlap"},
		"replaces": {"canceled replaced"},
		"closed":   {"succeeded ", "blackout blackout", "missed outage"},
		"unpolled": {"expired deadline", "paused paused"},
		"fails":    {"dead retries_exhausted"},
		"dies":     {"dead retries_exhausted"},
		"paused":   {"succeeded ", "paused paused"},
		"jitter":   {"succeeded "},
		"catches":  {"succeeded ", "missed outage"},
	} {
		for _, w := range want {
			if fates[name][w] == 0 {
				t.Errorf("%s: no %q in %v", name, w, fates[name])
			}
		}
	}
	for name, want := range map[string]int64{"plain": seconds, "skips": seconds, "closed": seconds, "paused": seconds,
		"unpolled": seconds, "replaces": seconds, "some": 4, "once": 1} {
		if got := strips[name].Summary; got.Expected != want {
			t.Errorf("%s: %+v, want %d expected: %v", name, got, want, fates[name])
		}
	}
	if got := fates["closed"]["blackout blackout"]; got != 5 {
		t.Errorf("%d of the calendar", got)
	}
	if got := fates["paused"]["paused paused"]; got != 4 {
		t.Errorf("%d paused", got)
	}
	if page := strips["edited"]; page.KnownFrom.Time().Before(noon.Add(8*time.Second)) || page.Summary.Ran < 9+2 {
		t.Errorf("edited: known from %s, %+v", page.KnownFrom, page.Summary)
	}
	// Pages of a strip are the strip.
	var paged []wire.Occurrence
	for cursor := ""; ; {
		page, err := d.n.Backend.Occurrences(t.Context(), "plain", wire.OccurrenceQuery{Limit: 100, Cursor: cursor}, api.Read{Space: anywhere})
		if err != nil {
			t.Fatal(err)
		}
		if paged = append(slices.Clone(page.Occurrences), paged...); page.NextCursor == "" {
			break
		}
		cursor = page.NextCursor
	}
	if all := strips["plain"].Occurrences; len(paged) != len(all) {
		t.Errorf("%d in pages, %d in one", len(paged), len(all))
	}
	// Put together they have the same sum, and what is to come is beside them.
	few, err := d.n.Backend.Occurrences(t.Context(), "plain", wire.OccurrenceQuery{Cells: 3}, api.Read{Space: anywhere})
	if err != nil {
		t.Fatal(err)
	}
	var many, coming int64
	for _, o := range few.Occurrences {
		if o.Fate == wire.FateUpcoming {
			coming++
		} else {
			many += o.Count
		}
	}
	if want := strips["plain"].Summary; few.Summary != want || many != want.Expected || coming != want.Upcoming ||
		len(few.Occurrences) != 3+int(coming) {
		t.Errorf("put together: %+v, %d and %d to come in %d cells; %+v in all", few.Summary, many, coming,
			len(few.Occurrences), want)
	}
	stats, err := d.n.Backend.JobStats(t.Context(), "plain", api.Read{Space: anywhere})
	if err != nil || stats.Succeeded != stats.Runs || stats.Runs < 20 || len(stats.Last) != 20 || *stats.SuccessRate != 1 {
		t.Errorf("%+v %v", stats, err)
	}
	if stats, err = d.n.Backend.JobStats(t.Context(), "dies", api.Read{Space: anywhere}); err != nil || stats.Failed == 0 || *stats.SuccessRate != 0 {
		t.Errorf("%+v %v", stats, err)
	}
}

// Until the year 9999 a job has billions of occurrences. The answer has the first ones, and says how far they reach.
func TestOccurrencesToComeAreBounded(t *testing.T) {
	t.Parallel()
	n := apitest.Start(t)
	c := client.New(n.Addr())
	j, err := c.CreateJob(t.Context(), job.Spec{Name: "often", Type: job.TypeShell, Schedule: "* * * * * *", Payload: []byte(`{"command":"true"}`)})
	if err != nil {
		t.Fatal(err)
	}
	far := job.At(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, q := range []client.OccurrenceQuery{{To: far}, {To: far, Cells: 10}} {
		page, err := c.Occurrences(t.Context(), j.ID.String(), q)
		if err != nil {
			t.Fatal(err)
		}
		if page.Summary.Upcoming != 10_000 || page.To >= far || int64(page.To-job.At(n.Clock.Now())) > 10_001_000 {
			t.Errorf("%+v up to %s", page.Summary, page.To)
		}
	}
}
