package proof

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// forgetful is a way to a node on which the first answer to a poll that has a run in it gets lost.
func forgetful(t *testing.T, n *harness.Node, lost *atomic.Int32) string {
	t.Helper()
	p := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: n.Addr})
	p.ModifyResponse = func(r *http.Response) error {
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if strings.HasSuffix(r.Request.URL.Path, ":poll") && bytes.Contains(body, []byte(`"claim"`)) && lost.CompareAndSwap(0, 1) {
			return errors.New("lost")
		}
		return err
	}
	p.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// TestWorkerInPython: the worker of examples/workers, which needs no more than the document says, through a lost answer,
// a leader that is killed, a cancel and a stop. Nothing is started twice under one fence, and nothing is lost.
func TestWorkerInPython(t *testing.T) {
	beside(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	c := harness.NewCluster(t, harness.Build(t), 3, "--lease", "6s")
	var lost atomic.Int32
	var ways []string
	for _, n := range c.Nodes {
		ways = append(ways, forgetful(t, n, &lost))
	}
	p := spawn(t, []string{"CARILLON_ADDR=" + strings.Join(ways, ","), "QUEUE=mail", "CONCURRENCY=2", "LEASE=6"},
		"python3", "../examples/workers/worker.py")
	made := 0
	run := func(seconds int) job.Run {
		t.Helper()
		made++
		spec := queueSpec(fmt.Sprint("m", made), "mail")
		spec.Payload = fmt.Appendf(nil, `{"queue":"mail","data":{"to":"ada","seconds":%d}}`, seconds)
		return makeRun(t, c.Leader(), spec)
	}
	started := func(r job.Run) {
		t.Helper()
		harness.Eventually(t, time.Minute, r.RunID+" is started", func() bool { return strings.Contains(p.said(), r.RunID+" started") })
	}
	done := func(r job.Run, status job.RunStatus) (d client.RunDetail) {
		t.Helper()
		harness.Eventually(t, time.Minute, r.RunID+" is "+status.String(), func() bool {
			var err error
			d, err = c.Leader().Client.GetRun(t.Context(), r.RunID)
			return err == nil && d.Status == status
		})
		return d
	}

	if d := done(run(0), job.RunSucceeded); lost.Load() != 1 || d.Attempt != 1 || len(d.Attempts) != 1 {
		t.Errorf("after a lost answer (%d): %+v", lost.Load(), d)
	}
	over := run(12)
	started(over)
	c.Leader().Kill("kill")
	if d := done(over, job.RunSucceeded); d.Attempt != 1 || len(d.Attempts) != 1 || d.Output != "sent to ada" {
		t.Errorf("over a leader's death: %+v", d)
	}
	canceled := run(600)
	started(canceled)
	if _, err := c.Leader().Client.CancelRun(t.Context(), canceled.RunID); err != nil {
		t.Fatal(err)
	}
	done(canceled, job.RunCanceled)
	held := run(5)
	started(held)
	p.signal(syscall.SIGTERM)
	done(held, job.RunSucceeded)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	fences := map[string]bool{}
	for _, m := range regexp.MustCompile(`fence \d+`).FindAllString(p.said(), -1) {
		if fences[m] {
			t.Errorf("%s was started twice", m)
		}
		fences[m] = true
	}
	if len(fences) != made {
		t.Errorf("%d starts of %d runs", len(fences), made)
	}
}
