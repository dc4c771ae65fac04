package apitest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
)

// refusals is what the metrics of a node say.
func refusals(t testing.TB, n *apitest.Node, viewer string, reason api.Refusal) int {
	t.Helper()
	res := send(t, t.Context(), n, "GET", "/metrics", viewer, nil)
	defer res.Body.Close()
	for in := bufio.NewScanner(res.Body); in.Scan(); {
		if text, ok := strings.CutPrefix(in.Text(), fmt.Sprintf("carillon_limited_total{reason=%q} ", reason)); ok {
			count, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(count)
		}
	}
	t.Fatalf("the metrics say nothing of %s", reason)
	return 0
}

// A token that asks for more than its share in a second is told when to come again. Others are not bound by that, and
// neither are workers; a client waits and is answered.
func TestRequestsOfATokenAreBounded(t *testing.T) {
	underOneLeader(t, requestsOfATokenAreBounded)
}

func requestsOfATokenAreBounded(t *tenure) {
	nodes := t.cluster(3, apitest.Secure, func(c *node.Config) { c.MaxTokenRequests = 20 })
	leader, follower := nodes[0], nodes[1]
	greedy := leader.Token(t, wire.TokenRequest{Name: "greedy", Role: job.RoleOperator})
	other := leader.Token(t, wire.TokenRequest{Name: "other", Role: job.RoleViewer})
	worker := leader.Token(t, wire.TokenRequest{Name: "worker", Role: job.RoleWorker})
	for _, n := range []*apitest.Node{leader, follower} {
		passed := 0
		for refused := 0; refused < 5; {
			res := send(t, t.Context(), n, "GET", "/api/v1/jobs?stale=true", greedy, nil)
			var p wire.Problem
			err := json.NewDecoder(res.Body).Decode(&p)
			res.Body.Close()
			switch {
			case res.StatusCode == 200:
				passed++
			case res.StatusCode == 429 && err == nil && p.Code == job.CodeTooManyRequests &&
				strings.Contains(p.Remedy, "--max-requests-per-token") && strings.Contains(p.Message, "greedy"):
				refused++
				if wait, err := strconv.Atoi(res.Header.Get("Retry-After")); err != nil || wait < 1 || wait > 60 {
					t.Errorf("Retry-After: %q", res.Header.Get("Retry-After"))
				}
			default:
				t.Fatalf("%d %+v, %v", res.StatusCode, p, err)
			}
			if passed > 10_000 {
				t.Fatal("there is no bound")
			}
		}
		if passed < 40 {
			t.Errorf("%d passed, want a burst of 40 at least", passed)
		}
		if status, p := ask(t, n, "GET", "/api/v1/jobs", other, ""); status != 200 {
			t.Errorf("another token: %d %+v", status, p)
		}
	}
	// A role that may not is no way around it.
	if status, _ := ask(t, leader, "POST", "/api/v1/workers:heartbeat", greedy, "{}"); status != 429 && status != 403 {
		t.Errorf("%d", status)
	}
	for range 200 { // ten times what others may do
		beat := job.Heartbeat{Session: "s1.x", Runs: []job.Ref{{Fence: 1}}}
		if status, p := tell(t, leader, "/api/v1/workers:heartbeat", worker, beat, nil); status != 409 ||
			p.Code != job.CodeSessionUnknown {
			t.Fatalf("%d %+v", status, p)
		}
	}
	c := client.New("http://"+leader.Addr(), client.WithHeader("Authorization", "Bearer "+greedy),
		client.WithHTTPClient(http.DefaultClient))
	for range 3 {
		if _, err := c.ListJobs(t.Context(), client.JobQuery{}); err != nil {
			t.Errorf("a client that waits: %v", err)
		}
	}
	if got := refusals(t, leader, other, api.RefusedRequests); got < 5 {
		t.Errorf("the metrics count %d", got)
	}
}

// Who sends tokens that are none is not looked at for ever. That hits no valid token from the same address, and none
// whose secret is right but which has ended: its holder should learn why.
func TestBadTokensAreBounded(t *testing.T) {
	underOneLeader(t, badTokensAreBounded)
}

