//go:build unix

package executor

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-scheduler/carillon/job"
)

// TestMain also lends the test binary to tests that need a process of their own to kill.
func TestMain(m *testing.M) {
	if os.Getenv("EXECUTOR_TEST_HELPER") != "" {
		helperProcess()
		return
	}
	// Those that run beside each other wait for brokers. The command line is read later and may say otherwise.
	if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)+2)); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// helperProcess is a node that runs one shell job and will be killed: see TestKillLeftovers.
func helperProcess() {
	o := ShellOptions{Dir: os.Getenv("EXECUTOR_TEST_HELPER")}
	if u := os.Getenv("EXECUTOR_TEST_USER"); u != "" {
		o.User = []string{u}
	}
	o.Limits.OpenFiles, _ = strconv.Atoi(os.Getenv("EXECUTOR_TEST_FILES"))
	s, err := NewShell(o)
	if err != nil {
		panic(err)
	}
	payload, _ := json.Marshal(job.ShellPayload{Command: os.Getenv("EXECUTOR_TEST_SCRIPT")})
	r := s.Run(context.Background(), job.Assignment{Run: job.RunKey{Job: 3, At: 1000, Origin: job.OriginSchedule}, Fence: 12,
		Type: job.TypeShell, Payload: payload})
	fmt.Println(r.Outcome, r.Error, r.Output)
}

// within gives an attempt its timeout.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, stop := context.WithTimeout(t.Context(), d)
	t.Cleanup(stop)
	return ctx
}

func last[T any](s []T) T { return s[len(s)-1] }
