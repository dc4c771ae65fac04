package charttest

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/strvals"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// hang ends what waits for something that does not come.
const hang = 2 * time.Minute

// kubernetes replays the pods of the chart as processes of this machine, and the commands of its README: a volume is a
// directory, the name of a pod is the loopback address, and the port that all of them have is one of its own for each.
// What it does not know how to replay is an error.
type kubernetes struct {
	t       *testing.T
	dir     string // volumes, logs
	work    string // where commands are typed
	values  map[string]any
	sts     *appsv1.StatefulSet
	secrets map[string]map[string]string
	deleted map[string]bool // claims that go with their pods
	ports   map[string]string
	procs   map[string]*process
}

// process is that of a pod.
type process struct {
	*exec.Cmd
	done chan struct{} // closed when it has ended, with err
	err  error
}

func newKubernetes(t *testing.T) *kubernetes {
	t.Helper()
	if _, err := binary(); err != nil {
		t.Fatal(err)
	}
	// The path of a socket is short: that of t.TempDir may not be.
	dir, err := os.MkdirTemp("", "chart-")
	if err != nil {
		t.Fatal(err)
	}
	k := &kubernetes{t: t, dir: dir, work: t.TempDir(), secrets: map[string]map[string]string{},
		deleted: map[string]bool{}, ports: map[string]string{}, procs: map[string]*process{}}
	// Other tests keep this machine busy.
	k.values = map[string]any{"extraArgs": []any{"--raft-multiplier=5"}}
	t.Cleanup(func() {
		for _, name := range slices.Sorted(maps.Keys(k.procs)) {
			_ = k.end(name, syscall.SIGKILL)
			if t.Failed() {
				t.Logf("%s:\n%s", name, k.logs(name))
			}
		}
		os.RemoveAll(dir)
	})
	return k
}

// eventually waits for an event that tells by itself whether it has happened.
func (k *kubernetes) eventually(what string, cond func() bool) {
	k.t.Helper()
	for end := time.Now().Add(hang); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			k.t.Fatalf("still not: %s", what)
		}
	}
}

// reserve is a port that the kernel chose and gives to no one else until the test ends: a socket is bound to it and never
// listens, so that others with SO_REUSEADDR, which net.Listen sets, may.
func reserve(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(sa.(*syscall.SockaddrInet4).Port)
}

// apply takes over what the chart makes of the values.
func (k *kubernetes) apply(set []string) {
	k.t.Helper()
	for _, s := range set {
		if err := strvals.ParseInto(s, k.values); err != nil {
			k.t.Fatal(err)
		}
	}
	values, err := yaml.Marshal(k.values)
	if err != nil {
		k.t.Fatal(err)
	}
	k.sts = get[*appsv1.StatefulSet](k.t, mustRender(k.t, "carillon", string(values)), "StatefulSet carillon")
	// The node at the lowest address, as text, founds the cluster: as by their names, that is the first.
	fresh := k.pods()[len(k.ports):]
	var ports []string
	for range fresh {
		ports = append(ports, reserve(k.t))
	}
	slices.Sort(ports)
	for i, name := range fresh {
		k.ports[name] = ports[i]
	}
}

// pods are the names of the StatefulSet's pods.
func (k *kubernetes) pods() (names []string) {
	for i := range *k.sts.Spec.Replicas {
		names = append(names, fmt.Sprintf("%s-%d", k.sts.Name, i))
	}
	return names
}

func (k *kubernetes) container() corev1.Container { return k.sts.Spec.Template.Spec.Containers[0] }

func (k *kubernetes) volume(pod string) string { return filepath.Join(k.dir, pod) }

func (k *kubernetes) logs(pod string) string {
	data, _ := os.ReadFile(k.volume(pod) + ".log")
	return string(data)
}