func badTokensAreBounded(t *tenure) {
	nodes := t.cluster(3, apitest.Secure)
	leader := nodes[0]
	good := leader.Token(t, wire.TokenRequest{Name: "good", Role: job.RoleViewer})
	gone := leader.Token(t, wire.TokenRequest{Name: "gone", Role: job.RoleViewer})
	if _, err := leader.Backend.RevokeToken(t.Context(), "gone", api.Request{Key: "revoke"}); err != nil {
		t.Fatal(err)
	}
	known, err := keys.ParseToken(keys.APIToken, good)
	if err != nil {
		t.Fatal(err)
	}
	forged := keys.NewToken(keys.APIToken, keys.Hash{})
	forged.ID = known.ID
	for _, n := range nodes[:2] {
		guess := func() (int, wire.Problem) { return ask(t, n, "GET", "/api/v1/jobs", forged.Text(), "") }
		passed := 0
		for ; passed < 10_000; passed++ {
			if status, p := guess(); status != 401 {
				if status != 429 || p.Code != job.CodeTooManyRequests || p.Remedy == "" {
					t.Fatalf("%d %+v", status, p)
				}
				break
			}
		}
		if passed < api.DefaultBadTokens || passed == 10_000 {
			t.Errorf("%d bad tokens were looked at", passed)
		}
		for name, text := range map[string]string{"garbage": "letmein",
			"stranger": keys.NewToken(keys.APIToken, keys.Hash{}).Text()} {
			if status, p := ask(t, n, "GET", "/api/v1/jobs", text, ""); status != 429 {
				t.Errorf("%s: %d %+v", name, status, p)
			}
		}
		for range 100 {
			if status, p := ask(t, n, "GET", "/api/v1/jobs", good, ""); status != 200 {
				t.Fatalf("a valid token of the same address: %d %+v", status, p)
			}
		}
		if status, p := ask(t, n, "GET", "/api/v1/jobs", gone, ""); status != 401 ||
			!strings.Contains(p.Message, "revoked") {
			t.Errorf("a token that was revoked: %d %+v", status, p)
		}
		if status, _ := ask(t, n, "GET", "/api/v1/jobs", "", ""); status != 401 {
			t.Errorf("no token: %d", status)
		}
		from := http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 99)}}).DialContext,
			DisableKeepAlives: true}
		rq, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+n.Addr()+"/api/v1/jobs", nil)
		if err != nil {
			t.Fatal(err)
		}
		rq.Header.Set("Authorization", "Bearer "+forged.Text())
		res, err := from.RoundTrip(rq)
		if err != nil {
			t.Skipf("cannot dial from 127.0.0.99 on this machine: %v", err)
		}
		res.Body.Close()
		if res.StatusCode != 401 {
			t.Errorf("a bad token of another address: %d", res.StatusCode)
		}
		if got := refusals(t, n, good, api.RefusedGuesses); got < 3 {
			t.Errorf("the metrics count %d", got)
		}
	}
}

// Streams of a token are bounded, and one that ends makes room.
func TestStreamsOfATokenAreBounded(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	token := n.Token(t, wire.TokenRequest{Name: "bulky", Role: job.RoleOperator})
	other := n.Token(t, wire.TokenRequest{Name: "other", Role: job.RoleOperator})
	// bulk begins a bulk create and leaves it open: it says 200 when the node wants to read it, and end ends it.
	bulk := func(token string) (status int, p wire.Problem, end func()) {
		t.Helper()
		reads := make(chan struct{})
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{Got100Continue: func() { close(reads) }})
		in, out := io.Pipe()
		rq, err := http.NewRequestWithContext(ctx, "POST", "http://"+n.Addr()+"/api/v1/jobs:bulk", in)
		if err != nil {
			t.Fatal(err)
		}
		rq.Header.Set("Authorization", "Bearer "+token)
		rq.Header.Set("Expect", "100-continue")
		answers := make(chan *http.Response, 1)
		go func() {
			res, err := (&http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: time.Minute}).RoundTrip(rq)
			if err != nil {
				t.Error(err)
			}
			answers <- res
		}()
		end = sync.OnceFunc(func() {
			out.Close()
			if res := <-answers; res != nil {
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
		t.Cleanup(end)
		select {
		case <-reads:
			return 200, p, end
		case res := <-answers:
			answers <- res
			if res == nil {
				t.FailNow()
			}
			if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
				t.Error(err)
			}
			return res.StatusCode, p, end
		}
	}
	var first func()
	for i := range 64 {
		status, p, end := bulk(token)
		if status != 200 {
			t.Fatalf("stream %d: %d %+v", i, status, p)
		}
		first = end
	}
	if status, p, _ := bulk(token); status != 429 || p.Code != job.CodeTooManyRequests ||
		!strings.Contains(p.Remedy, "another token") {
		t.Errorf("one more: %d %+v", status, p)
	}
	if status, p, _ := bulk(other); status != 200 {
		t.Errorf("another token: %d %+v", status, p)
	}
	if status, p := ask(t, n, "GET", "/api/v1/jobs", token, ""); status != 200 {
		t.Errorf("what is no stream: %d %+v", status, p)
	}
	first()
	if status, p, _ := bulk(token); status != 200 {
		t.Errorf("after one ended: %d %+v", status, p)
	}
	if got := refusals(t, n, other, api.RefusedStreams); got != 1 {
		t.Errorf("the metrics count %d", got)
	}
}

