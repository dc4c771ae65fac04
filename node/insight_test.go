package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// The leader dies as by kill -9 between occurrences: whichever is asked, before and after, all of them are accounted for,
// by the leader and by the followers' own state.
func TestOccurrencesOverALeaderCrash(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3)
	r := newRecorder(t)
	c.awaitWorkers(3)
	old := c.leader()
	spec := r.spec("tick", "* * * * * *")
	spec["overlap"] = "allow"
	old.create(spec)
	strip := func(m *member, query string) wire.OccurrencePage {
		t.Helper()
		p := ok[wire.OccurrencePage](m.testNode, "GET", "/api/v1/jobs/tick/occurrences"+query, nil)
		if p.Summary.Unaccounted != 0 {
			t.Errorf("%s: %+v", m.id(), p)
		}
		return p
	}
	old.eventually("three ran", func() bool { return strip(old, "").Summary.Ran >= 3 })
	before := strip(old, "").Summary.Expected
	via := c.others(old)
	old.crash()
	via[0].eventually("three more ran", func() bool {
		for _, m := range via {
			strip(m, "?stale=true")
		}
		return strip(via[0], "").Summary.Ran >= before+3
	})
	ok[job.Job](via[0].testNode, "POST", "/api/v1/jobs/tick:pause", nil)
	last := strip(via[0], "")
	from, to := last.Occurrences[0].ScheduledAt, last.Occurrences[len(last.Occurrences)-1].ScheduledAt
	if want := int64(to-from)/1000 + 1; last.Summary.Expected != want {
		t.Errorf("%d expected from %s to %s, want %d", last.Summary.Expected, from, to, want)
	}
	for _, m := range via {
		m.eventually("a follower has it too", func() bool {
			return strip(m, "?stale=true&to="+to.String()).Summary.Expected == last.Summary.Expected
		})
	}
}

// check is one of the checks of an answer.
func check(t *testing.T, w wire.Why, name string) wire.Check {
	t.Helper()
	i := slices.IndexFunc(w.Checks, func(c wire.Check) bool { return c.Check == name })
	if i < 0 {
		t.Fatalf("no check %s in %+v", name, w)
	}
	return w.Checks[i]
}

