package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// sums are values of series, by name and the values of some labels.
type sums map[string]float64

// summed are the metrics that are held against the API, and the labels that count.
var summed = map[string][]string{
	"carillon_runs_total": {"status"}, "carillon_attempts_total": {"status"}, "carillon_not_run_total": {"reason"},
	"carillon_jobs": nil, "carillon_dead_letters": nil, "carillon_open_runs": nil,
}

// scrape adds the metrics of a node.
func (s sums) scrape(t *testing.T, n *harness.Node) error {
	t.Helper()
	all, err := families(n)
	if err != nil {
		return err
	}
	for name, labels := range summed {
		for _, m := range all[name].GetMetric() {
			key := name
			for _, l := range m.GetLabel() {
				for _, want := range labels {
					if l.GetName() == want {
						key += " " + l.GetValue()
					}
				}
			}
			s[key] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return nil
}

func families(n *harness.Node) (map[string]*dto.MetricFamily, error) {
	text, err := n.Client.Metrics(context.Background())
	if err != nil {
		return nil, err
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	return p.TextToMetricFamilies(bytes.NewReader(text))
}

// counters leaves those that are counted.
func (s sums) counters() sums {
	out := sums{}
	for k, v := range s {
		if strings.Contains(k, "_total") && v != 0 {
			out[k] = v
		}
	}
	return out
}

// history is what the API says of all that ended.
func history(t *testing.T, c *client.Client) (sums, error) {
	t.Helper()
	out := sums{}
	type attempt struct {
		run    string
		number int
	}
	seen := map[attempt]bool{}
	err := c.ExportHistory(context.Background(), nil, 0, func(r job.Run, _ json.RawMessage) error {
		switch {
		case r.Count > 0:
			out["carillon_not_run_total "+r.Reason.String()] += float64(r.Count)
			return nil
		case r.Status != job.RunFailed:
			out["carillon_runs_total "+r.Status.String()]++
		}
		// One that was canceled between two attempts has the number of the one before.
		a := attempt{r.RunID, r.Attempt}
		if r.Attempt == 0 || seen[a] {
			return nil
		}
		seen[a] = true
		status := r.Status
		switch {
		case r.Reason == job.ReasonWorkerLost:
			status = job.RunLost
		case status == job.RunDead:
			status = job.RunFailed
		}
		out["carillon_attempts_total "+status.String()]++
		return nil
	})
	return out, err
}

// TestMetricsAddUp puts a load of known size on three nodes, kills the leader in the middle of it, and holds the sums
// of what the nodes say against the history and against what the target saw.
func TestMetricsAddUp(t *testing.T) {
	scenario(t)
	var blocked atomic.Int32
	release := make(chan struct{})
	target := harness.NewTarget(t)
	target.Behave(func(s harness.Seen) (time.Duration, int) {
		switch {
		case strings.HasPrefix(s.Token, "fails"), strings.HasPrefix(s.Token, "flaky") && s.Attempt == 1:
			return 0, http.StatusInternalServerError
		case strings.HasPrefix(s.Token, "blocks"):
			blocked.Add(1)
			<-release
		case strings.HasPrefix(s.Token, "hangs"):
			return time.Hour, http.StatusOK
		}
		return 0, http.StatusOK
	})
	cl := harness.NewClusterAt(t, harness.Build(t), 3, func(i int, n *harness.Node) {
		n.Flags = append(n.Flags, "--tags", fmt.Sprintf("at=n%d", i+1))
	})
	ctx := context.Background()
	api := cl.Nodes[1].Client
	spec := func(token string, change ...func(*job.Spec)) job.Spec {
		s := job.Spec{Name: token, Type: job.TypeHTTP, Schedule: job.ScheduleManual,
			Payload: json.RawMessage(fmt.Sprintf(`{"url":%q}`, target.URL+"/"+token)),
			Retry:   job.Retry{MaxRetries: new(2), Backoff: "immediate"}}
		for _, c := range change {
			c(&s)
		}
		return s
	}
	try := func(what string, f func() error) { // leadership may move at any time
		t.Helper()
		harness.Eventually(t, time.Minute, what, func() bool {
			err := f()
			if err != nil {
				t.Logf("%s: %v", what, err)
			}
			return err == nil
		})
	}
	create := func(s job.Spec) {
		t.Helper()
		try("create "+s.Name, func() error {
			_, err := api.CreateJob(ctx, s)
			if job.CodeOf(err) == job.CodeDuplicateName {
				return nil
			}
			return err
		})
	}
	run := func(name string, n int) {
		t.Helper()
		for range n {
			try("run "+name, func() error { _, err := api.RunJob(ctx, name); return err })
		}
	}
	open := func() (n int) {
		t.Helper()
		try("status", func() error { s, err := api.Status(ctx); n = s.OpenRuns; return err })
		return n
	}
	settled := func(left int) {
		t.Helper()
		harness.Eventually(t, 2*time.Minute, fmt.Sprintf("%d runs open", left), func() bool { return open() == left })
	}

	// What is to increase is there before it does.
	for _, n := range cl.Nodes {
		all, err := families(n)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, m := range all["carillon_runs_total"].GetMetric() {
			text := m.String()
			found = found || strings.Contains(text, `"dead"`) && strings.Contains(text, `"http"`)
			if m.GetCounter().GetValue() != 0 {
				t.Errorf("%s: %s", n.ID, text)
			}
		}
		if !found {
			t.Errorf("%s does not say that no run is dead", n.ID)
		}
	}

	for _, name := range []string{"works", "fails", "flaky", "hangs"} {
		create(spec(name, func(s *job.Spec) { s.Overlap = job.OverlapQueue }))
	}
	create(spec("hangs-every", func(s *job.Spec) { s.Schedule = "@every 1s" })) // overlap: skip
	run("works", 5)
	run("flaky", 2)
	run("fails", 2)
	run("hangs", 2) // the second waits for the first
	harness.Eventually(t, time.Minute, "an occurrence was skipped", func() bool {
		s := sums{}
		for _, n := range cl.Nodes {
			if err := s.scrape(t, n); err != nil {
				return false
			}
		}
		return s["carillon_not_run_total overlap"] >= 2
	})
	try("cancel", func() error { _, err := api.CancelJob(ctx, "hangs"); return err })
	try("delete", func() error {
		if err := api.DeleteJob(ctx, "hangs-every", 0); err != nil && job.CodeOf(err) != job.CodeNotFound {
			return err
		}
		return nil
	})
	settled(0)

	// Two runs are in hand when the leader is killed, at other nodes.
	leader := cl.Leader()
	for i, n := range cl.Others(leader) {
		name := "blocks-" + n.ID
		create(spec(name, func(s *job.Spec) { s.Workers = map[string]string{"at": n.ID} }))
		run(name, 1)
		harness.Eventually(t, time.Minute, name+" has begun", func() bool { return blocked.Load() > int32(i) })
	}
	dead := sums{}
	harness.Eventually(t, time.Minute, "a scrape of the leader while nothing ends", func() bool {
		before, err := leader.Client.Status(ctx)
		if err != nil {
			return false
		}
		clear(dead)
		if err := dead.scrape(t, leader); err != nil {
			return false
		}
		after, err := leader.Client.Status(ctx)
		return err == nil && before.History.Last == after.History.Last
	})
	leader.Destroy()
	living := cl.Others(leader)
	api = living[0].Client
	close(release)
	run("works", 3)
	run("fails", 1)
	settled(0)

	var want, got sums
	harness.Eventually(t, time.Minute, "sums over nodes are those of the API", func() bool {
		var err error
		if want, err = history(t, api); err != nil {
			return false
		}
		got = maps.Clone(dead.counters())
		gauges := sums{}
		for _, n := range living {
			s := sums{}
			if err := s.scrape(t, n); err != nil {
				return false
			}
			for k, v := range s.counters() {
				got[k] += v
			}
			for k, v := range s {
				gauges[k] += v
			}
		}
		s, err := api.Status(ctx)
		return err == nil && maps.Equal(got, want) && gauges["carillon_jobs"] == float64(s.Jobs) &&
			gauges["carillon_dead_letters"] == float64(s.DeadLetters) && s.DeadLetters == 3 &&
			gauges["carillon_open_runs"] == float64(s.OpenRuns)
	})
	t.Logf("%v", got)
	for k, n := range map[string]float64{"carillon_runs_total succeeded": 12, "carillon_runs_total dead": 3} {
		if got[k] < n {
			t.Errorf("%s is %v, want at least %v", k, got[k], n)
		}
	}
	attempts := 0.0
	for k, v := range got {
		if strings.HasPrefix(k, "carillon_attempts_total") {
			attempts += v
		}
	}
	if got["carillon_attempts_total lost"] == 0 && attempts != float64(len(target.Seen())) {
		t.Errorf("%v attempts, and the target saw %d", attempts, len(target.Seen()))
	}
	promtool(t, living...)
}

// promtool has Prometheus' own tool look at what nodes serve.
func promtool(t *testing.T, nodes ...*harness.Node) {
	t.Helper()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool is not installed (Debian: prometheus): `promtool check metrics` was left out")
		return
	}
	for _, n := range nodes {
		text, err := n.Client.Metrics(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(tool, "check", "metrics")
		cmd.Stdin = bytes.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("%s: promtool check metrics: %v\n%s", n.ID, err, out)
		}
	}
}

// TestWorkerMetrics asks a worker that is no node for its metrics, with a leader and without one.
func TestWorkerMetrics(t *testing.T) {
	scenario(t)
	target := harness.NewTarget(t)
	target.Behave(func(s harness.Seen) (time.Duration, int) {
		if s.Token == "fails" {
			return 0, http.StatusInternalServerError
		}
		return 0, http.StatusOK
	})
	n := harness.NewNode(t, harness.Build(t), t.TempDir())
	n.Start()
	addr := harness.FreeAddr(t)
	worker(t, n, "w1", "--tags", "at=w1", "--slots", "3", "--egress-allow", "loopback", "--metrics-listen", addr)
	ctx := context.Background()
	for _, name := range []string{"works", "fails"} {
		_, err := n.Client.CreateJob(ctx, job.Spec{Name: name, Type: job.TypeHTTP, Schedule: job.ScheduleManual,
			Payload: json.RawMessage(fmt.Sprintf(`{"url":%q}`, target.URL+"/"+name)), Overlap: job.OverlapAllow,
			Workers: map[string]string{"at": "w1"}, Retry: job.Retry{MaxRetries: new(0)}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := n.Client.RunJob(ctx, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	scrape := func() string {
		res, err := http.Get("http://" + addr + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%d %v", res.StatusCode, err)
		}
		return string(text)
	}
	wants := func(what string, series ...string) {
		t.Helper()
		harness.Eventually(t, time.Minute, what, func() bool {
			text := scrape()
			for _, s := range series {
				if !strings.Contains(text, "\ncarillon_"+s+"\n") {
					return false
				}
			}
			return true
		})
	}
	wants("what it did is counted", `worker_attempts_total{status="succeeded",type="http"} 2`,
		`worker_attempts_total{status="failed",type="http"} 2`, `worker_attempt_duration_seconds_count{type="http"} 4`,
		`worker_slots{state="free"} 3`, `worker_slots{state="busy"} 0`, `worker_registered{group="0"} 1`,
		`worker_results_waiting 0`)
	if problems, err := promlint.New(strings.NewReader(scrape())).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", err, problems)
	}
	n.Destroy()
	wants("it has no leader", `worker_registered{group="0"} 0`)
}
