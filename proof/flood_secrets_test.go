package proof

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// Attack, for a minute: a namespace has secrets of as many short lines as there may be, and twenty jobs that refer every
// second to as many as they may, and whose target answers with lines of them. The leader goes on to lead, jobs of others
// run, and nothing of a secret is shown. With 32 secrets of 1,170 lines each a run took it seconds.
func TestManyShortSecrets(t *testing.T) {
	if !harness.Long() {
		t.Skip("takes minutes: CARILLON_LONG=1, as .ci/deep long does")
	}
	const secrets, lines, jobs = 4, job.MaxSecretLines, 20
	line := func(secret, n int) string { return fmt.Sprintf("%02d%04d", secret, n) }
	var ran, short atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) < secrets*lines*7 {
			short.Add(1)
		}
		ran.Add(1)
		for n := range 500 {
			fmt.Fprintln(w, line(n%secrets, n))
		}
	}))
	t.Cleanup(target.Close)
	lags := newLagTarget(t)
	c := startFlooded(t)
	admin := c.admin()
	lags.feed(t, admin)
	team, err := admin.CreateToken(t.Context(), client.TokenRequest{Name: "team-a", Role: job.RoleAdmin, Namespace: "team-a"})
	if err != nil {
		t.Fatal(err)
	}
	theirs := client.New(strings.Join(c.addrs(), ","), client.WithToken(team.Text), client.WithNamespace("team-a"))
	var refs []string
	for i := range secrets {
		var value strings.Builder
		for n := range lines {
			value.WriteString(line(i, n) + "\n")
		}
		name := fmt.Sprint("s", i)
		if _, err := theirs.PutSecret(t.Context(), name, client.SecretRequest{Value: value.String()}); err != nil {
			t.Fatal(err)
		}
		refs = append(refs, "secret://"+name)
	}
	lags.next(t, 200)
	usual := lags.next(t, 500)
	before := c.status(t)
	lead := c.byID(before.Leader)
	memory := residentOf(t, lead)
	for i := range jobs {
		if _, err := theirs.CreateJob(t.Context(), job.Spec{Name: fmt.Sprint("many-", i), Type: job.TypeHTTP, Schedule: "@every 1s",
			Payload: fmt.Appendf(nil, `{"url":%q,"method":"POST","body":%q}`, target.URL, strings.Join(refs, " "))}); err != nil {
			t.Fatal(err)
		}
	}
	peak, during := int64(0), []time.Duration{}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		during = lags.next(t, 500)
		peak = max(peak, residentOf(t, lead)-memory)
	}
	after := c.status(t)
	if after.Term != before.Term || after.Leader != before.Leader {
		t.Errorf("%s leads in term %d; before it was %s in term %d", after.Leader, after.Term, before.Leader, before.Term)
	}
	if peak > 300<<20 {
		t.Errorf("the leader has %d MiB more in memory", peak>>20)
	}
	if n := ran.Load(); n < 10*jobs || short.Load() > 0 {
		t.Errorf("%d of these runs reached their target, %d without their secrets", n, short.Load())
	}
	page, err := theirs.Runs(t.Context(), client.RunQuery{Statuses: []job.RunStatus{job.RunSucceeded}, Limit: 50})
	if err != nil || len(page.Runs) == 0 {
		t.Fatalf("%d runs, %v", len(page.Runs), err)
	}
	for _, r := range page.Runs {
		if !strings.Contains(r.Output, "***") || strings.Contains(r.Output, line(1, 1)) {
			t.Fatalf("a run shows %q", r.Output)
		}
	}
	t.Logf("lag p50 %s, p99 %s before, %s, %s during; %d runs with secrets; leader's memory %+d MiB of %d",
		at(usual, 50), at(usual, 99), at(during, 50), at(during, 99), ran.Load(), peak>>20, memory>>20)
}
