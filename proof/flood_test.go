package proof

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// floodSize is how much of each kind strangers and a greedy worker throw at a cluster.
type floodSize struct {
	idle, half, slow, huge, bodies int // connections
	registrations                  int
	limit                          time.Duration // for the registrations
	runs                           int           // whose lag is looked at before, and during
}

// Strangers and a greedy holder of a worker's token do what they can to a secure cluster of three processes: the leader
// stays, its term too, jobs run on, an honest worker gets in, and memory is bounded. How late runs start is reported, and
// not judged: the flood comes from the same machine.
func TestFlood(t *testing.T) {
	size := floodSize{idle: 300, half: 300, slow: 20, huge: 5, bodies: 5, registrations: 3000, limit: 20 * time.Second,
		runs: 60}
	if harness.Long() {
		size = floodSize{idle: 5000, half: 5000, slow: 200, huge: 50, bodies: 20, registrations: 1_000_000,
			limit: time.Minute, runs: 500}
	}
	need := uint64(2*size.idle + size.half + 1000)
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Max < need {
		t.Skipf("the test and each node open about %d files, and %d are allowed (ulimit -Hn): %v", need, files.Max, err)
	}
	files.Cur = files.Max // the nodes raise theirs themselves
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Skipf("ulimit -n cannot be raised: %v", err)
	}
	lags := newLagTarget(t)
	c := startFlooded(t)
	admin := c.admin()
	lags.feed(t, admin)
	token := func(name string) string {
		made, err := admin.CreateToken(t.Context(), client.TokenRequest{Name: name, Role: job.RoleWorker})
		if err != nil {
			t.Fatal(err)
		}
		return made.Text
	}
	greedy, honest := token("greedy"), token("honest")
	lags.next(t, size.runs) // it has begun
	usual := lags.next(t, size.runs)
	before := c.status(t)
	lead := c.byID(before.Leader)
	memory := residentOf(t, lead)

	f := &flood{t: t, addr: lead.addr, done: make(chan struct{})}
	t.Cleanup(f.end)
	for _, n := range c.nodes {
		f.addr = n.addr
		f.hold(size.idle/len(c.nodes), 2, nil)
	}
	f.addr = lead.addr
	f.hold(size.idle, 2, nil)
	f.hold(size.half, 3, []byte{0x16, 3, 1, 2, 0, 1}) // the beginning of a ClientHello
	f.speak(size.slow, 4, "GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nX-", "")
	f.speak(size.huge, 5, "GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nX-Pad: ", strings.Repeat("x", 1<<20))
	f.speak(size.bodies, 6, "POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 10485760\r\n\r\n", "x")
	f.speak(size.bodies, 7, "POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
		"1000\r\n"+strings.Repeat("x", 0x1000)+"\r\n")
	answers := f.register(greedy, size.registrations, size.limit)

	registered := make(chan error, 1)
	go func() {
		l := client.NewLeader(c.addrs(), client.WithLeaderToken(honest))
		defer l.Close()
		p := job.Poll{Worker: "honest", Secret: "its own", Types: []job.Type{job.TypeQueue}}
		var err error
		for opened, tries := false, 0; !opened && tries < 100; tries++ {
			var r job.PollReply
			if r, err = l.Poll(t.Context(), p); err == nil {
				p.Session, opened = r.Session, p.Session != ""
			}
		}
		registered <- err
	}()
	during := lags.next(t, size.runs)
	if err := <-registered; err != nil {
		t.Errorf("an honest worker did not get in: %v", err)
	}
	counts := answers()
	after := c.status(t)
	if after.Term != before.Term || after.Leader != before.Leader {
		t.Errorf("%s leads in term %d; before it was %s in term %d", after.Leader, after.Term, before.Leader, before.Term)
	}
	grown := residentOf(t, lead) - memory
	if grown > 512<<20 {
		t.Errorf("the leader has %d MiB more in memory", grown>>20)
	}
	if n := len(after.Workers); n > 1024+10 {
		t.Errorf("the cluster has %d workers", n)
	}
	f.end()
	t.Logf("lag p50 %s, p99 %s before, %s, %s during: %.1f times; registrations %v; connections refused or closed %d; "+
		"leader's memory %+d MiB", at(usual, 50), at(usual, 99), at(during, 50), at(during, 99),
		float64(at(during, 50))/float64(max(at(usual, 50), time.Millisecond)), counts, f.closed.Load(), grown>>20)
	lags.next(t, size.runs)
	if err := admin.DeleteJob(t.Context(), "tick-0", 0); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// flooded is a secure cluster of processes.
