package node

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/propose"
)

// TestMain lets some more tests run than there are cores: nearly all of their time they wait for clocks, leases and
// elections; one uses a twentieth of a core. Many more would make elections where none are expected on a machine that is
// busy.
func TestMain(m *testing.M) {
	if !raceEnabled { // with the race detector they work; the command line is read later and may say otherwise
		if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)+4)); err != nil {
			panic(err)
		}
	}
	// net/http waits half a second before it closes a connection whose body was not read.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// long says whether all of it is asked for. Otherwise the longest tests do a part of what they can.
var long = os.Getenv("CARILLON_LONG") != ""

// onlyLong leaves a test to the runs that may be long.
func onlyLong(t *testing.T, why string) {
	t.Helper()
	if !long {
		t.Skip(why + "; set CARILLON_LONG=1")
	}
}

// realTime marks a test that waits for leases, elections or clocks in real time. It is left out with -short, as the race
// detector runs: the simulation runs the same code under the detector in virtual time.
func realTime(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("waits in real time; left out with -short")
	}
}

// testNode is a node of its own, served over a real port, with methods that speak its API.
type testNode struct {
	*Node
	t      *testing.T
	client *http.Client
	cancel context.CancelFunc
	done   chan error
}

func testConfig(t *testing.T, dir string) Config {
	level := slog.LevelWarn
	if testing.Verbose() && os.Getenv("CARILLON_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	return Config{
		NodeID: "n1", Listen: "127.0.0.1:0", DataDir: dir, Bootstrap: true, Version: "test", Slots: 32,
		Executors: []job.Type{job.TypeHTTP, job.TypeShell},
		Logger:    slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: level})),
		Raft:      RaftConfig{Heartbeat: 50 * time.Millisecond, SnapshotInterval: time.Hour},
		Store:     StoreConfig{MmapSize: 16 << 20, RecentNames: 20, NoSync: true, LockTimeout: 200 * time.Millisecond},
		Fatal:     func(err error) { t.Errorf("fatal: %v", err) },
		TTL:       3 * time.Second,
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Helper()
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// start opens a node in dir and waits until it is ready.
func start(t *testing.T, dir string, change ...func(*Config)) *testNode {
	t.Helper()
	cfg := testConfig(t, dir)
	for _, f := range change {
		f(&cfg)
	}
	n := open(t, cfg)
	n.eventually("ready", func() bool { return n.service.Ready() == nil })
	return n
}

// open opens a node that needs others to be ready.
func open(t *testing.T, cfg Config) *testNode {
	t.Helper()
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	tn := &testNode{Node: n, t: t, cancel: cancel, done: make(chan error, 1),
		client: clientOf(n)}
	go func() { tn.done <- n.Run(ctx) }()
	t.Cleanup(tn.kill)
	return tn
}

// clientOf is an HTTP client of a node. Of a secure one it knows the CA, and nothing else.
func clientOf(n *Node) *http.Client {
	t := &http.Transport{MaxIdleConnsPerHost: 100}
	if n.keys != nil {
		t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			cfg := keys.ClientConfig(n.keys.CAHash())
			cfg.NextProtos = []string{"http/1.1"}
			// the clocks of tests are not those of the machine
			verify := cfg.VerifyConnection
			cfg.VerifyConnection = func(cs tls.ConnectionState) error {
				if err := verify(cs); err != nil && !strings.Contains(err.Error(), "clock") {
					return err
				}
				return nil
			}
			return (&tls.Dialer{Config: cfg}).DialContext(ctx, network, addr)
		}
	}
	return &http.Client{Transport: t}
}

// prop is the proposer of the node's current leadership.
func (n *testNode) prop() *propose.Proposer { return n.tracker.Epoch().Proposer.(*propose.Proposer) }

// kill ends the node at the end of its test: nothing is drained or handed over, which takes time and is tested by those
// who call stop.
func (n *testNode) kill() {
	if n.done == nil {
		return
	}
	n.Node.Kill()
	select {
	case <-n.done: // with whatever it broke off
	case <-time.After(20 * time.Second):
		n.t.Error("the node does not end")
	}
	n.done = nil
	n.client.CloseIdleConnections()
}

// stop ends the node in good order and waits. It may be called twice.
func (n *testNode) stop() {
	n.cancel()
	if n.done == nil {
		return
	}
	select {
	case err := <-n.done:
		if err != nil {
			n.t.Errorf("Run: %v", err)
		}
	case <-time.After(20 * time.Second):
		n.t.Error("the node does not stop")
	}
	n.done = nil
	n.client.CloseIdleConnections()
}

func (n *testNode) eventually(what string, cond func() bool) {
	n.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if cond() {
			return
		}
	}
	n.t.Fatalf("never: %s%s", what, n.stacks())
}

// succeeds waits until what is tried works, and says in which words it was refused last if it never does.
func (n *testNode) succeeds(what string, try func() error) {
	n.t.Helper()
	var err error
	tries := 0
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		tries++
		if err = try(); err == nil {
			return
		}
	}
	n.t.Fatalf("never: %s (%d tries): %v%s", what, tries, err, n.stacks())
}

