package charttest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var three = []string{"carillon-0", "carillon-1", "carillon-2"}

// jobs holds that a pod answers with jobs of these names.
func (k *kubernetes) jobs(pod string, want ...string) {
	k.t.Helper()
	got := strings.Fields(k.admin(pod, "jobs", "-o", "name"))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		k.t.Errorf("%s has the jobs %q instead of %q", pod, got, want)
	}
}

func (k *kubernetes) submit(pod, name string) {
	k.t.Helper()
	k.admin(pod, "--idempotency-key", name, "submit", "--name", name, "--schedule", "@manual", "--http", "http://127.0.0.1:9/")
}

// lost has a pod come up with an empty volume, twice, as Kubernetes starts what ends: it says what to do, and begins
// nothing.
func (k *kubernetes) lost(pod, other string, jobs ...string) {
	k.t.Helper()
	_ = k.end(pod, syscall.SIGKILL)
	k.lose(pod)
	for range 2 {
		before := len(k.logs(pod))
		k.start(pod)
		k.eventually(pod+" says that it is not taken in", func() bool {
			log := k.logs(pod)[before:]
			return strings.Contains(log, "carillon cluster remove "+pod) || strings.Contains(log, "carillon cluster token create")
		})
		if k.isReady(pod) {
			k.t.Errorf("%s is ready with an empty volume", pod)
		}
		_ = k.end(pod, syscall.SIGTERM) // it may have ended by itself
		if log := k.logs(pod)[before:]; strings.Contains(log, "as=founder") || strings.Contains(log, `"as":"founder"`) {
			k.t.Errorf("%s began a second cluster", pod)
		}
	}
	k.start(pod)
	k.jobs(other, jobs...)
}

// From the README's first line to the last that brings a node back: the pods form one cluster, and stay one.
func TestReplay(t *testing.T) {
	k := newKubernetes(t)
	for _, line := range readme(t, "## Install") {
		k.run(line)
	}
	if _, there := k.secrets["carillon-keys"]["cluster.pem"]; there {
		t.Error("the keys are still in the Secret")
	}
	if token, err := os.ReadFile(filepath.Join(k.work, "admin.token")); err != nil || len(token) < 20 {
		t.Errorf("admin.token: %v", err)
	}
	cluster := k.cluster(three...)
	k.submit("carillon-0", "first")

	// A rolling update. While a pod is gone, the others work.
	k.apply([]string{"extraArgs[1]=--log-format=json"})
	jobs := []string{"first"}
	k.roll(k.pods(), func(pod string) {
		other := three[(slices.Index(three, pod)+1)%3]
		jobs = append(jobs, "without-"+pod)
		k.submit(other, "without-"+pod)
	})
	if again := k.cluster(three...); again != cluster {
		t.Errorf("cluster %s became %s", cluster, again)
	}
	for _, pod := range three {
		k.jobs(pod, jobs...)
		if !strings.Contains(k.logs(pod), `{"time":`) {
			t.Errorf("%s has not the new template", pod)
		}
	}

	// A machine is drained: its pod is gone until it is back, with its volume.
	k.stop("carillon-1")
	k.submit("carillon-2", "drained")
	jobs = append(jobs, "drained")
	k.start("carillon-1")
	k.ready("carillon-1")
	if again := k.cluster(three...); again != cluster {
		t.Errorf("cluster %s became %s", cluster, again)
	}
	k.jobs("carillon-1", jobs...)

	// A volume is lost: that of a node, and that of the one which founded the cluster.
	for _, names := range [][2]string{{"carillon-1", "carillon-0"}, {"carillon-0", "carillon-1"}} {
		pod, other := names[0], names[1]
		k.lost(pod, other, jobs...)
		swap := strings.NewReplacer("carillon-1", pod, "carillon-0", other)
		for _, line := range readme(t, "## A lost volume") {
			k.run(swap.Replace(line))
		}
		k.ready(three...)
		if again := k.cluster(three...); again != cluster {
			t.Errorf("cluster %s became %s", cluster, again)
		}
		k.jobs(pod, jobs...)
	}

	// More nodes.
	for _, line := range readme(t, "### More or fewer nodes") {
		k.run(line)
	}
	five := append(slices.Clone(three), "carillon-3", "carillon-4")
	k.ready(five...)
	if again := k.cluster(five...); again != cluster {
		t.Errorf("cluster %s became %s", cluster, again)
	}
	k.jobs("carillon-4", jobs...)
}

// A trial: no keys, no tokens, and the names of the Services.
func TestReplayInsecure(t *testing.T) {
	k := newKubernetes(t)
	k.run("helm install carillon deploy/helm/carillon --set insecure=true")
	k.ready(three...)
	cluster := k.cluster(three...)
	k.submit("carillon-1", "first")
	for host, want := range map[string]int{"carillon.jobs.svc:7400": 200, "carillon:7400": 200, "evil.example.com": 403} {
		if got := k.probe("carillon-0", k.container().ReadinessProbe, host); got != want {
			t.Errorf("%s: %d", host, got)
		}
	}
	k.lost("carillon-0", "carillon-1", "first")
	swap := strings.NewReplacer("carillon-1", "carillon-0", "carillon-0", "carillon-1")
	for i, line := range readme(t, "## A lost volume") {
		if i > 1 { // the others make a token
			k.run(swap.Replace(line))
		}
	}
	k.ready(three...)
	if again := k.cluster(three...); again != cluster {
		t.Errorf("cluster %s became %s", cluster, again)
	}
	k.jobs("carillon-0", "first")
}