// mounts makes the volumes of a pod as kubelet does, and says where they are.
func (k *kubernetes) mounts(pod string) map[string]string {
	k.t.Helper()
	at := map[string]string{}
	for _, m := range k.container().VolumeMounts {
		dir := k.volume(pod)
		if m.Name != "data" {
			dir += "." + m.Name
		}
		at[m.MountPath] = dir
		if m.Name == "data" {
			// A file system of its own, which belongs to the group.
			if err := os.MkdirAll(filepath.Join(dir, "lost+found"), 0o700); err != nil {
				k.t.Fatal(err)
			}
			if err := os.Chmod(dir, 0o2775); err != nil {
				k.t.Fatal(err)
			}
			continue
		}
		i := slices.IndexFunc(k.sts.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name && v.Secret != nil })
		if i < 0 {
			k.t.Fatalf("%s: what is the volume %s?", pod, m.Name)
		}
		src := k.sts.Spec.Template.Spec.Volumes[i].Secret
		content, ok := k.secrets[src.SecretName]
		if !ok {
			k.t.Fatalf("%s: there is no Secret %s", pod, src.SecretName)
		}
		// Files are links into a directory that is replaced as a whole, and cannot be written.
		if err := os.RemoveAll(dir); err != nil {
			k.t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, "..1"), 0o755); err != nil {
			k.t.Fatal(err)
		}
		if err := os.Symlink("..1", filepath.Join(dir, "..data")); err != nil {
			k.t.Fatal(err)
		}
		for name, text := range content {
			if err := os.WriteFile(filepath.Join(dir, "..1", name), []byte(text), os.FileMode(*src.DefaultMode)); err != nil {
				k.t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
				k.t.Fatal(err)
			}
		}
		if err := os.Chmod(filepath.Join(dir, "..1"), 0o555); err != nil {
			k.t.Fatal(err)
		}
	}
	return at
}

// here is an argument as it is on this machine.
func (k *kubernetes) here(pod, arg string, mounts map[string]string) string {
	k.t.Helper()
	flag, value, has := strings.Cut(arg, "=")
	if !has || !strings.HasPrefix(flag, "--") {
		flag, value = "", arg
	} else {
		flag += "="
	}
	var list []string
	for part := range strings.SplitSeq(value, ",") {
		scheme, rest := "", part
		if path, ok := strings.CutPrefix(part, "unix:"); ok {
			scheme, rest = "unix:", path
		}
		if host, port, err := net.SplitHostPort(rest); err == nil {
			name, domain, _ := strings.Cut(host, ".")
			switch {
			case port != "7400":
				k.t.Fatalf("%s: the port of %q", pod, arg)
			case host == "0.0.0.0":
				rest = net.JoinHostPort(host, k.ports[pod])
			case domain != "carillon-nodes.jobs.svc.cluster.local" || k.ports[name] == "":
				k.t.Fatalf("%s: %q is no pod", pod, part)
			default:
				rest = net.JoinHostPort("127.0.0.1", k.ports[name])
			}
		} else if strings.HasPrefix(rest, "/") {
			found := false
			for at, dir := range mounts {
				if rest == at || strings.HasPrefix(rest, at+"/") {
					rest, found = dir+strings.TrimPrefix(rest, at), true
					break
				}
			}
			if !found {
				k.t.Fatalf("%s: %q is in no volume", pod, part)
			}
		}
		list = append(list, scheme+rest)
	}
	return flag + strings.Join(list, ",")
}

