package proof

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// The CA and the cluster key are replaced twice while three processes start 200 runs a second: no occurrence is lost or
// done twice, the leader stays, and a client that asked before goes on to ask, without a single error.
func TestRotationUnderLoad(t *testing.T) {
	if !harness.Long() {
		t.Skip("long: CARILLON_LONG=1")
	}
	const jobs = 200
	var mu sync.Mutex
	done := map[string]int{} // by run
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		done[r.Header.Get("Carillon-Run")]++
	}))
	t.Cleanup(target.Close)
	ran := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(done)
	}
	c := startFlooded(t)
	admin := c.admin()
	for i := range jobs {
		if _, err := admin.CreateJob(t.Context(), job.Spec{Name: fmt.Sprint("pay-", i), Type: job.TypeHTTP, Schedule: "@every 1s",
			Overlap: job.OverlapAllow, Payload: fmt.Appendf(nil, `{"url":%q}`, target.URL)}); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, time.Minute, "they run", func() bool { return ran() > 5*jobs })
	before := c.status(t)
	text, err := os.ReadFile(filepath.Join(c.nodes[0].data, "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(text))

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	asked, said := 0, make(chan error, 1)
	go func() {
		defer close(said)
		// One try each: what it would repeat is an error here.
		asks := client.New(c.nodes[0].addr, client.WithToken(token), client.WithAttempts(1))
		for ctx.Err() == nil {
			if _, err := asks.GetJob(ctx, "pay-0"); err != nil && ctx.Err() == nil {
				said <- err
				return
			}
			asked++
		}
	}()
	began, first := time.Now(), ran()
	for range 2 {
		r, err := admin.RotateCA(t.Context(), client.RotateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, 2*time.Minute, "all members have certificates of the new CA", func() bool {
			s, err := admin.Status(t.Context())
			return err == nil && s.Rotation == nil
		})
		t.Logf("CA %s took the place of %s after %s", r.Next, r.CA, time.Since(began).Round(time.Millisecond))
		until := ran() + 20*jobs
		harness.Eventually(t, 2*time.Minute, "runs go on", func() bool { return ran() > until })
	}
	took, count := time.Since(began), ran()-first
	stop()
	if err := <-said; err != nil {
		t.Errorf("a client was cut off: %v", err)
	}
	after := c.status(t)
	if after.Term != before.Term {
		t.Errorf("the term was %d and is %d", before.Term, after.Term)
	}
	var sum wire.OccurrenceSummary
	for i := range jobs {
		name := fmt.Sprint("pay-", i)
		if _, err := admin.PauseJob(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, time.Minute, name+" is idle", func() bool {
			j, err := admin.GetJob(t.Context(), name)
			return err == nil && j.OpenRuns == 0
		})
		page, err := admin.Occurrences(t.Context(), name, client.OccurrenceQuery{From: job.At(began), To: job.At(began.Add(took))})
		if err != nil {
			t.Fatal(err)
		}
		s := page.Summary
		sum.Expected, sum.Ran = sum.Expected+s.Expected, sum.Ran+s.Ran
		sum.Unaccounted, sum.Explained = sum.Unaccounted+s.Unaccounted, sum.Explained+s.Explained
	}
	if sum.Ran != sum.Expected || sum.Expected < jobs*int64(took/time.Second-1) {
		t.Errorf("%+v", sum)
	}
	twice := 0
	mu.Lock()
	defer mu.Unlock()
	for _, n := range done {
		if n > 1 {
			twice++
		}
	}
	if twice > 0 {
		t.Errorf("%d runs reached the target more than once", twice)
	}
	t.Logf("%d runs in %s, %.0f a second; %d occurrences expected, %d ran, %d twice; a client asked %d times without an error", count,
		took.Round(time.Second), float64(count)/took.Seconds(), sum.Expected, sum.Ran, twice, asked)
}
