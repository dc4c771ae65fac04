package cmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/internal/enroll"
	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// withNode puts something in place of a node.
func withNode(t *testing.T, start func(context.Context, ServerConfig, func(string)) error) {
	t.Helper()
	old := startNode
	startNode = start
	t.Cleanup(func() { startNode = old })
}

func TestDev(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var got ServerConfig
	withNode(t, func(_ context.Context, cfg ServerConfig, ready func(string)) error {
		got = cfg
		if _, err := os.Stat(cfg.DataDir); err != nil {
			t.Error(err)
		}
		ready("127.0.0.1:9999")
		return context.Canceled
	})
	s := newShell(t)
	out, errOut, code := s.run("", "dev")
	if code != 0 {
		t.Fatal(errOut)
	}
	if _, err := os.Stat(got.DataDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there", got.DataDir)
	}
	if got.Listen != "127.0.0.1:7400" || !got.Bootstrap || !got.Dev ||
		!reflect.DeepEqual(got.Executors, executor.NodeTypes()) {
		t.Errorf("%+v", got)
	}
	golden(t, strings.ReplaceAll(out, got.DataDir, "DIR"))

	dir := filepath.Join(t.TempDir(), "kept")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, _, code := s.run("", "dev", "--data-dir", dir, "--listen", "127.0.0.1:0"); code != 0 || got.DataDir != dir ||
		got.Listen != "127.0.0.1:0" || !strings.Contains(out, "(kept)") {
		t.Error(out, code, got)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}

func TestServer(t *testing.T) {
	var got ServerConfig
	withNode(t, func(_ context.Context, cfg ServerConfig, ready func(string)) error {
		got = cfg
		ready("127.0.0.1:1")
		return job.Errorf(job.CodeInvalid, "stop the other node", "the data directory is in use")
	})
	s := newShell(t)
	_, errOut, code := s.run("", "server", "--node-id", "n1", "--data-dir", "d", "--bootstrap", "--listen",
		"10.0.0.1:7400", "--advertise", "n1:7400", "--executors", "http,shell",
		"--slots", "8", "--tags", "zone=a,disk=ssd", "--history-max-age", "1h", "--history-max-count", "5", "--log-format",
		"json", "--log-level", "debug", "--pprof", "--raft-multiplier", "3")
	got.SnapshotInterval, got.SnapshotThreshold = 0, 0
	want := ServerConfig{NodeID: "n1", Listen: "10.0.0.1:7400", Advertise: "n1:7400", DataDir: "d", Bootstrap: true,
		toolFlags: toolFlags{Executors: []string{"http", "shell"}}, Slots: 8,
		Tags: map[string]string{"zone": "a", "disk": "ssd"}, HistoryMaxAge: time.Hour, HistoryMaxCount: 5, LogFormat: "json",
		LogLevel: "debug", Pprof: true, RaftMultiplier: 3, Settings: enroll.Settings{Secure: true}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	lines := logLines(t, []byte(errOut))
	if failed := event(lines, "command failed"); code != exit.Usage ||
		event(lines, "serving")["address"] != "127.0.0.1:1" || failed["error"] != "the data directory is in use" ||
		failed["remedy"] != "stop the other node" {
		t.Error(errOut, code)
	}
	_, errOut, _ = s.run("", "server", "--node-id", "n1", "--data-dir", "d", "--log-level", "warn")
	if errOut != "carillon n1 serves on http://127.0.0.1:1\nerror: the data directory is in use\nhint: stop the other node\n" {
		t.Error(errOut)
	}
	// --insecure is said at the start, whatever is logged otherwise, and once.
	_, errOut, _ = s.run("", "server", "--node-id", "n1", "--data-dir", "d", "--listen", "10.0.0.1:7400", "--insecure",
		"--log-level", "error")
	if got.Secure || !got.Insecure || strings.Count(errOut, "insecure") != 1 || !strings.Contains(errOut,
		`level=WARN msg="node is insecure"`) {
		t.Errorf("%s\n%+v", errOut, got)
	}
	if _, errOut, code := s.run("", "server", "--node-id", "n1", "--data-dir", "d", "--secure", "--insecure"); code !=
		exit.Usage || !strings.Contains(errOut, "--secure and --insecure exclude each other") {
		t.Error(errOut, code)
	}
	s.run("", "server", "--node-id", "n1", "--data-dir", "d", "--allowed-hosts", "sched.example.com,lb:7400")
	if !reflect.DeepEqual(got.AllowedHosts, []string{"sched.example.com", "lb:7400"}) {
		t.Error(got.AllowedHosts)
	}
	if _, errOut, code := s.run("", "server", "--node-id", "n1", "--data-dir", "d", "--allowed-hosts",
		"https://sched.example.com"); code != exit.Usage || !strings.Contains(errOut, "--allowed-hosts: ") {
		t.Error(errOut, code)
	}
	s.run("", "server", "--node-id", "n1", "--data-dir", "d", "--executors", "none")
	if len(got.Executors) != 0 {
		t.Error(got.Executors)
	}
}

// What bounds shell jobs reaches the node, flag by flag.
func TestServerShellFlags(t *testing.T) {
	var got ServerConfig
	withNode(t, func(_ context.Context, cfg ServerConfig, _ func(string)) error {
		got = cfg
		return context.Canceled
	})
	s := newShell(t)
	base := []string{"server", "--node-id", "n1", "--data-dir", "d"}
	_, errOut, code := s.run("",
		append(base, "--shell-memory", "512MiB", "--shell-processes", "7", "--shell-cpu", "90s", "--shell-open-files", "64",
			"--shell-file-size", "1GiB",
			"--shell-user", "batch,team-a=web", "--shell-user", "team-b=www", "--shell-users", "mail,team-a=web", "--shell-cgroup", "none")...)
	want := executor.ShellOptions{User: []string{"batch", "team-a=web", "team-b=www"},
		Users: []string{"mail", "team-a=web"}, Cgroup: "none",
		Limits: job.ShellLimits{Memory: 512 << 20, Processes: 7, CPU: job.Duration(90 * time.Second), OpenFiles: 64,
			FileSize: 1 << 30}}
	if code != 0 || !reflect.DeepEqual(got.Shell, want) {
		t.Errorf("exit %d %s%+v\nwant %+v", code, errOut, got.Shell, want)
	}
	for flag, list := range map[string][]string{"--shell-user": {"a,b", "x=a,x=b", "Team=a", "x=", "=a", "a b"},
		"--shell-users": {"Team=a", "x=", "=a"}} {
		for _, bad := range list {
			if _, errOut, code := s.run("", append(base, flag, bad)...); code != exit.Usage ||
				!strings.Contains(errOut, flag+": ") {
				t.Errorf("%s %s: exit %d %s", flag, bad, code, errOut)
			}
		}
	}
	for _, bad := range []string{"-1s", "1", "soon", "300ms"} {
		if _, errOut, code := s.run("", append(base, "--shell-cpu", bad)...); code != exit.Usage ||
			!strings.Contains(errOut, "--shell-cpu") {
			t.Errorf("%s: exit %d %s", bad, code, errOut)
		}
	}
}

// What jobs may connect to reaches the node, by flags and, for a proxy with a password, by the environment. A worker
// has the same flags.
func TestEgressFlags(t *testing.T) {
	var got ServerConfig
	withNode(t, func(_ context.Context, cfg ServerConfig, _ func(string)) error {
		got = cfg
		return context.Canceled
	})
	s := newShell(t)
	base := []string{"server", "--node-id", "n1", "--data-dir", "d"}
	_, errOut, code := s.run("", append(base, "--egress-allow", "loopback,10.0.0.0/8", "--egress-allow",
		"api.example.com:443", "--egress-deny", "all", "--egress-proxy", "http://u:pssst@proxy.example.com:3128")...)
	want := egress.Config{Allow: []string{"loopback", "10.0.0.0/8", "api.example.com:443"}, Deny: []string{"all"},
		Proxy: "http://u:pssst@proxy.example.com:3128"}
	if code != 0 || !reflect.DeepEqual(got.Egress, want) || strings.Contains(errOut, "pssst") {
		t.Errorf("exit %d %s%+v\nwant %+v", code, errOut, got.Egress, want)
	}
	s.env["CARILLON_EGRESS_PROXY"] = "socks5://proxy.example.com"
	if s.run("", base...); got.Egress.Proxy != "socks5://proxy.example.com" {
		t.Errorf("%+v", got.Egress)
	}
	clear(s.env)
	for _, command := range [][]string{base, {"worker"}} {
		for _, bad := range [][2]string{{"--egress-allow", "10.0.0.0/33"}, {"--egress-deny", "http://x/"},
			{"--egress-proxy", "ftp://u:pssst@proxy"}} {
			_, errOut, code := s.run("", append(slices.Clone(command), bad[:]...)...)
			if code != exit.Usage || !strings.Contains(errOut, "error: "+bad[0]+": ") ||
				!strings.Contains(errOut, "hint: use ") || strings.Contains(errOut, "pssst") {
				t.Errorf("%s %s: exit %d %s", command[0], bad, code, errOut)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	old := checkData
	t.Cleanup(func() { checkData = old })
	problems := 0
	checkData = func(dir string) (r datadir.CheckResult, err error) {
		if dir == "missing" {
			return r, job.Errorf(job.CodeNotFound, "", "there is no data in %s", dir)
		}
		for i := range problems {
			r.Problems = append(r.Problems, fmt.Sprintf("problem %d", i))
		}
		return r, nil
	}
	s := newShell(t)
	if out, _, code := s.run("", "check", "d"); code != 0 || out != "d is sound\n" {
		t.Error(out, code)
	}
	problems = 2
	if out, errOut, code := s.run("", "check", "d"); code != exit.Failure || out != "problem 0\nproblem 1\n" ||
		!strings.Contains(errOut, "2 problems") {
		t.Error(out, errOut, code)
	}
	out, _, code := s.run("", "check", "d", "--json")
	var r checkResult
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exit.Failure || r.Problems != 2 ||
		len(r.Findings) != 2 {
		t.Error(out, code, err)
	}
	if _, _, code := s.run("", "check", "missing"); code != exit.NotFound {
		t.Error(code)
	}
}

// unsteady is a node that sometimes has no status.
type unsteady struct {
	api.Backend
	fails func() error
}

func (u unsteady) Status(ctx context.Context, rd api.Read) (client.Status, error) {
	if err := u.fails(); err != nil {
		return client.Status{}, err
	}
	return u.Backend.Status(ctx, rd)
}

// A watch goes on over errors and ends well when it is interrupted.
func TestWatch(t *testing.T) {
	s := newShell(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	s.wrap = func(b api.Backend) api.Backend {
		return unsteady{b, func() error {
			if n++; n == 2 {
				return job.Errorf(job.CodeUnavailable, "", "for a moment")
			}
			if n == 3 {
				cancel()
			}
			return nil
		}}
	}
	a := s.app()
	root := a.root()
	var out, errOut strings.Builder
	root.SetOut(&out)
	root.SetErr(&errOut)
	a.args = []string{"status", "--watch=100ms"}
	if code := a.execute(ctx, root, &errOut); code != 0 || !strings.Contains(errOut.String(), "for a moment") ||
		!strings.Contains(out.String(), "n1 (leader)") {
		t.Error(code, out.String(), errOut.String())
	}
}

func TestGroupsOfACluster(t *testing.T) {
	var got []values.Groups
	withNode(t, func(_ context.Context, c ServerConfig, _ func(string)) error {
		got = append(got, c.Groups)
		return nil
	})
	begin := []string{"server", "--node-id", "n1", "--data-dir", "d", "--insecure"}
	for _, bad := range [][]string{
		{"--bootstrap", "--groups", "0"}, {"--bootstrap", "--groups", "65"}, {"--bootstrap", "--groups", "x"},
		{"--bootstrap", "--groups", "-1"}, {"--join", "127.0.0.1:7400", "--groups", "4"},
	} {
		_, errOut, code := newShell(t).run("", append(slices.Clone(begin), bad...)...)
		if code != exit.Usage || !strings.Contains(errOut, "--groups") ||
			!strings.Contains(errOut, "use a number from 1 to 64") && !strings.Contains(errOut, "leave out --groups") {
			t.Errorf("%v: %d %s", bad, code, errOut)
		}
	}
	if len(got) > 0 {
		t.Errorf("started with %v", got)
	}
	for _, good := range [][]string{{"--bootstrap"}, {"--bootstrap", "--groups", "64"}, {"--groups", "4"}} {
		if _, errOut, code := newShell(t).run("", append(slices.Clone(begin), good...)...); code != 0 {
			t.Errorf("%v: %d %s", good, code, errOut)
		}
	}
	if want := []values.Groups{0, 64, 4}; !slices.Equal(got, want) {
		t.Errorf("started with %v, not %v", got, want)
	}
}

func TestRaftMultiplierIsBounded(t *testing.T) {
	withNode(t, func(context.Context, ServerConfig, func(string)) error {
		t.Error("started")
		return nil
	})
	for _, args := range [][]string{{"server", "--node-id", "n1", "--data-dir", "d", "--bootstrap"}, {"dev"}} {
		for _, bad := range []string{"0", "-1", "11"} {
			_, errOut, code := newShell(t).run("", append(args, "--raft-multiplier", bad)...)
			if code != exit.Usage || !strings.Contains(errOut, "--raft-multiplier") ||
				!strings.Contains(errOut, "use 1 (fast) to 10") {
				t.Errorf("%s %s: %d %s", args[0], bad, code, errOut)
			}
		}
	}
}

// TestCheckAgainst compares a directory with what a running node says of its log.
func TestCheckAgainst(t *testing.T) {
	old := checkData
	t.Cleanup(func() { checkData = old })
	of := lineage.Cluster{ID: "c", Epoch: 1}
	checkData = func(string) (datadir.CheckResult, error) {
		return datadir.CheckResult{Ends: []datadir.End{{Cluster: of, Index: 7, Chain: 255},
			{Group: 2, Cluster: of, Index: 9, Chain: 1}}}, nil
	}
	for name, tc := range map[string]struct {
		zero, two client.LogHash // two without a cluster: that node has no replica
		code      int
		want      []string
	}{
		"same": {client.LogHash{Hash: "00000000000000ff"}, client.LogHash{Hash: "0000000000000001"}, 0,
			[]string{"d is sound", "group 0 is the same as that of node n1 up to entry 7", "up to entry 9"}},
		"differs": {client.LogHash{Hash: "00000000000000fe"}, client.LogHash{Hash: "0000000000000001"}, exit.Failure,
			[]string{"group 0 differs from that of node n1 at entry 7 or before it"}},
		"too old": {client.LogHash{Oldest: 100, Applied: 200}, client.LogHash{Oldest: 1, Applied: 8}, 0,
			[]string{"ends at entry 7, and node n1 only remembers entries from 100 on", "ends at entry 9, and that of node n1 at 8"}},
		"elsewhere": {client.LogHash{ClusterID: "other", Hash: "00000000000000fe"}, client.LogHash{NodeID: "none"}, 0,
			[]string{"node n1 to cluster other", "has no replica"}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				q := r.URL.Query()
				h := tc.zero
				if q.Get("group") == "2" {
					h = tc.two
				}
				if h.NodeID == "none" {
					w.Header().Set("Content-Type", "application/problem+json")
					w.WriteHeader(http.StatusNotFound)
					fmt.Fprint(w, `{"code":"not_found","title":"none","status":404}`)
					return
				}
				h.NodeID, h.ClusterID, h.Epoch = "n1", cmp.Or(h.ClusterID, "c"), 1
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(h)
			}))
			defer srv.Close()
			s := newShell(t)
			out, errOut, code := s.run("", "check", "d", "--against", srv.URL)
			for _, want := range tc.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in %s%s", want, out, errOut)
				}
			}
			if code != tc.code {
				t.Errorf("exit %d: %s%s", code, out, errOut)
			}
		})
	}
}