// What is left of a request's body, or of an answer, holds no connection: not even for who has no token.
func TestSlowBodies(t *testing.T) {
	if testing.Short() {
		t.Skip("waits in real time; left out with -short")
	}
	t.Parallel()
	for name, mode := range modes {
		n := apitest.Start(t, mode)
		for what, head := range map[string]string{
			"never sent": "POST /api/v1/nope HTTP/1.1\r\nHost: " + n.Addr() + "\r\nContent-Length: 1000\r\n\r\n",
			"chunked":    "POST /api/v1/nope HTTP/1.1\r\nHost: " + n.Addr() + "\r\nTransfer-Encoding: chunked\r\n\r\n",
			"of a probe": "GET /healthz HTTP/1.1\r\nHost: " + n.Addr() + "\r\nContent-Length: 1000\r\n\r\n",
		} {
			if name == "plain" && what != "of a probe" {
				continue // the node waits for the body before it says that there is no such route
			}
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				conn, err := net.Dial("tcp", n.Addr())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				io.WriteString(conn, head)
				conn.SetReadDeadline(time.Now().Add(time.Minute))
				if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("the connection is held")
				}
			})
		}
		t.Run(name+" answers that are not read", func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", n.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetWriteDeadline(time.Now().Add(time.Minute))
			many := strings.Repeat("GET /healthz HTTP/1.1\r\nHost: "+n.Addr()+"\r\n\r\n", 1000)
			for err == nil {
				_, err = io.WriteString(conn, many)
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is held")
			}
		})
	}
}

// Headers, and the bodies of each kind of route, have a size.
func TestSizes(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	n := apitest.Start(t, apitest.Secure)
	operator := n.Token(t, wire.TokenRequest{Role: job.RoleOperator})
	worker := n.Token(t, wire.TokenRequest{Role: job.RoleWorker})
	if status, _ := ask(t, n, "GET", "/api/v1/jobs", operator, "", "X-Pad", strings.Repeat("x", 60<<10)); status != 200 {
		t.Errorf("60 KiB of headers: %d", status)
	}
	res := send(t, t.Context(), n, "GET", "/api/v1/jobs", operator, nil, "X-Pad", strings.Repeat("x", 80<<10))
	res.Body.Close()
	if res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("80 KiB of headers: %d", res.StatusCode)
	}
	for path, limit := range map[string]int{
		"/api/v1/jobs": 1 << 20, "/api/v1/jobs/x:run": 1 << 20, "/api/v1/schedule:preview": 1 << 20,
		"/api/v1/workers:poll?queue=x": 64 << 10, "/api/v1/workers:report?queue=x": 1 << 20,
		"/api/v1/workers:poll": 64 << 10, "/api/v1/workers:report?group=0": 4 << 20,
	} {
		token := operator
		if strings.Contains(path, "workers:") {
			token = worker
		}
		for _, size := range []int{limit + 1, 10 << 20} { // it is refused before it is sent
			status, p := ask(t, n, "POST", path, token, strings.Repeat(" ", size), "Content-Type", "application/json",
				"Expect", "100-continue")
			if status != 413 || p.Code != job.CodeTooLarge || p.Remedy == "" {
				t.Errorf("%s, %d bytes: %d %+v", path, size, status, p)
			}
		}
		// One that does not say how long it is, is read up to the limit.
		sent := &blanks{}
		rq, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+n.Addr()+path, sent)
		if err != nil {
			t.Fatal(err)
		}
		rq.Header.Set("Authorization", "Bearer "+token)
		if res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(rq); err == nil { // or the connection is gone
			res.Body.Close()
			if res.StatusCode != 413 {
				t.Errorf("%s, without an end: %d", path, res.StatusCode)
			}
		}
		if status, p := ask(t, n, "POST", path, token, strings.Repeat(" ", limit-1), "Content-Type", "application/json"); status == 413 {
			t.Errorf("%s, %d bytes: %d %+v", path, limit-1, status, p)
		}
	}
}

