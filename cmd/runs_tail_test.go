package cmd

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/job"
)

// What was written comes once and in order, on standard output alone: over attempts, over gaps, over moments without a
// leader, and with the end that no part had.
func TestTailFollows(t *testing.T) {
	answers := []any{
		job.RunOutput{Status: job.RunPending},
		job.RunOutput{Status: job.RunPending},
		job.RunOutput{Status: job.RunRunning, Attempt: 1, Fence: 7},
		job.RunOutput{Status: job.RunRunning, Attempt: 1, Fence: 7, Next: 4, Text: "one\n"},
		job.Errorf(job.CodeNoLeader, "try again", "there is no leader right now"),
		job.RunOutput{Status: job.RunRunning, Attempt: 1, Fence: 7, Offset: 4, Next: 8, Text: "two\n"},
		job.RunOutput{Status: job.RunRunning, Attempt: 1, Fence: 7, Offset: 8, Next: 8},
		job.RunOutput{Status: job.RunRunning, Attempt: 1, Fence: 7, Offset: 108, Next: 112, Text: "far\n"},
		job.RunOutput{Status: job.RunRetrying, Attempt: 1, Fence: 7, Offset: 112, Next: 112},
		job.RunOutput{Status: job.RunRunning, Attempt: 2, Fence: 9, Next: 6, Text: "again\n"},
		job.RunOutput{Status: job.RunDead, Attempt: 2, Fence: 9, Next: 11, Text: "again\nend\n", Done: true},
	}
	var asked [][2]string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, [2]string{r.URL.Query().Get("fence"), r.URL.Query().Get("after")})
		if len(answers) == 0 {
			t.Error("asked after the end")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		a := answers[0]
		answers = answers[1:]
		w.Header().Set("Content-Type", "application/json")
		if e, ok := a.(*job.Error); ok {
			w.WriteHeader(http.StatusServiceUnavailable)
			a = client.Problem{Status: 503, Error: *e}
		} else {
			o := a.(job.RunOutput)
			o.RunID = "r"
			a = o
		}
		if err := json.NewEncoder(w).Encode(a); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	s := &shell{t: t, addr: srv.Listener.Addr().String(), env: map[string]string{}}
	out, errOut, code := s.run("", "runs", "tail", "--follow", "r")
	if out != "one\ntwo\nfar\nagain\nend\n" || code != 0 {
		t.Errorf("%d %q", code, out)
	}
	const want = "--- the run is pending: no worker has it right now\n" +
		"--- the run is running and has written nothing yet\n" +
		"--- 100 bytes were written too fast to follow\n" +
		"--- the run is retrying: no worker has it right now\n" +
		"--- attempt 2\n" +
		"--- the run is dead\n"
	if errOut != want {
		t.Errorf("%q", errOut)
	}
	for i, a := range asked[3:] {
		if _, err := strconv.ParseUint(a[0], 10, 64); err != nil || a[1] == "" {
			t.Errorf("request %d asked for %v", i+3, a)
		}
	}
}

// leaderless is a node that cannot ask for the output of a run.
type leaderless struct{ api.Backend }

func (leaderless) RunOutput(context.Context, string, uint64, int64, api.Read) (job.RunOutput, error) {
	return job.RunOutput{}, job.Errorf(job.CodeNoLeader, "start one of them", "no leader: 2 of 3 voters are unreachable")
}

// There is no leader for longer than a client tries: it ends, with the reason.
func TestTailEndsWithoutALeader(t *testing.T) {
	s := newShell(t)
	s.wrap = func(b api.Backend) api.Backend { return leaderless{b} }
	_, errOut, code := s.run("", "runs", "tail", "--follow",
		job.RunKey{Job: 1, At: noon.UnixMilli(), Origin: job.OriginSchedule}.String())
	if code != exit.Unavailable || errOut != "error: no leader: 2 of 3 voters are unreachable\nhint: start one of them\n" {
		t.Errorf("%d %q", code, errOut)
	}
}

// Who follows a job after asking for a run of it follows that run, though it has not begun, and not the one before.
func TestLogsPicksARun(t *testing.T) {
	run := func(id string, s job.RunStatus, started, ready job.Instant) job.Run {
		return job.Run{RunID: id, Status: s, StartedAt: started, ReadyAt: ready}
	}
	ended, older := run("ended", job.RunSucceeded, 200, 190), run("older", job.RunSucceeded, 100, 90)
	for name, c := range map[string]struct {
		runs         []job.Run
		shown, later string // without and with --follow
	}{
		"nothing":            {nil, "", ""},
		"finished":           {[]job.Run{older, ended}, "ended", "ended"},
		"just asked for":     {[]job.Run{run("new", job.RunPending, 0, 300), ended}, "ended", "new"},
		"claimed":            {[]job.Run{run("new", job.RunClaimed, 0, 300), ended}, "ended", "new"},
		"running":            {[]job.Run{run("new", job.RunRunning, 301, 300), ended}, "new", "new"},
		"beside another":     {[]job.Run{run("first", job.RunRunning, 250, 250), run("new", job.RunPending, 0, 300)}, "first", "new"},
		"behind another":     {[]job.Run{run("first", job.RunRunning, 250, 250), run("new", job.RunWaiting, 0, 0)}, "first", "first"},
		"of a job on hold":   {[]job.Run{run("held", job.RunWaiting, 0, 0), ended}, "ended", "held"},
		"of past times":      {[]job.Run{run("fill", job.RunPending, 0, 150), ended}, "ended", "fill"},
		"none that ran":      {[]job.Run{{Status: job.RunSkipped, First: 1, Last: 2, Count: 2}}, "", ""},
		"an expired one":     {[]job.Run{run("late", job.RunExpired, 0, 300), ended}, "ended", "ended"},
		"between attempts":   {[]job.Run{run("again", job.RunRetrying, 250, 900), ended}, "again", "again"},
		"asked for and over": {[]job.Run{run("new", job.RunSucceeded, 300, 299), ended}, "new", "new"},
	} {
		if got := newestRun(c.runs, false).RunID; got != c.shown {
			t.Errorf("%s: %q is shown, want %q", name, got, c.shown)
		}
		if got := newestRun(c.runs, true).RunID; got != c.later {
			t.Errorf("%s: %q is followed, want %q", name, got, c.later)
		}
	}
}