// stacks keeps where everything stood when a wait ended: what a minute was not enough for hangs somewhere.
func (n *testNode) stacks() string {
	f, err := os.CreateTemp("", "carillon-node-failed-*.log")
	if err != nil {
		return ""
	}
	defer f.Close()
	if n.group != nil && n.group.raft != nil {
		fmt.Fprintln(f, n.group.raft.Stats())
	}
	if err := pprof.Lookup("goroutine").WriteTo(f, 2); err != nil {
		return ""
	}
	return "\nthe stacks of this moment are in " + f.Name()
}

// answer is what the API said.
type apiAnswer struct {
	status int
	header http.Header
	body   []byte
}

func (a apiAnswer) problem() wire.Problem {
	var p wire.Problem
	_ = json.Unmarshal(a.body, &p)
	return p
}

func (n *testNode) call(method, path string, body any, headers ...string) apiAnswer {
	n.t.Helper()
	a, err := n.try(method, path, body, headers...)
	if err != nil {
		n.t.Fatal(err)
	}
	return a
}

func (n *testNode) try(method, path string, body any, headers ...string) (apiAnswer, error) {
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	default:
		data, err := json.Marshal(b)
		if err != nil {
			return apiAnswer{}, err
		}
		in = bytes.NewReader(data)
	}
	r, err := http.NewRequest(method, "http://"+n.Addr()+path, in)
	if err != nil {
		return apiAnswer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := n.client.Do(r)
	if err != nil {
		return apiAnswer{}, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return apiAnswer{res.StatusCode, res.Header, data}, err
}

// answered calls until there is a leader to answer: one that has to wait for a processor loses its place for a moment.
func (n *testNode) answered(method, path string, body any, headers ...string) (a apiAnswer) {
	n.t.Helper()
	n.eventually("a leader answers "+method+" "+path, func() bool {
		a = n.call(method, path, body, headers...)
		return a.status != http.StatusServiceUnavailable || a.problem().Code != job.CodeNoLeader
	})
	return a
}

// ok calls and reads the answer, which must be a success. As a client does, it repeats what a leader was lost under.
func ok[T any](n *testNode, method, path string, body any, headers ...string) T {
	n.t.Helper()
	if method != "GET" && !slices.Contains(headers, "Idempotency-Key") {
		headers = append(slices.Clip(headers), "Idempotency-Key", rand.Text())
	}
	var a apiAnswer
	n.eventually(method+" "+path+" is done or not", func() bool {
		a = n.answered(method, path, body, headers...)
		return a.status != http.StatusServiceUnavailable || a.problem().Code != job.CodeOutcomeUnknown
	})
	var v T
	if a.status/100 != 2 {
		n.t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	if len(a.body) > 0 {
		if err := json.Unmarshal(a.body, &v); err != nil {
			n.t.Fatalf("%s %s: %v in %s", method, path, err, a.body)
		}
	}
	return v
}

func (n *testNode) create(body any, headers ...string) job.Job {
	n.t.Helper()
	return ok[job.Job](n, "POST", "/api/v1/jobs", body, headers...)
}

func (n *testNode) get(ref string) job.Job {
	n.t.Helper()
	return ok[job.Job](n, "GET", "/api/v1/jobs/"+ref, nil)
}

// runs is everything the job's history says, newest first.
func (n *testNode) runs(ref string) []job.Run {
	n.t.Helper()
	var all []job.Run
	cursor := ""
	for {
		p := ok[wire.RunPage](n, "GET", "/api/v1/jobs/"+ref+"/runs?limit=50&cursor="+cursor, nil)
		all = append(all, p.Runs...)
		if cursor = p.NextCursor; cursor == "" {
			return all
		}
	}
}

func (n *testNode) count(ref string, status job.RunStatus) int {
	n.t.Helper()
	c := 0
	for _, r := range n.runs(ref) {
		if r.Status == status {
			c++
		}
	}
	return c
}

// target is an HTTP server that counts what it is asked, by idempotency key.
type target struct {
	*httptest.Server
	mu     sync.Mutex
	keys   map[string]int
	last   http.Header
	status int
	delay  time.Duration
}

func newTarget(t *testing.T) *target {
	tg := &target{keys: map[string]int{}, status: 200}
	tg.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tg.mu.Lock()
		tg.keys[r.Header.Get("Idempotency-Key")]++
		tg.last = r.Header.Clone()
		status, delay := tg.status, tg.delay
		tg.mu.Unlock()
		time.Sleep(delay)
		w.WriteHeader(status)
		fmt.Fprintln(w, "seen")
	}))
	t.Cleanup(tg.Close)
	return tg
}

func (tg *target) set(status int) {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	tg.status = status
}

func (tg *target) seen() map[string]int {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	return maps.Clone(tg.keys)
}

// spec makes a job that calls the target.
func (tg *target) spec(name, schedule string, more ...any) map[string]any {
	m := map[string]any{"name": name, "type": "http", "schedule": schedule, "payload": map[string]any{"url": tg.URL}}
	if name == "" {
		delete(m, "name")
	}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}