// blanks is a body without an end.
type blanks struct{}

func (*blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// What a worker that has a token says of itself is bounded.
func TestWhatWorkersSayIsBounded(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	token := n.Token(t, wire.TokenRequest{Role: job.RoleWorker})
	good := job.Poll{Worker: "w", Secret: "s", Types: []job.Type{job.TypeQueue}, Slots: 1}
	long := strings.Repeat("x", 2*job.MaxTagBytes)
	queues := strings.Repeat("a-queue,", 1000) + "mail"
	for name, c := range map[string]struct {
		change func(*job.Poll)
		field  string
	}{
		"queues":      {func(r *job.Poll) { r.Tags = map[string]string{"queue": queues} }, ""},
		"long key":    {func(r *job.Poll) { r.Tags = map[string]string{long: "v"} }, "tags"},
		"long value":  {func(r *job.Poll) { r.Tags = map[string]string{"k": long} }, "tags"},
		"long queues": {func(r *job.Poll) { r.Tags = map[string]string{"queue": queues + queues + queues} }, "tags"},
		"types":       {func(r *job.Poll) { r.Types = make([]job.Type, 65) }, ""},
	} {
		r := good
		c.change(&r)
		status, p := tell(t, n, "/api/v1/workers:poll", token, r, nil)
		if c.field == "" && status != 200 || c.field != "" && (status != 400 || p.Field != c.field || p.Remedy == "") {
			t.Errorf("%s: %d %+v", name, status, p)
		}
	}
	status, p := tell(t, n, "/api/v1/workers:poll?queue=mail", token, job.Poll{Tags: map[string]string{"k": long}}, nil)
	if status != 400 || p.Field != "tags" {
		t.Errorf("a poll: %d %+v", status, p)
	}
}

// Who has no token can ask to join, and nothing more: a few at a time from one address. The rest of what strangers may
// ask for is answered all the same.
func TestJoinsOfAStrangerAreBounded(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	viewer := n.Token(t, wire.TokenRequest{Name: "viewer", Role: job.RoleViewer})
	// join begins a request and leaves it open: its answer is that the node wants to read it, or a refusal.
	join := func() (status string, end func()) {
		t.Helper()
		conn, err := net.Dial("tcp", n.Addr())
		if err != nil {
			t.Fatal(err)
		}
		end = sync.OnceFunc(func() { conn.Close() })
		t.Cleanup(end)
		conn.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprintf(conn, "POST /api/v1/cluster:join HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n"+
			"Expect: 100-continue\r\n\r\n", n.Addr())
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(line), end
	}
	var first func()
	for i := range 16 {
		status, end := join()
		if status != "HTTP/1.1 100 Continue" {
			t.Fatalf("number %d: %s", i, status)
		}
		first = end
	}
	if status, _ := join(); status != "HTTP/1.1 429 Too Many Requests" {
		t.Fatalf("one more: %s", status)
	}
	res := send(t, t.Context(), n, "GET", "/healthz", "", nil)
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("a probe: %s", res.Status)
	}
	if got := refusals(t, n, viewer, api.RefusedJoins); got != 1 {
		t.Errorf("the metrics count %d", got)
	}
	first()
	for status := ""; status != "HTTP/1.1 100 Continue"; { // the node notices that it is gone
		status, _ = join()
	}
}