// start starts a pod with the template of now.
func (k *kubernetes) start(pod string) {
	k.t.Helper()
	mounts := k.mounts(pod)
	env := environment(k.t, k.container(), pod, nil)
	var args []string
	for _, a := range command(k.t, k.container(), env) {
		args = append(args, k.here(pod, a, mounts))
	}
	log, err := os.OpenFile(k.volume(pod)+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		k.t.Fatal(err)
	}
	defer log.Close()
	cmd := carillon(k.t, env, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	p := &process{Cmd: cmd, done: make(chan struct{})}
	k.procs[pod] = p
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
}

// ended says whether the process of a pod has ended by itself.
func (k *kubernetes) ended(pod string) bool {
	select {
	case <-k.procs[pod].done:
		return true
	default:
		return false
	}
}

// end ends the process of a pod, and says how it ended.
func (k *kubernetes) end(pod string, sig syscall.Signal) error {
	p := k.procs[pod]
	_ = p.Process.Signal(sig)
	kill := time.AfterFunc(hang, func() { _ = p.Process.Kill() })
	defer kill.Stop()
	<-p.done
	return p.err
}

// stop ends a pod that is well, as Kubernetes does when it is updated or drained.
func (k *kubernetes) stop(pod string) {
	k.t.Helper()
	if err := k.end(pod, syscall.SIGTERM); err != nil {
		k.t.Errorf("%s was to stop: %v", pod, err)
	}
}

// probe does what kubelet does, and returns the status.
func (k *kubernetes) probe(pod string, p *corev1.Probe, host string) int {
	k.t.Helper()
	url := strings.ToLower(string(p.HTTPGet.Scheme)) + "://127.0.0.1:" + k.ports[pod] + p.HTTPGet.Path
	rq, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		k.t.Fatal(err)
	}
	rq.Host = host
	c := &http.Client{Timeout: hang, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	res, err := c.Do(rq)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

func (k *kubernetes) isReady(pod string) bool {
	return k.probe(pod, k.container().ReadinessProbe, "") == http.StatusOK
}

// ready waits until pods are.
func (k *kubernetes) ready(pods ...string) {
	k.t.Helper()
	for _, pod := range pods {
		k.eventually(pod+" is ready", func() bool {
			if k.ended(pod) { // kubelet starts it again
				k.start(pod)
			}
			return k.isReady(pod)
		})
		if got := k.probe(pod, k.container().LivenessProbe, ""); got != http.StatusOK {
			k.t.Errorf("%s is ready, and not alive: %d", pod, got)
		}
	}
}

// roll replaces pods by those of the template of now, in the order of a StatefulSet.
func (k *kubernetes) roll(pods []string, gone func(pod string)) {
	k.t.Helper()
	for _, pod := range slices.Backward(pods) {
		k.stop(pod)
		if gone != nil {
			gone(pod)
		}
		k.start(pod)
		k.ready(pod)
	}
}

// exec runs a command in a pod.
func (k *kubernetes) exec(pod string, args ...string) (string, error) {
	k.t.Helper()
	mounts := map[string]string{"/data": k.volume(pod)}
	for i, a := range args {
		if strings.HasPrefix(a, "unix:") {
			args[i] = k.here(pod, a, mounts)
		}
	}
	cmd := carillon(k.t, nil, args...)
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	return string(out), err
}

// unknown says whether a command is to be tried again by its exit code: no leader, or the outcome is not known.
func unknown(err error) bool {
	failed := (*exec.ExitError)(nil)
	return errors.As(err, &failed) && failed.ExitCode() == 5
}

// again says whether a command without a known outcome is to be repeated. A removal that was done is not: by then the
// node may be back.
func (k *kubernetes) again(args string) (repeat bool) {
	k.t.Helper()
	_, pod, removes := strings.Cut(args, "cluster remove ")
	if !removes {
		return true
	}
	before := len(k.logs(pod))
	k.eventually("what became of "+pod, func() bool {
		if repeat = strings.Contains(k.logs(pod)[before:], "carillon cluster remove "+pod); repeat {
			return true
		}
		if k.ended(pod) {
			k.start(pod)
		}
		return k.isReady(pod)
	})
	return repeat
}

// admin runs a command by the admin socket of a pod, until it is done.
func (k *kubernetes) admin(pod string, args ...string) (out string) {
	k.t.Helper()
	k.eventually(fmt.Sprintf("%q on %s", args, pod), func() (ok bool) {
		var err error
		out, err = k.exec(pod, append([]string{"--addr", "unix:/data/carillon/admin.sock"}, args...)...)
		return err == nil
	})
	return out
}

// cluster waits until pods are the voters of one cluster, and returns its id.
func (k *kubernetes) cluster(pods ...string) (id string) {
	k.t.Helper()
	k.eventually(fmt.Sprintf("one cluster of %v", pods), func() bool {
		id = ""
		for _, pod := range pods {
			var s struct {
				ClusterID string `json:"cluster_id"`
				Members   []struct{ ID, Suffrage string }
			}
			if err := json.Unmarshal([]byte(k.admin(pod, "status", "--json")), &s); err != nil {
				k.t.Fatal(err)
			}
			voters := 0
			for _, m := range s.Members {
				if m.Suffrage == "voter" {
					voters++
				}
			}
			if voters != len(pods) || len(s.Members) != len(pods) || id != "" && id != s.ClusterID {
				return false
			}
			id = s.ClusterID
		}
		return id != ""
	})
	return id
}

// readme is the commands below a heading of the chart's README, first block.
func readme(t *testing.T, heading string) (lines []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(chartDir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(data), "\n"+heading+"\n")
	_, text, block := strings.Cut(text, "```sh\n")
	text, _, end := strings.Cut(text, "```")
	if !ok || !block || !end {
		t.Fatalf("the README has no commands below %q", heading)
	}
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(text, "\\\n", "")), "\n")
}

