package proof

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// composeFile is everything that deploy/compose.yaml may say. What a test does not know how to replay is an error.
type composeFile struct {
	Image    any                       `yaml:"x-image"`
	Node     any                       `yaml:"x-node"`
	Services map[string]composeService `yaml:"services"`
	Volumes  map[string]any            `yaml:"volumes"`
}

type composeService struct {
	Image string `yaml:"image"`
	Build struct {
		Context string            `yaml:"context"`
		Args    map[string]string `yaml:"args"`
	} `yaml:"build"`
	DependsOn map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	Restart     string   `yaml:"restart"`
	Grace       string   `yaml:"stop_grace_period"`
	Command     []string `yaml:"command"`
	Ports       []string `yaml:"ports"`
	Volumes     []string `yaml:"volumes"`
	Healthcheck struct {
		Test        []string `yaml:"test"`
		Interval    string   `yaml:"interval"`
		Timeout     string   `yaml:"timeout"`
		StartPeriod string   `yaml:"start_period"`
		Retries     int      `yaml:"retries"`
	} `yaml:"healthcheck"`
}

// composed replays the services of a compose file as processes of this machine: a volume is a directory, the name of a
// service is the loopback address, and the port that all of them have is one of its own for each.
type composed struct {
	t      *testing.T
	binary string
	dir    string
	file   composeFile
	ports  map[string]string // by service
	procs  map[string]*exec.Cmd
}

func newComposed(t *testing.T) *composed {
	t.Helper()
	c := &composed{t: t, binary: harness.Build(t), dir: t.TempDir(), ports: map[string]string{},
		procs: map[string]*exec.Cmd{}}
	data, err := os.ReadFile(filepath.Join(harness.Sources(t), "deploy", "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalWithOptions(data, &c.file, yaml.Strict()); err != nil {
		t.Fatalf("what the file says is more than this test replays: %v", err)
	}
	for name := range c.file.Services {
		_, c.ports[name], _ = net.SplitHostPort(harness.FreeAddr(t))
	}
	for v := range c.file.Volumes {
		if err := os.Mkdir(filepath.Join(c.dir, v), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, name := range slices.Sorted(maps.Keys(c.procs)) {
			c.end(name, syscall.SIGKILL)
			if data, err := os.ReadFile(c.log(name)); err == nil && t.Failed() {
				t.Logf("%s:\n%s", name, data)
			}
		}
	})
	return c
}

func (c *composed) log(name string) string { return filepath.Join(c.dir, name+".log") }

// args are the arguments of a service's command, as they are on this machine.
func (c *composed) args(name string, argv []string) (out []string) {
	c.t.Helper()
	mounts := map[string]string{}
	for _, v := range c.file.Services[name].Volumes {
		parts := strings.Split(v, ":")
		if len(parts) < 2 || len(parts) == 3 && parts[2] != "ro" || len(parts) > 3 {
			c.t.Fatalf("%s: what is the volume %q?", name, v)
		}
		mounts[parts[1]] = filepath.Join(c.dir, parts[0])
	}
	for _, a := range argv {
		var list []string
		for part := range strings.SplitSeq(a, ",") {
			scheme, rest := "", part
			if path, ok := strings.CutPrefix(part, "unix:"); ok {
				scheme, rest = "unix:", path
			}
			for at, dir := range mounts {
				if rest == at || strings.HasPrefix(rest, at+"/") {
					rest = dir + strings.TrimPrefix(rest, at)
					break
				}
			}
			if host, port, err := net.SplitHostPort(rest); err == nil {
				switch other := c.ports[host]; {
				case port != "7400":
					c.t.Fatalf("%s: the port of %q", name, part)
				case host == "0.0.0.0":
					rest = net.JoinHostPort(host, c.ports[name])
				case other == "":
					c.t.Fatalf("%s: %q is no service", name, part)
				default:
					rest = net.JoinHostPort("127.0.0.1", other)
				}
			} else if strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, c.dir) {
				c.t.Fatalf("%s: %q is in no volume", name, part)
			}
			list = append(list, scheme+rest)
		}
		out = append(out, strings.Join(list, ","))
	}
	return out
}

func (c *composed) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(c.binary, args...)
	cmd.Env = []string{"PATH=/nowhere"} // as in the image: no home, nothing
	return cmd
}