// Each thing that keeps a job from running is said by its own check, and by the verdict if it is the first.
func TestWhyAJobDoesNotRun(t *testing.T) {
	t.Parallel()
	n, tg := start(t, t.TempDir()), newTarget(t)
	why := func(name string) wire.Why { return ok[wire.Why](n, "GET", "/api/v1/jobs/"+name+":why", nil) }
	order := []string{"hold", "clock", "status", "quarantine", "blackout", "due", "overlap", "concurrency", "queue", "type",
		"tags", "slots", "line"}
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	past := time.Now().Add(-time.Second).UTC().Format(time.RFC3339Nano)
	ok[any](n, "PUT", "/api/v1/calendars/closed",
		map[string]any{"windows": []map[string]any{{"from": soon.Add(-2 * time.Hour), "to": soon.Add(time.Minute)}}})
	shell := func(name, schedule, command string, more ...any) map[string]any {
		s := map[string]any{"name": name, "type": "shell", "schedule": schedule, "payload": map[string]any{"command": command}}
		for i := 0; i < len(more); i += 2 {
			s[more[i].(string)] = more[i+1]
		}
		return s
	}
	n.create(tg.spec("later", soon.Format(time.RFC3339)))
	n.create(tg.spec("paused", "* * * * * *"))
	ok[job.Job](n, "POST", "/api/v1/jobs/paused:pause", nil)
	n.create(tg.spec("closed", "0 * * * *", "calendars", []string{"closed"}))
	n.create(tg.spec("tagged", past, "workers", map[string]string{"gpu": "yes"}))
	n.create(shell("busy", "* * * * * *", "sleep 60", "overlap", "queue"))
	n.create(map[string]any{"name": "queued", "type": "queue", "schedule": past, "payload": map[string]any{"queue": "mail"}})
	n.create(map[string]any{"name": "behind", "type": "queue", "schedule": past, "payload": map[string]any{"queue": "mail"}})
	ok[any](n, "PUT", "/api/v1/queues/closed", map[string]any{"paused": true})
	n.create(map[string]any{"name": "closedqueue", "type": "queue", "schedule": past,
		"payload": map[string]any{"queue": "closed"}})
	n.create(tg.spec("byhand", "@manual"))
	n.eventually("it is busy", func() bool { return n.get("busy").OpenRuns > 0 })
	// What is run by hand waits for a worker, and not for itself.
	n.create(tg.spec("asked", "0 0 1 1 *", "workers", map[string]string{"gpu": "yes"}, "overlap", "queue"))
	n.create(tg.spec("askedpaused", "@manual", "workers", map[string]string{"gpu": "yes"}))
	ok[job.Job](n, "POST", "/api/v1/jobs/askedpaused:pause", nil)
	for _, name := range []string{"asked", "askedpaused"} {
		r := ok[job.Run](n, "POST", "/api/v1/jobs/"+name+":run", nil)
		r = ok[wire.RunDetail](n, "GET", "/api/v1/runs/"+r.RunID, nil).Run
		if r.Status != job.RunPending || !strings.Contains(r.WaitReason, "has tags gpu=yes") {
			t.Errorf("%s, run by hand: %s, waits for %q", name, r.Status, r.WaitReason)
		}
	}
	second := ok[job.Run](n, "POST", "/api/v1/jobs/asked:run", nil)
	second = ok[wire.RunDetail](n, "GET", "/api/v1/runs/"+second.RunID, nil).Run
	if second.Status != job.RunWaiting || second.WaitReason != "1 run waits for its turn: 1 run is active and overlap is queue" {
		t.Errorf("%s, waits for %q", second.Status, second.WaitReason)
	}
	for _, c := range []struct{ job, check, state, text, verdict string }{
		{"later", "due", "blocked", "due at " + soon.Format(time.RFC3339), "runs at " + soon.Format(time.RFC3339)},
		{"paused", "status", "blocked", "paused", "waits: the job is paused"},
		{"closed", "blackout", "blocked", `calendar "closed" forbids`, "waits: the calendar"},
		{"tagged", "tags", "blocked", "gpu=yes", "waits: no worker of executor http has tags gpu=yes"},
		{"tagged", "type", "ok", "type http", ""},
		{"busy", "overlap", "blocked", "overlap is queue", "waits: 1 open, and overlap is queue"},
		{"queued", "type", "blocked", "no worker takes queue mail", "waits: no worker takes queue mail"},
		{"behind", "line", "blocked", "1 runs of its kind are ahead of it", ""},
		{"queued", "line", "ok", "next one of its kind", ""},
		{"closedqueue", "queue", "blocked", "is paused", "waits: queue closed is paused"},
		{"asked", "overlap", "ok", "the open run is the one that waits",
			"waits: no worker of executor http has tags gpu=yes"},
		{"asked", "due", "ok", "(manual) is due", ""},
		{"askedpaused", "status", "ok", "started by hand", "waits: no worker of executor http has tags gpu=yes"},
		{"byhand", "due", "blocked", "no next occurrence", "there is no next occurrence"},
	} {
		w := why(c.job)
		got := check(t, w, c.check)
		if got.State != c.state || !strings.Contains(got.Text, c.text) || !strings.HasPrefix(w.Verdict, c.verdict) {
			t.Errorf("%s: %+v, verdict %q", c.job, got, w.Verdict)
		}
		var names []string
		for _, x := range w.Checks {
			names = append(names, x.Check)
		}
		if !slices.Equal(names, order) {
			t.Errorf("the checks are %q", names)
		}
	}
	if w := ok[wire.Why](n, "GET", "/api/v1/jobs/later:why?stale=true", nil); check(t, w, "hold").State != "ok" {
		t.Errorf("%+v", w)
	}
	ok[job.Job](n, "POST", "/api/v1/jobs/busy:pause", nil) // or the node waits for it when it stops
	ok[wire.CancelResult](n, "POST", "/api/v1/jobs/busy:cancel", nil)
	n.eventually("it has ended", func() bool { return n.get("busy").OpenRuns == 0 })
}
