package proof

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// TestAnEditLetsAWaitingJobRun: what is due and has no worker runs as soon as an edit lets one take it, and goes on
// firing.
func TestAnEditLetsAWaitingJobRun(t *testing.T) {
	beside(t)
	n := harness.NewNode(t, harness.Build(t), t.TempDir(), "--executors", "shell")
	n.Start()
	mars := func(name, schedule string) job.Spec {
		s := shellJob(name, "true")
		s.Schedule, s.Workers = schedule, map[string]string{"region": "mars"}
		return s
	}
	const every = "*/2 * * * * *"
	jobs := []struct {
		spec  job.Spec
		patch string
		runs  int
	}{
		{mars("tag", every), `{"workers":null}`, 2},
		{mars("once", time.Now().Add(time.Second).UTC().Format(time.RFC3339)), `{"workers":null}`, 1},
		{job.Spec{Name: "http", Schedule: every, Type: job.TypeHTTP, Payload: []byte(`{"url":"http://127.0.0.1:1/"}`)},
			`{"type":"shell","payload":{"url":null,"command":"true"}}`, 2},
		{job.Spec{Name: "queue", Schedule: every, Type: job.TypeQueue, Payload: []byte(`{"queue":"mail"}`)},
			`{"type":"shell","payload":{"queue":null,"command":"true"}}`, 2},
	}
	for _, j := range jobs {
		if _, err := n.Client.CreateJob(t.Context(), j.spec); err != nil {
			t.Fatal(err)
		}
	}
	for _, j := range jobs {
		harness.Eventually(t, 30*time.Second, j.spec.Name+" is due and waits for a worker", func() bool {
			w, err := n.Client.Why(t.Context(), j.spec.Name)
			if err != nil || !strings.Contains(fmt.Sprint(w), "no worker") {
				return false
			}
			now, err := n.Client.GetJob(t.Context(), j.spec.Name)
			return err == nil && now.NextRunAt.Time().Before(time.Now().Add(-time.Second))
		})
	}
	for _, j := range jobs {
		if _, err := n.Client.PatchJob(t.Context(), j.spec.Name, client.Patch(j.patch), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, j := range jobs {
		harness.Eventually(t, 30*time.Second, j.spec.Name+" runs after the edit", func() bool {
			p, err := n.Client.JobRuns(t.Context(), j.spec.Name,
				client.RunQuery{Statuses: []job.RunStatus{job.RunSucceeded}})
			return err == nil && len(p.Runs) >= j.runs
		})
	}
	n.Stop()
}
