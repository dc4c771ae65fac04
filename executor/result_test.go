package executor

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func TestBadRunners(t *testing.T) {
	long := strings.Repeat("ü", job.MaxOutputBytes)
	for name, c := range map[string]struct {
		run     runnerFunc
		outcome job.Outcome
		text    string
	}{
		"panic":   {func(context.Context, job.Assignment) job.Result { panic("boom") }, job.OutcomeFailed, "panic: boom"},
		"goexit":  {func(context.Context, job.Assignment) job.Result { runtime.Goexit(); return success }, job.OutcomeFailed, "the runner ended its goroutine"},
		"nothing": {func(context.Context, job.Assignment) job.Result { return job.Result{} }, job.OutcomeFailed, "the runner returned the outcome 0"},
		"returned": {func(context.Context, job.Assignment) job.Result { return job.Result{Outcome: job.OutcomeReturned} },
			job.OutcomeFailed, "the runner returned the outcome 4"},
		"timeout": {func(ctx context.Context, _ job.Assignment) job.Result {
			<-ctx.Done()
			return job.Result{Outcome: job.OutcomeFailed, Error: "killed by SIGTERM", Permanent: true}
		}, job.OutcomeFailed, "timed out after 3s: killed by SIGTERM"},
		"long": {func(context.Context, job.Assignment) job.Result {
			return job.Result{Outcome: job.OutcomeSucceeded, Output: long + "\xff", RetryAfter: -1}
		}, job.OutcomeSucceeded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(o *Options, _ *bench) { o.Runners[job.TypeQueue] = c.run }, func(b *bench) {
				a := work(1)
				a[0].Timeout = job.Duration(3 * time.Second)
				b.leader.assign(a...)
				b.after(4 * time.Second)
				res := b.wantResult(1, c.outcome, c.text)
				if res.TimedOut != (name == "timeout") || res.Permanent {
					t.Fatalf("%+v", res)
				}
				if len(res.Output) > job.MaxOutputBytes || strings.ToValidUTF8(res.Output, "") != res.Output || res.RetryAfter != 0 {
					t.Fatalf("unshaped: %d bytes, retry after %v", len(res.Output), res.RetryAfter)
				}
				// The worker goes on.
				b.wantBusy(0)
			})
		})
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ in, head, tail string }{
		{"abc", "abc", "abc"},
		{"abcdefgh", "abcdef", "cdefgh"},
		{"üüüü", "üüü", "üüü"},
		{"aüüüü", "aüü", "üüü"},
		{"\xbcab\xc3", "ab", "ab"},         // a rune cut in two at each end
		{"a\xffb", "a\ufffdb", "a\ufffdb"}, // not text
	} {
		if h, tl := head(c.in, 6), tail(c.in, 6); h != c.head || tl != c.tail {
			t.Errorf("%q: head %q, tail %q", c.in, h, tl)
		}
	}
	for i := range 12 {
		s := fmt.Sprintf("%.*s", i, "\xff\xfe\x80\x80\x80\x80\xe2\x82\xc3\xf0\x9f\x98")
		if got := head(s, 4); len(got) > 4 || strings.ToValidUTF8(got, "") != got {
			t.Errorf("%q: %q", s, got)
		}
	}
}
