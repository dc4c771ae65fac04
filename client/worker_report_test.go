package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// reportNode is a node with some runs; complete answers reports of successes.
type reportNode struct {
	runs     int
	groups   bool // the runs are of different groups, and have the same fence
	complete func(runs []job.PullRef) (status int, body string)

	mu    sync.Mutex
	given bool
	calls []time.Time // of reports
}

func (n *reportNode) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent struct {
		Max  int
		Runs []job.PullRef
	}
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	status, body := http.StatusOK, named(sent.Runs)
	switch {
	case strings.HasSuffix(r.URL.Path, ":poll"):
		var runs []string
		if sent.Max > 0 && !n.given {
			n.given = true
			for f := range n.runs {
				id, fence := "r", f+1
				if n.groups {
					id, fence = job.RunKey{Job: job.ID(f)<<job.GroupShift | 1, At: 5, Origin: job.OriginManual}.String(), 7
				}
				runs = append(runs, fmt.Sprintf(`{"run_id":%q,"job_id":"j_1","fence":%d,"lease":"30s"}`, id, fence))
			}
		} else {
			n.mu.Unlock()
			time.Sleep(time.Second) // of the bubble
			n.mu.Lock()
		}
		body = `{"session":"s","lease":"30s","runs":[` + strings.Join(runs, ",") + `]}`
	case strings.HasSuffix(r.URL.Path, ":complete"):
		n.calls = append(n.calls, time.Now())
		status, body = n.complete(sent.Runs)
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(body))}, nil
}

// named acknowledges results.
func named(runs []job.PullRef) string {
	var out []string
	for _, r := range runs {
		out = append(out, fmt.Sprintf(`{"run_id":%q,"fence":%d,"status":"ok"}`, r.RunID, r.Fence))
	}
	return `{"runs":[` + strings.Join(out, ",") + `]}`
}

// work has all runs end at the same time, and stops the worker some time later.
func (n *reportNode) work(t *testing.T, stop time.Duration) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), stop)
	defer cancel()
	w := client.Worker{Addrs: []string{"n1"}, Queue: "q", Concurrency: n.runs, HTTPClient: &http.Client{Transport: n},
		Clock:   func() time.Duration { return time.Since(began) },
		Handler: func(context.Context, *client.Run) error { time.Sleep(2 * time.Second); return nil }}
	return w.Run(ctx)
}

// A result that the nodes refuse is given up. Those that were in the same report are not.
func TestWorkerGivesUpARefusedResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := map[uint64]bool{}
		n := &reportNode{runs: 40, complete: func(runs []job.PullRef) (int, string) {
			if slices.ContainsFunc(runs, func(r job.PullRef) bool { return r.Fence == 7 }) {
				return http.StatusBadRequest, `{"code":"invalid","message":"no"}`
			}
			for _, r := range runs {
				taken[r.Fence] = true
			}
			return http.StatusOK, named(runs)
		}}
		if err := n.work(t, 10*time.Second); err != nil {
			t.Error(err)
		}
		if len(taken) != 39 || taken[7] {
			t.Errorf("%d results were taken", len(taken))
		}
	})
}

// A leader counts a timeout from before the worker does, and may say first that a run is to stop because of it: that is
// no cancel to the handler, nor in what is reported. One that is canceled is not said to have run out of time.
func TestWorkerTellsTimeoutsFromCancels(t *testing.T) {
	for answer, want := range map[string]error{
		`"status":"canceling","timed_out":true`: client.ErrTimeout,
		`"status":"canceling"`:                  client.ErrCanceled,
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			given, failed := false, ""
			var mu sync.Mutex
			node := roundTripper(func(r *http.Request) (*http.Response, error) {
				data, err := io.ReadAll(r.Body)
				if err != nil {
					return nil, err
				}
				body := `{"runs":[{"run_id":"r","fence":1,` + answer + `}]}`
				mu.Lock()
				switch {
				case strings.HasSuffix(r.URL.Path, ":poll") && !given:
					given = true
					body = `{"session":"s","lease":"30s","runs":[
						{"run_id":"r","job_id":"j_1","fence":1,"timeout":"10m","lease":"30s"}]}`
				case strings.HasSuffix(r.URL.Path, ":poll"):
					mu.Unlock()
					time.Sleep(time.Second) // of the bubble
					mu.Lock()
					body = `{"session":"s","lease":"30s","runs":[]}`
				case strings.HasSuffix(r.URL.Path, ":fail"):
					failed, body = string(data), `{"runs":[{"run_id":"r","fence":1,"status":"ok"}]}`
					cancel()
				}
				mu.Unlock()
				return &http.Response{StatusCode: http.StatusOK, Request: r,
					Header: http.Header{"Content-Type": {"application/json"}},
					Body:   io.NopCloser(strings.NewReader(body))}, nil
			})
			w := client.Worker{Addrs: []string{"n1"}, Queue: "q", HTTPClient: &http.Client{Transport: node},
				Clock: func() time.Duration { return time.Since(began) },
				Handler: func(ctx context.Context, _ *client.Run) error {
					<-ctx.Done()
					if cause := context.Cause(ctx); cause != want {
						t.Errorf("%s: it ended because of %v", answer, cause)
					}
					return ctx.Err()
				}}
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
			if !strings.Contains(failed, want.Error()) {
				t.Errorf("%s: reported is %s", answer, failed)
			}
		})
	}
}

// Fences are numbers of a group: runs of different groups may have the same one.
func TestWorkerHasRunsOfSeveralGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := map[string]bool{}
		n := &reportNode{runs: 3, groups: true, complete: func(runs []job.PullRef) (int, string) {
			for _, r := range runs {
				taken[r.RunID] = true
			}
			return http.StatusOK, named(runs)
		}}
		if err := n.work(t, 20*time.Second); err != nil {
			t.Error(err)
		}
		if len(taken) != 3 {
			t.Errorf("the results of %v were reported", taken)
		}
	})
}

// A node that answers a report without naming its results is not asked again at once.
func TestWorkerReportsWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &reportNode{runs: 1}
		n.complete = func(runs []job.PullRef) (int, string) {
			if len(n.calls) < 5 {
				return http.StatusOK, `{"runs":[]}`
			}
			return http.StatusOK, named(runs)
		}
		if err := n.work(t, time.Minute); err != nil {
			t.Error(err)
		}
		if len(n.calls) != 5 || n.calls[4].Sub(n.calls[0]) < 500*time.Millisecond {
			t.Errorf("reports at %v", n.calls)
		}
	})
}
