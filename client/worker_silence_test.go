package client_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// pullNodes are nodes of one cluster with one run. Those before the first healthy one accept and say nothing, as stopped processes do.
type pullNodes struct {
	healthy atomic.Int32
	given   atomic.Bool
	done    atomic.Int32
}

func (n *pullNodes) dial(_ context.Context, _, addr string) (net.Conn, error) {
	here, there := net.Pipe()
	var number int32
	fmt.Sscanf(addr, "n%d", &number) //nolint:errcheck // the test's own names
	go func() {
		defer there.Close()
		in := bufio.NewReader(there)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			if number < n.healthy.Load() {
				io.Copy(io.Discard, there) //nolint:errcheck // until the client hangs up
				return
			}
			answer(there, "200 OK", "application/json", n.reply(r.URL.Path, body))
		}
	}()
	return here, nil
}

func (n *pullNodes) reply(path string, body []byte) string {
	var sent struct {
		Max  int
		Runs []job.PullRef
	}
	json.Unmarshal(body, &sent) //nolint:errcheck // what it is not about stays empty
	switch {
	case strings.HasSuffix(path, ":poll"):
		if sent.Max == 0 || !n.given.CompareAndSwap(false, true) {
			time.Sleep(time.Second)
			return `{"session":"s","lease":"30s","runs":[]}`
		}
		return `{"session":"s","lease":"30s","runs":[{"run_id":"r","job_id":"j_1","fence":1,"timeout":"10m","lease":"30s"}]}`
	case strings.HasSuffix(path, ":complete"):
		n.done.Add(1)
	}
	if len(sent.Runs) == 0 {
		return `{"runs":[]}`
	}
	return `{"runs":[{"run_id":"r","fence":1,"status":"ok"}]}`
}

// Two of three nodes are stopped while a run is in hand. The worker finds the third before its lease is over, and the run is not disturbed.
func TestWorkerPassesOverStoppedNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &pullNodes{}
		n.healthy.Store(1)
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		w := client.Worker{Addrs: []string{"n1", "n2", "n3"}, Queue: "q", Clock: func() time.Duration { return time.Since(began) },
			HTTPClient: &http.Client{Transport: &http.Transport{DialContext: n.dial, DisableKeepAlives: true}},
			Handler: func(ctx context.Context, _ *client.Run) error {
				n.healthy.Store(3)
				select {
				case <-ctx.Done():
					t.Errorf("the run was stopped after %s: %v", time.Since(began), context.Cause(ctx))
				case <-time.After(5 * time.Minute):
				}
				return nil
			}}
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		for n.done.Load() == 0 {
			time.Sleep(time.Second)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