type flooded struct {
	t     *testing.T
	nodes []*secureNode
}

func startFlooded(t *testing.T) *flooded {
	t.Helper()
	c := &flooded{t: t}
	binary, dir := harness.Build(t), t.TempDir()
	t.Cleanup(func() {
		for _, n := range c.nodes {
			if n.cmd != nil {
				n.end(syscall.SIGKILL)
			}
			n.log.Close()
			if data, err := os.ReadFile(n.log.Name()); err == nil && t.Failed() {
				t.Logf("%s:\n%s", n.id, data[max(0, len(data)-5000):])
			}
		}
	})
	for i := range 3 {
		n := &secureNode{t: t, binary: binary, id: fmt.Sprint("n", i+1), addr: harness.FreeAddr(t)}
		n.data = filepath.Join(dir, n.id)
		var err error
		if n.log, err = os.Create(filepath.Join(dir, n.id+".log")); err != nil {
			t.Fatal(err)
		}
		n.flags = []string{"--bootstrap", "--log-level", "warn", "--raft-multiplier", "3"}
		if i > 0 {
			join := filepath.Join(c.nodes[0].data, "join.token")
			harness.Eventually(t, time.Minute, "the first node has made a join token", func() bool {
				_, err := os.Stat(join)
				return err == nil
			})
			if i == 1 {
				c.manyJoin(dir)
			}
			n.flags = append([]string{"--join", c.nodes[0].addr, "--token-file", filepath.Join(dir, "many.token")},
				n.flags[1:]...)
		}
		c.nodes = append(c.nodes, n)
		n.start()
	}
	harness.Eventually(t, time.Minute, "three voters", func() bool {
		s, err := c.admin().Status(t.Context())
		votes := 0
		for _, m := range s.Members {
			if m.Suffrage == "voter" {
				votes++
			}
		}
		return err == nil && votes == 3 && s.Ready
	})
	return c
}

// manyJoin makes a join token for both of the others.
func (c *flooded) manyJoin(dir string) {
	harness.Eventually(c.t, time.Minute, "the first node makes a join token", func() bool {
		made, err := c.admin().CreateJoinToken(c.t.Context(), client.JoinTokenRequest{Uses: 2, Voter: true})
		if err != nil {
			return false
		}
		return os.WriteFile(filepath.Join(dir, "many.token"), []byte(made.Text+"\n"), 0o600) == nil
	})
}

// admin speaks through the node that began the cluster.
func (c *flooded) admin() *client.Client {
	text, err := os.ReadFile(filepath.Join(c.nodes[0].data, "admin.token"))
	if err != nil {
		return client.New(c.nodes[0].addr, client.WithError(err))
	}
	return client.New(strings.Join(c.addrs(), ","), client.WithToken(strings.TrimSpace(string(text))))
}

func (c *flooded) addrs() (out []string) {
	for _, n := range c.nodes {
		out = append(out, n.addr)
	}
	return out
}

func (c *flooded) status(t *testing.T) client.Status {
	t.Helper()
	s, err := c.admin().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (c *flooded) byID(id string) *secureNode {
	return c.nodes[slices.IndexFunc(c.nodes, func(n *secureNode) bool { return n.id == id })]
}

// residentOf is what a process has in memory of its own.
func residentOf(t *testing.T, n *secureNode) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		t.Logf("memory is not looked at: %v", err)
		return 0
	}
	_, rest, _ := bytes.Cut(data, []byte("RssAnon:"))
	if f := bytes.Fields(rest); len(f) > 0 {
		kib, _ := strconv.ParseInt(string(f[0]), 10, 64)
		return kib << 10
	}
	return 0
}

// lagTarget notes how late runs come.
type lagTarget struct {
	*httptest.Server
	lags chan time.Duration
}

func newLagTarget(t *testing.T) *lagTarget {
	l := &lagTarget{lags: make(chan time.Duration, 1<<16)}
	l.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if key, err := job.ParseRunKey(r.Header.Get("Carillon-Run")); err == nil {
			select {
			case l.lags <- time.Since(time.UnixMilli(key.At)):
			default:
			}
		}
	}))
	t.Cleanup(l.Close)
	return l
}

// feed makes the jobs whose lags are looked at.
func (l *lagTarget) feed(t *testing.T, admin *client.Client) {
	t.Helper()
	for i := range 50 {
		if _, err := admin.CreateJob(t.Context(), job.Spec{Name: fmt.Sprint("tick-", i), Type: job.TypeHTTP,
			Schedule: "@every 1s", Payload: fmt.Appendf(nil, `{"url":%q}`, l.URL)}); err != nil {
			t.Fatal(err)
		}
	}
}

