package proof

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// TestAPollTakesABacklog: what one job has due is handed out by the handful, as many runs as a poll has room for.
func TestAPollTakesABacklog(t *testing.T) {
	beside(t)
	n := harness.NewNode(t, harness.Build(t), t.TempDir(), "--executors", "none")
	n.Start()
	if _, err := n.Client.CreateJob(t.Context(), job.Spec{Name: "a", Schedule: "* * * * * *", Type: job.TypeQueue,
		Payload: []byte(`{"queue":"mail"}`), Overlap: job.OverlapAllow}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, time.Minute, "ten occurrences are due", func() bool {
		j, err := n.Client.GetJob(t.Context(), "a")
		return err == nil && j.NextRunAt.Time().Before(time.Now().Add(-10*time.Second))
	})
	desk := client.NewLeader([]string{n.Addr}, client.WithQueue("", "mail"))
	defer desk.Close()
	polls, runs := 0, 0
	for ; runs < 10; polls++ {
		r, err := desk.Poll(t.Context(), job.Poll{Worker: "w", Free: 50, Wait: job.Duration(20 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		runs += len(r.Runs)
	}
	if polls > 4 {
		t.Errorf("%d polls for %d runs", polls, runs)
	}
	n.Stop()
}