var (
	lineInit    = regexp.MustCompile(`^carillon (cluster init --out keys)$`)
	lineSecret  = regexp.MustCompile(`^kubectl create secret generic ([a-z-]+) --from-file=keys$`)
	lineHelm    = regexp.MustCompile(`^helm (install|upgrade) carillon deploy/helm/carillon( --reuse-values)?((?: +--set \S+)+)$`)
	lineRollout = regexp.MustCompile(`^kubectl rollout status statefulset/carillon$`)
	lineUnkey   = regexp.MustCompile(`^kubectl patch secret ([a-z-]+) --type json -p '\[\{"op":"remove","path":"/data/cluster.pem"\}\]'$`)
	lineToken   = regexp.MustCompile(`^kubectl patch secret ([a-z-]+) -p "\{\\"stringData\\":\{\\"join.token\\":\\"\$\(cat join.token\)\\"\}\}"$`)
	lineExec    = regexp.MustCompile(`^kubectl exec ([a-z0-9-]+) -- /carillon ([^>]+?)(?: > (\S+))?$`)
	linePVC     = regexp.MustCompile(`^kubectl delete pvc data-([a-z0-9-]+) --wait=false$`)
	linePod     = regexp.MustCompile(`^kubectl delete pod ([a-z0-9-]+)$`)
)

// run does what a line of the README says.
func (k *kubernetes) run(line string) {
	k.t.Helper()
	match := func(re *regexp.Regexp) []string { return re.FindStringSubmatch(line) }
	switch {
	case match(lineInit) != nil:
		cmd := carillon(k.t, nil, strings.Fields(match(lineInit)[1])...)
		cmd.Dir = k.work
		if out, err := cmd.CombinedOutput(); err != nil {
			k.t.Fatalf("%s: %v: %s", line, err, out)
		}
	case match(lineSecret) != nil:
		files, err := os.ReadDir(filepath.Join(k.work, "keys"))
		if err != nil {
			k.t.Fatal(err)
		}
		content := map[string]string{}
		for _, f := range files {
			data, err := os.ReadFile(filepath.Join(k.work, "keys", f.Name()))
			if err != nil {
				k.t.Fatal(err)
			}
			content[f.Name()] = string(data)
		}
		k.secrets[match(lineSecret)[1]] = content
	case match(lineHelm) != nil:
		m := match(lineHelm)
		var old []string
		if m[1] == "upgrade" {
			old = k.pods()
		}
		k.apply(strings.Fields(strings.ReplaceAll(m[3], "--set", "")))
		fresh := k.pods()[len(old):]
		for _, pod := range fresh {
			k.start(pod)
		}
		if m[1] == "upgrade" {
			k.ready(fresh...) // those with higher numbers come first
			k.roll(old, nil)
		}
	case match(lineRollout) != nil:
		k.ready(k.pods()...)
	case match(lineUnkey) != nil:
		content := k.secrets[match(lineUnkey)[1]]
		if content["cluster.pem"] == "" {
			k.t.Fatalf("%s: it is not there", line)
		}
		delete(content, "cluster.pem")
	case match(lineToken) != nil:
		data, err := os.ReadFile(filepath.Join(k.work, "join.token"))
		if err != nil || k.secrets[match(lineToken)[1]] == nil {
			k.t.Fatal(line, err)
		}
		k.secrets[match(lineToken)[1]]["join.token"] = strings.TrimRight(string(data), "\n")
	case match(lineExec) != nil:
		m := match(lineExec)
		out, err := k.exec(m[1], strings.Fields(m[2])...)
		for unknown(err) && k.again(m[2]) {
			out, err = k.exec(m[1], strings.Fields(m[2])...)
		}
		if unknown(err) {
			err = nil
		}
		if err == nil && m[3] != "" {
			err = os.WriteFile(filepath.Join(k.work, m[3]), []byte(out), 0o600)
		}
		if err != nil {
			k.t.Fatalf("%s: %v", line, err)
		}
	case match(linePVC) != nil:
		k.deleted[match(linePVC)[1]] = true // Kubernetes waits for the pod to be gone
	case match(linePod) != nil:
		pod := match(linePod)[1]
		_ = k.end(pod, syscall.SIGTERM) // it may be about to end by itself
		if k.deleted[pod] {
			k.lose(pod)
		}
		k.start(pod)
	default:
		k.t.Fatalf("%q: what does that do?", line)
	}
}

// lose deletes the volume of a pod.
func (k *kubernetes) lose(pod string) {
	k.t.Helper()
	if err := os.RemoveAll(k.volume(pod)); err != nil {
		k.t.Fatal(err)
	}
	delete(k.deleted, pod)
}
