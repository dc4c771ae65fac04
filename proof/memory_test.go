package proof

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// Attack, for a minute each: a stranger, and then the holder of a token of one namespace, sends 14 connections of HTTP/2
// with 240 bodies of 1 MiB at a time to the leader. It goes on to lead, its memory stays within 300 MiB of the usual, and
// jobs run on. How late they start is reported: the attack comes from the same machine.
func TestLargeBodiesOfManyStreams(t *testing.T) {
	if !harness.Long() {
		t.Skip("takes minutes: CARILLON_LONG=1, as .ci/deep long does")
	}
	const most = 300 << 20
	lags := newLagTarget(t)
	c := startFlooded(t)
	admin := c.admin()
	for i := range 50 {
		if _, err := admin.CreateJob(t.Context(), job.Spec{Name: fmt.Sprint("tick-", i), Type: job.TypeHTTP,
			Schedule: "@every 1s", Payload: fmt.Appendf(nil, `{"url":%q}`, lags.URL)}); err != nil {
			t.Fatal(err)
		}
	}
	team, err := admin.CreateToken(t.Context(), client.TokenRequest{Name: "team-a", Role: job.RoleOperator, Namespace: "team-a"})
	if err != nil {
		t.Fatal(err)
	}
	lags.next(t, 200) // it has begun
	usual := lags.next(t, 500)
	before := c.status(t)
	lead := c.byID(before.Leader)
	memory := residentOf(t, lead)
	for _, a := range []struct{ path, token string }{{"/api/v1/cluster:join", ""}, {"/api/v1/jobs", team.Text}} {
		s := sendBodies(lead.addr, a.path, a.token)
		peak := int64(0)
		during := []time.Duration{}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			during = lags.next(t, 500) // jobs run
			peak = max(peak, residentOf(t, lead)-memory)
		}
		counts := s.end()
		after := c.status(t)
		if after.Term != before.Term || after.Leader != before.Leader {
			t.Errorf("%s: %s leads in term %d; before it was %s in term %d", a.path, after.Leader, after.Term, before.Leader, before.Term)
		}
		if peak > most {
			t.Errorf("%s: the leader has %d MiB more in memory", a.path, peak>>20)
		}
		t.Logf("%s: lag p50 %s, p99 %s before, %s, %s during; answers %v; leader's memory %+d MiB of %d at most", a.path,
			at(usual, 50), at(usual, 99), at(during, 50), at(during, 99), counts, peak>>20, memory>>20)
	}
}

// bodies are an attack.
type bodies struct {
	cancel context.CancelFunc
	all    sync.WaitGroup
	mu     sync.Mutex
	counts map[int]int
}

func sendBodies(addr, path, token string) *bodies {
	s := &bodies{counts: map[int]int{}}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	body := bytes.Repeat([]byte("x"), 1<<20)
	var port atomic.Int64
	for range 14 {
		web := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				from := net.IPv4(127, 0, 0, byte(20+port.Add(1)%100))
				return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: 10 * time.Second}).DialContext(ctx, network, addr)
			}}
		context.AfterFunc(ctx, web.CloseIdleConnections)
		for range 240 {
			s.all.Go(func() {
				for ctx.Err() == nil {
					rq, err := http.NewRequestWithContext(ctx, "POST", "https://"+addr+path, bytes.NewReader(body))
					if err != nil {
						panic(err)
					}
					rq.ContentLength = -1 // it does not say how large it is
					if token != "" {
						rq.Header.Set("Authorization", "Bearer "+token)
					}
					status := 0
					res, err := web.RoundTrip(rq)
					if err == nil {
						_, _ = io.Copy(io.Discard, res.Body)
						res.Body.Close()
						status = res.StatusCode
					}
					s.mu.Lock()
					s.counts[status]++
					s.mu.Unlock()
					if err != nil || status == http.StatusTooManyRequests {
						select { // its connections are refused, or it asks too often
						case <-ctx.Done():
						case <-time.After(100 * time.Millisecond):
						}
					}
				}
			})
		}
	}
	return s
}

func (s *bodies) end() map[int]int {
	s.cancel()
	s.all.Wait()
	return s.counts
}
