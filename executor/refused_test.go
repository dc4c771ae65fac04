package executor

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

var idle = runnerFunc(func(context.Context, job.Assignment) job.Result { return job.Result{} })

// A worker whose token was revoked says so once, stops what it runs, and ends with that reason; it used to ask for ever.
// One that is refused for another reason, or by a leader that is gone, goes on.
func TestWorkerGivesUpWhenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLeader()
		var revoked bool
		l.before = func(context.Context, string) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			if !revoked {
				return nil
			}
			return job.Errorf(job.CodeUnauthenticated, "use another token", "the token t1 (w) was revoked")
		}
		var log bytes.Buffer
		w, err := New(Options{Name: "w", Secret: "s", Slots: 1, Groups: OneGroup(l), MaxRefusals: 10,
			Runners: map[job.Type]Runner{job.TypeHTTP: idle}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		time.Sleep(time.Minute)
		l.mu.Lock()
		registered := len(l.registers)
		revoked = true
		l.mu.Unlock()
		at := time.Now() // of the test's own time
		err = <-ended
		if took := time.Since(at); took > pollWait+5*time.Second {
			t.Errorf("it went on for %s", took)
		}
		e, ok := err.(*job.Error)
		if !ok || e.Code != job.CodeUnauthenticated || e.Remedy != "use another token" ||
			!strings.Contains(e.Message, "refused this worker 10 times: the token t1 (w) was revoked") {
			t.Errorf("%v", err)
		}
		if n := len(l.registers) - registered; n != 10 {
			t.Errorf("%d registrations after the token was revoked", n)
		}
		if n := strings.Count(log.String(), "registration refused"); n != 1 {
			t.Errorf("said %d times:\n%s", n, log.String())
		}
		w.Kill() // by who stops the process meanwhile
	})
}

// Refusals of other kinds in between begin the count again, and a node's own worker never gives up.
func TestWorkerGoesOnWhenNotRefusedForGood(t *testing.T) {
	for name, most := range map[string]int{"with another error in between": 3, "without a bound": 0} {
		synctest.Test(t, func(t *testing.T) {
			l := newFakeLeader()
			calls := 0
			l.before = func(context.Context, string) error {
				l.mu.Lock()
				defer l.mu.Unlock()
				if calls++; most > 0 && calls%most == 0 {
					return errNet
				}
				return job.Errorf(job.CodeForbidden, "", "not now")
			}
			w, err := New(Options{Name: "w", Secret: "s", Slots: 1, Groups: OneGroup(l), MaxRefusals: most,
				Runners: map[job.Type]Runner{job.TypeHTTP: idle}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			time.Sleep(time.Hour)
			select {
			case err := <-ended:
				t.Errorf("%s: it gave up: %v", name, err)
			default:
				stop()
				if err := <-ended; err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			stop()
		})
	}
}