// up starts everything that does not run, each when what it depends on has ended well.
func (c *composed) up() {
	c.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(c.file.Services)) {
		for dep, d := range c.file.Services[name].DependsOn {
			if d.Condition != "service_completed_successfully" {
				c.t.Fatalf("%s waits for %s to be %s", name, dep, d.Condition)
			}
			s := c.file.Services[dep]
			if out, err := c.command(dep, c.args(dep, s.Command)...).CombinedOutput(); err != nil {
				c.t.Fatalf("%s: %v: %s", dep, err, out)
			}
		}
	}
	nodes := c.nodes()
	slices.Reverse(nodes) // those that join may well be the first
	for _, name := range nodes {
		c.start(name)
	}
}

// nodes are the services that stay.
func (c *composed) nodes() (names []string) {
	for name, s := range c.file.Services {
		if s.Restart != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (c *composed) start(name string) {
	c.t.Helper()
	log, err := os.OpenFile(c.log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd := c.command(name, c.args(name, c.file.Services[name].Command)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.procs[name] = cmd
}

func (c *composed) end(name string, sig syscall.Signal) {
	if cmd := c.procs[name]; cmd != nil && cmd.ProcessState == nil {
		_ = cmd.Process.Signal(sig)
		_ = cmd.Wait()
	}
}

// healthy waits until the health check of every node says so.
func (c *composed) healthy() {
	c.t.Helper()
	for _, name := range c.nodes() {
		test := c.file.Services[name].Healthcheck.Test
		if len(test) < 3 || test[0] != "CMD" || test[1] != "/carillon" {
			c.t.Fatalf("%s: the health check %q", name, test)
		}
		args := c.args(name, test[2:])
		harness.Eventually(c.t, time.Minute, name+" is healthy", func() bool {
			return c.command(name, args...).Run() == nil
		})
	}
}

// adminToken is where the one that founded the cluster left it. By the names of the services that is n1.
func (c *composed) adminToken() string {
	for _, name := range append(c.nodes(), ".") {
		path := filepath.Join(c.dir, name, "admin.token")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// status is what the command line says over the port of a node, with the admin's token.
func (c *composed) status(name string) (s client.Status, err error) {
	out, err := c.command(name, "--addr", "127.0.0.1:"+c.ports[name], "--token-file", c.adminToken(), "status",
		"--json").Output()
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	return s, err
}

// three waits until the nodes are three voters of one cluster, and returns its id.
func (c *composed) three() (cluster string) {
	c.t.Helper()
	harness.Eventually(c.t, time.Minute, "three voters of one cluster", func() bool {
		ids := map[string]bool{}
		for _, name := range c.nodes() {
			s, err := c.status(name)
			if err != nil {
				return false
			}
			voters := 0
			for _, m := range s.Members {
				if m.Suffrage == "voter" {
					voters++
				}
			}
			if ids[s.ClusterID] = true; voters != 3 || s.Insecure {
				return false
			}
			cluster = s.ClusterID
		}
		return len(ids) == 1
	})
	return cluster
}

// The compose file starts a secure cluster unattended, each time: after a power failure too, and after
// the volume of the first node is gone it does not begin a second one.
func TestComposeFileStartsSecureCluster(t *testing.T) {
	beside(t)
	c := newComposed(t)
	c.up()
	c.healthy()
	cluster := c.three()

	// The port answers strangers neither in plain text nor with TLS.
	res, err := http.Get("http://127.0.0.1:" + c.ports["n2"] + "/api/v1/jobs")
	if err != nil || res.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP: %v, %v", res, err)
	} else {
		res.Body.Close()
	}
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for path, want := range map[string]int{"/healthz": 200, "/api/v1/jobs": 401, "/api/v1/status": 401, "/metrics": 401} {
		res, err := stranger.Get("https://127.0.0.1:" + c.ports["n2"] + path)
		if err != nil || res.StatusCode != want {
			t.Errorf("%s without a token: %v, %v", path, res, err)
			continue
		}
		res.Body.Close()
	}

	for _, name := range c.nodes() {
		c.end(name, syscall.SIGKILL)
	}
	c.up()
	c.healthy()
	if again := c.three(); again != cluster {
		t.Errorf("cluster %s became %s", cluster, again)
	}

	c.end("n1", syscall.SIGKILL)
	if err := os.Rename(c.adminToken(), filepath.Join(c.dir, "admin.token")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(c.dir, "n1")); err != nil {
		t.Fatal(err)
	}
	c.start("n1")
	harness.Eventually(t, time.Minute, "n1 says that it is not taken in", func() bool {
		text, err := os.ReadFile(c.log("n1"))
		return err == nil && strings.Contains(string(text), "formation_refused") &&
			strings.Contains(string(text), "carillon cluster remove n1")
	})
	c.end("n1", syscall.SIGTERM)

	// As the file says: a join token where the nodes look for one, and the same command.
	admin := []string{"--addr", "127.0.0.1:" + c.ports["n2"], "--token-file", filepath.Join(c.dir, "admin.token")}
	harness.Eventually(t, time.Minute, "n1 is removed", func() bool {
		return c.command("n2", append(admin, "cluster", "remove", "n1")...).Run() == nil
	})
	if out, err := c.command("n2", c.args("n1", []string{"--addr", "unix:" + filepath.Join(c.dir, "n2", "admin.sock"),
		"cluster", "token", "create", "--voter", "--out", "/keys/join.token"})...).CombinedOutput(); err != nil ||
		strings.Contains(string(out), "cj1.") {
		t.Fatalf("%s: %v", out, err)
	}
	c.start("n1")
	c.healthy()
	if again := c.three(); again != cluster {
		t.Errorf("cluster %s became %s", cluster, again)
	}
}

// A node that others reach is secure unless --insecure is given. That is said by every node of the cluster, also by one
// that listens on the loopback interface only, and a directory keeps the mode that it began with.
func TestInsecureIsSaidEverywhere(t *testing.T) {
	beside(t)
	binary, dir := harness.Build(t), t.TempDir()
	begin := func(id, listen string, more ...string) *exec.Cmd {
		return exec.Command(binary, append([]string{"server", "--node-id", id, "--listen", listen, "--data-dir",
			filepath.Join(dir, id), "--min-free-disk", "0", "--executors", "none"}, more...)...)
	}
	addrs := []string{harness.FreeAddr(t), harness.FreeAddr(t)}
	_, port, _ := net.SplitHostPort(addrs[0])
	all := "0.0.0.0:" + port
	open := []string{"--advertise", addrs[0], "--insecure"}
	var procs []*exec.Cmd
	for i, cmd := range []*exec.Cmd{begin("n1", all, append(open, "--bootstrap")...),
		begin("n2", addrs[1], "--join", addrs[0])} {
		log, err := os.Create(filepath.Join(dir, fmt.Sprint(i, ".log")))
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		log.Close()
		procs = append(procs, cmd)
		t.Cleanup(func() {
			if cmd.ProcessState == nil {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		})
	}
	for i, addr := range addrs {
		harness.Eventually(t, time.Minute, addr+" says that the cluster is insecure", func() bool {
			text, err := exec.Command(binary, "--addr", addr, "status").Output()
			if err != nil || !strings.Contains(string(text), "! the cluster is insecure (--insecure on n1)") {
				return false
			}
			c := client.New(addr)
			s, err := c.Status(t.Context())
			return err == nil && s.Insecure && len(s.Members) == 2
		})
		metrics, err := client.New(addr).Metrics(t.Context())
		if want := fmt.Sprintf("\ncarillon_insecure %d\n", 1-i); err != nil || !strings.Contains(string(metrics), want) {
			t.Errorf("%s: %v, no %q", addr, err, want)
		}
	}
	if log, err := os.ReadFile(filepath.Join(dir, "0.log")); err != nil ||
		strings.Count(string(log), `level=WARN msg="node is insecure"`) != 1 {
		t.Errorf("%v: %s", err, log)
	}
	for _, p := range procs {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	refused := func(cmd *exec.Cmd, want string) {
		t.Helper()
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v: %s", cmd.Args, err, out)
		}
	}
	refused(begin("n1", all, "--advertise", addrs[0], "--bootstrap"), "is not secure: start the node with --insecure")
	refused(begin("n2", addrs[1], "--secure"), "is not secure: start the node with --insecure")

	// The other way round: a directory of a secure cluster.
	safe := begin("n3", all, "--bootstrap")
	safe.Stderr = nil
	if err := safe.Start(); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, time.Minute, "a secure node", func() bool {
		return exec.Command(binary, "--addr", "unix:"+filepath.Join(dir, "n3", "admin.sock"), "status", "--ready").Run() ==
			nil
	})
	_ = safe.Process.Kill()
	_ = safe.Wait()
	refused(begin("n3", all, "--insecure"), "is secure: start the node with --secure and without --insecure")
	refused(begin("n3", addrs[0]), "is secure: start the node with --secure and without --insecure")
}
