package observe

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// family is a metric as it was scraped: which labels it has, with which values.
type family struct {
	kind   string
	labels map[string]map[string]bool
}

// families are what one kind of process serves.
type families map[string]*family

var (
	sample = regexp.MustCompile(`^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? \S+$`)
	label  = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
)

// scrape adds what an address serves.
func (f families) scrape(t *testing.T, url string) {
	t.Helper()
	resp, err := http.Get(url) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s %s", url, resp.Status, text)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	kinds := map[string]string{}
	for lines.Scan() {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			kinds[name] = kind
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil || strings.HasPrefix(line, "#") {
			continue
		}
		name := m[1]
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, part); ok && kinds[base] == "histogram" {
				name = base
			}
		}
		x := f[name]
		if x == nil {
			x = &family{kind: kinds[name], labels: map[string]map[string]bool{}}
			f[name] = x
		}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if x.labels[l[1]] == nil {
				x.labels[l[1]] = map[string]bool{}
			}
			x.labels[l[1]][l[2]] = true
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// find is the metric that a series belongs to.
func (f families) find(series string) *family {
	for _, part := range []string{"", "_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(series, part); ok && f[base] != nil && (part == "") !=
			(f[base].kind == "histogram") {
			return f[base]
		}
	}
	return nil
}

// scraped is what a cluster of three real nodes, single jobs of it, and a worker serve.
type scraped struct{ nodes, jobs, worker families }

// of is where a selector looks, by the name of the job that it is scraped under.
func (s *scraped) of(sel selector) families {
	for _, m := range sel.matchers {
		if m.label == "job" && m.op == "=" && strings.HasSuffix(m.value, "-workers") {
			return s.worker
		}
		if m.label == "job" && m.op == "=" && strings.HasSuffix(m.value, "-jobs") {
			return s.jobs
		}
	}
	if strings.HasPrefix(sel.metric, "carillon_job_") {
		return s.jobs
	}
	return s.nodes
}

