package proof

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// TestANamespaceThatHangsLeavesRoom: runs of one namespace that do not end take many more slots than there are, and
// those of another one start all the same; why says what the first one waits for.
func TestANamespaceThatHangsLeavesRoom(t *testing.T) {
	beside(t)
	over := make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hangs" {
			select {
			case <-over:
			case <-r.Context().Done():
			}
		}
	}))
	t.Cleanup(func() { close(over); target.Close() })
	n := harness.NewNode(t, harness.Build(t), t.TempDir(), "--executors", "http", "--slots", "8")
	n.Start()
	team := func(namespace, path string) *client.Client {
		c := client.New(n.Addr, client.WithNamespace(namespace))
		if _, err := c.CreateJob(t.Context(), job.Spec{Name: "a", Namespace: namespace, Schedule: job.ScheduleManual,
			Type: job.TypeHTTP, Payload: fmt.Appendf(nil, `{"url":%q}`, target.URL+path),
			Overlap: job.OverlapAllow}); err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b := team("team-a", "/hangs"), team("team-b", "/")
	for range 40 {
		if _, err := a.RunJob(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, time.Minute, "seven of team-a run and the others wait", func() bool {
		p, err := a.JobRuns(t.Context(), "a", client.RunQuery{Limit: 50, Statuses: []job.RunStatus{job.RunRunning}})
		w, werr := a.Why(t.Context(), "a")
		return err == nil && werr == nil && len(p.Runs) == 7 && strings.Contains(fmt.Sprint(w), "kept for other namespaces")
	})
	for range 5 {
		r, err := b.RunJob(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, 30*time.Second, "the run of team-b succeeds", func() bool {
			d, err := b.GetRun(t.Context(), r.RunID)
			return err == nil && d.Status == job.RunSucceeded
		})
	}
}