// next are the lags of the next runs, sorted. It fails if nothing runs.
func (l *lagTarget) next(t *testing.T, n int) []time.Duration {
	t.Helper()
	for len(l.lags) > 0 {
		<-l.lags
	}
	var out []time.Duration
	for len(out) < n {
		select {
		case d := <-l.lags:
			out = append(out, d)
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d runs came, and none for a minute", len(out), n)
		}
	}
	slices.Sort(out)
	return out
}

func at(sorted []time.Duration, percent int) time.Duration { return sorted[len(sorted)*percent/100] }

// flood is what strangers send to a node. They come from addresses of loopback that no member has.
type flood struct {
	t      *testing.T
	addr   string
	once   sync.Once
	done   chan struct{}
	all    sync.WaitGroup
	closed atomic.Int64 // connections that the node ended
}

func (f *flood) end() {
	f.once.Do(func() { close(f.done) })
	f.all.Wait()
}

func (f *flood) dial(from byte) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}, Timeout: 10 * time.Second}
	return d.Dial("tcp", f.addr)
}

// hold opens connections, says something or nothing on each, and leaves them open.
func (f *flood) hold(n int, from byte, say []byte) {
	for range n {
		conn, err := f.dial(from)
		if err != nil {
			f.closed.Add(1)
			continue
		}
		_, _ = conn.Write(say) // it may have been closed at once
		f.all.Go(func() {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = io.Copy(io.Discard, conn) // until either end closes it
			}()
			select {
			case <-ended:
				f.closed.Add(1)
			case <-f.done:
			}
			conn.Close()
			<-ended
		})
	}
}

// speak opens connections with TLS, begins a request and goes on with it for as long as the node lets it, then again.
func (f *flood) speak(n int, from byte, begin, more string) {
	for range n {
		f.all.Go(func() {
			for {
				conn, err := f.dial(from)
				if err == nil {
					stop := context.AfterFunc(doneContext(f.done), func() { conn.Close() })
					tc := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
					_, err = io.WriteString(tc, begin)
					for err == nil && more != "" {
						_, err = io.WriteString(tc, more)
					}
					_, _ = io.Copy(io.Discard, tc) // what it says, and that it closes
					stop()
					conn.Close()
				}
				f.closed.Add(1)
				select {
				case <-f.done:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
}

func doneContext(done chan struct{}) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-done
		cancel()
	}()
	return ctx
}

// register attempts registrations, each of another worker, and says how they were answered. One is two polls: the first
// opens a session, the second makes it known to the leader.
func (f *flood) register(token string, n int, limit time.Duration) func() map[int]int {
	var left atomic.Int64
	left.Store(int64(n))
	end := time.Now().Add(limit)
	var mu sync.Mutex
	counts := map[int]int{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			web := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
				DialContext: func(context.Context, string, string) (net.Conn, error) { return f.dial(8) }}
			defer web.CloseIdleConnections()
			for i := left.Add(-1); i >= 0 && time.Now().Before(end); i = left.Add(-1) {
				p := job.Poll{Worker: fmt.Sprint("w", i), Secret: "s", Types: []job.Type{job.TypeMessage}}
				var reply job.PollReply
				status := f.poll(web, token, p, &reply)
				if status == http.StatusOK {
					p.Session = reply.Session
					status = f.poll(web, token, p, &reply)
				}
				mu.Lock()
				counts[status]++
				mu.Unlock()
			}
		})
	}
	return func() map[int]int {
		all.Wait()
		return counts
	}
}

// poll asks the leader with a token; 0 is no answer.
func (f *flood) poll(web http.RoundTripper, token string, p job.Poll, reply *job.PollReply) int {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	rq, err := http.NewRequest("POST", "https://"+f.addr+"/api/v1/workers:poll", bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	rq.Header.Set("Content-Type", "application/json")
	status, text := ask(web, rq, token)
	if status == http.StatusOK && json.Unmarshal(text, reply) != nil {
		return 0
	}
	return status
}

// ask asks with a token and reads the whole answer; 0 is none.
func ask(web http.RoundTripper, rq *http.Request, token string) (status int, text []byte) {
	rq.Header.Set("Authorization", "Bearer "+token)
	res, err := web.RoundTrip(rq)
	if err != nil {
		return 0, nil
	}
	defer res.Body.Close()
	text, _ = io.ReadAll(res.Body)
	return res.StatusCode, text
}