func scrapeCluster(t *testing.T) *scraped {
	t.Helper()
	cl := harness.NewClusterAt(t, harness.Build(t), 3, func(_ int, n *harness.Node) {
		// Traces have metrics of their own, if there are any. Nothing listens there.
		n.Wrap = []string{"env", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}
	}, "--executors", "http,shell")
	n := cl.Nodes[0]
	_, metrics := startWorker(t, n, "w1", "--executors", "shell", "--shell-as-node")
	for name, spec := range map[string]job.Spec{
		"waits": {Type: job.TypeQueue, Payload: json.RawMessage(`{"queue":"mail"}`)},
		"runs":  {Type: job.TypeShell, Payload: json.RawMessage(`{"command":"true"}`)},
	} {
		spec.Name, spec.Schedule = name, job.ScheduleManual
		if _, err := n.Client.CreateJob(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Client.RunJob(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	every := job.Spec{Name: "every", Type: job.TypeShell, Schedule: "@every 1s",
		Payload: json.RawMessage(`{"command":"true"}`)}
	if _, err := n.Client.CreateJob(t.Context(), every); err != nil {
		t.Fatal(err)
	}
	// What is counted under a label that only an event brings: a job may not reach the machine's metadata, and a
	// request makes no sense.
	denied := job.Spec{Name: "denied", Type: job.TypeHTTP, Schedule: job.ScheduleManual,
		Payload: json.RawMessage(`{"url":"http://169.254.169.254/"}`)}
	if _, err := n.Client.CreateJob(t.Context(), denied); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Client.RunJob(t.Context(), "denied"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Client.CreateJob(t.Context(), job.Spec{Type: "none"}); err == nil {
		t.Fatal("a job of no type was created")
	}
	s := &scraped{}
	// Some of it is known only after a while: what queues have, how clocks differ, the first success of a job.
	harness.Eventually(t, harness.ReadyLimit, "everything is known", func() bool {
		*s = scraped{nodes: families{}, jobs: families{}, worker: families{}}
		for _, n := range cl.Nodes {
			s.nodes.scrape(t, "http://"+n.Addr+"/metrics")
		}
		s.jobs.scrape(t, "http://"+n.Addr+"/metrics/jobs")
		s.worker.scrape(t, "http://"+metrics+"/metrics")
		return s.nodes["carillon_queue_workers"] != nil && s.nodes["carillon_clock_skew_seconds"] != nil &&
			s.nodes["carillon_egress_denied_total"] != nil &&
			s.jobs["carillon_job_last_success_timestamp_seconds"] != nil
	})
	return s
}

// ofPrometheus are the metrics and labels that Prometheus itself makes.
var ofPrometheus = map[string][]string{
	"up":     {"job", "instance"},
	"ALERTS": {"job", "instance", "alertname", "alertstate", "severity", "group"},
}

// Rules, dashboard and document name what real nodes serve, label by label and value by value.
func TestNamesAreServed(t *testing.T) {
	long(t)
	t.Parallel()
	s := scrapeCluster(t)
	recorded := map[string][]string{}
	check := func(t *testing.T, where, expr string) {
		t.Helper()
		q, err := parsePromQL(expr)
		if err != nil {
			t.Errorf("%s: %v", where, err)
		}
		known := map[string]bool{"job": true, "instance": true}
		for _, sel := range q.selectors {
			if labels, ok := ofPrometheus[sel.metric]; ok {
				for _, l := range labels {
					known[l] = true
				}
				continue
			}
			if labels, ok := recorded[sel.metric]; ok {
				for _, l := range labels {
					known[l] = true
				}
				continue
			}
			f := s.of(sel).find(sel.metric)
			if f == nil {
				t.Errorf("%s: %s is not served", where, sel.metric)
				continue
			}
			for l := range f.labels {
				known[l] = true
			}
			for _, m := range sel.matchers {
				for _, problem := range unmatched(f, m) {
					t.Errorf("%s: %s%s", where, sel.metric, problem)
				}
			}
		}
		for _, l := range q.labels {
			if !known[l] {
				t.Errorf("%s: nothing in it has the label %s", where, l)
			}
		}
	}
	for _, r := range readRules(t) {
		check(t, r.Record+r.Alert, r.Expr)
		if r.Record != "" {
			if q, err := parsePromQL(r.Expr); err == nil {
				recorded[r.Record] = q.labels
			}
		}
	}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			check(t, "panel "+p.Title, target.Expr)
		}
	}
	t.Run("docs", func(t *testing.T) { checkTable(t, s) })
	t.Run("runbooks", func(t *testing.T) { checkMentions(t, s) })
}

// unmatched says what of a matcher no series has.
func unmatched(f *family, m matcher) (problems []string) {
	if m.label == "job" || m.label == "instance" {
		return nil
	}
	values := f.labels[m.label]
	if values == nil {
		return []string{" has no label " + m.label}
	}
	if strings.Contains(m.value, "$") {
		return nil // a variable of the dashboard
	}
	for v := range strings.SplitSeq(m.value, "|") {
		if !values[v] {
			problems = append(problems, fmt.Sprintf(" has no series with %s=%q, only %q", m.label, v,
				slices.Sorted(maps.Keys(values))))
		}
	}
	return problems
}

var metricRow = regexp.MustCompile("(?m)^\\| `(carillon_\\w+)` \\| (\\w+) \\|([^|]*)\\|")

// The table of docs/observe.md has exactly the metrics that there are, with their types and labels.
func checkTable(t *testing.T, s *scraped) {
	want := map[string]string{}
	for _, all := range []families{s.nodes, s.jobs, s.worker} {
		for name, f := range all {
			if _, seen := want[name]; !strings.HasPrefix(name, "carillon_") || seen {
				continue // the nodes' first: a worker has slots, too
			}
			labels := slices.Sorted(maps.Keys(f.labels))
			want[name] = f.kind + " of " + strings.Join(slices.DeleteFunc(labels,
				func(l string) bool { return l == "le" }), ", ")
		}
	}
	got := map[string]string{}
	text := read(t, observeDoc)
	for _, m := range metricRow.FindAllStringSubmatch(text, -1) {
		labels := strings.Split(strings.TrimSpace(m[3]), ", ")
		slices.Sort(labels)
		got[m[1]] = m[2] + " of " + strings.Join(labels, ", ")
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] == "" && strings.Contains(text, "`"+name) {
			continue // another section is about it
		}
		if got[name] != want[name] {
			t.Errorf("docs/observe.md says of %s: %q, it is: %q", name, got[name], want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if want[name] == "" {
			t.Errorf("docs/observe.md has %s, which is not served", name)
		}
	}
}

// Metrics that a text mentions are there.
func checkMentions(t *testing.T, s *scraped) {
	mention := regexp.MustCompile("`(carillon_\\w+)")
	for _, path := range []string{runbooks, observeDoc, "../../docs/groups.md", "../../docs/cli.md",
		"../../docs/secure.md"} {
		for _, m := range mention.FindAllStringSubmatch(read(t, path), -1) {
			if s.nodes.find(m[1]) == nil && s.jobs.find(m[1]) == nil && s.worker.find(m[1]) == nil &&
				s.nodes[m[1]] == nil && s.jobs[m[1]] == nil && s.worker[m[1]] == nil {
				t.Errorf("%s mentions %s, which is not served", path, m[1])
			}
		}
	}
}
