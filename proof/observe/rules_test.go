package observe

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const (
	rulesFile     = "../../deploy/prometheus/rules.yaml"
	rulesTest     = "../../deploy/prometheus/rules_test.yaml"
	runbooks      = "../../docs/runbooks.md"
	dashboardFile = "../../deploy/grafana/carillon.json"
	observeDoc    = "../../docs/observe.md"
)

type rule struct {
	Record, Alert string
	Expr          string
	For           string
	Labels        map[string]string
	Annotations   map[string]string
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func readRules(t *testing.T) (rules []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, rulesFile)), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	if len(rules) < 20 {
		t.Fatalf("only %d rules", len(rules))
	}
	return rules
}

// tool is a program of Prometheus, of which Debian has a package.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("there is no %s: apt-get install prometheus", name)
	}
	return path
}

// Prometheus takes the rules, and each alert fires when it should and is silent when it should.
func TestRulesWithPromtool(t *testing.T) {
	promtool := tool(t, "promtool")
	for _, args := range [][]string{{"check", "rules", filepath.Base(rulesFile)},
		{"test", "rules", filepath.Base(rulesTest)}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = filepath.Dir(rulesFile)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Each alert has what a person needs who is woken by it, and a test of when it fires; and in the cluster in good order
// of those tests it is silent though everything that it looks at is there.
func TestEveryAlert(t *testing.T) {
	var tests struct {
		Tests []struct {
			Name   string
			Series []struct{ Series string } `yaml:"input_series"`
			Exprs  []struct {
				Samples []struct{ Labels string } `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, rulesTest)), &tests); err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`alertname="(\w+)"`)
	fires, given := map[string]bool{}, map[string]bool{}
	for i, c := range tests.Tests {
		for _, e := range c.Exprs {
			if i == 0 && len(e.Samples) > 0 {
				t.Error("something fires in a cluster in good order")
			}
			for _, s := range e.Samples {
				fires[name.FindStringSubmatch(s.Labels)[1]] = true
			}
		}
		for _, s := range c.Series {
			if metric, _, ok := strings.Cut(s.Series, "{"); ok && i == 0 {
				given[metric] = true
			}
		}
	}
	rules := readRules(t)
	for _, r := range rules {
		if r.Record != "" {
			given[r.Record] = true
		}
	}
	sections := runbookSections(t)
	for _, r := range rules {
		if r.Alert == "" {
			continue
		}
		if !fires[r.Alert] {
			t.Errorf("%s fires in no test of %s", r.Alert, rulesTest)
		}
		q, err := parsePromQL(r.Expr)
		if err != nil {
			t.Errorf("%s: %v", r.Alert, err)
		}
		for _, s := range q.selectors {
			if !given[s.metric] {
				t.Errorf("%s: the cluster in good order has no %s: its silence says nothing", r.Alert, s.metric)
			}
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
		}
		for _, a := range []string{"summary", "description", "runbook_url"} {
			if r.Annotations[a] == "" {
				t.Errorf("%s has no %s", r.Alert, a)
			}
		}
		u, err := url.Parse(r.Annotations["runbook_url"])
		text, there := sections[r.Alert]
		switch {
		case err != nil || !strings.HasSuffix(u.Path, "/docs/runbooks.md") || u.Fragment != strings.ToLower(r.Alert):
			t.Errorf("%s: its runbook is said to be at %s", r.Alert, u)
		case !there:
			t.Errorf("docs/runbooks.md has no section %s", r.Alert)
		case !strings.HasPrefix(strings.ToLower(text), "**"+r.Labels["severity"]+".**"):
			t.Errorf("docs/runbooks.md does not say first that %s is %s", r.Alert, r.Labels["severity"])
		case !strings.Contains(text, "\n| ends |"):
			t.Errorf("docs/runbooks.md does not say when %s ends", r.Alert)
		}
		delete(sections, r.Alert)
	}
	for s := range sections {
		t.Errorf("docs/runbooks.md has a section %s, and there is no such alert", s)
	}
}

// runbookSections are the texts of docs/runbooks.md by alert.
func runbookSections(t *testing.T) map[string]string {
	t.Helper()
	sections := map[string]string{}
	for i, part := range strings.Split("\n"+read(t, runbooks), "\n### ") {
		if head, text, ok := strings.Cut(part, "\n"); ok && i > 0 {
			sections[head] = text
		}
	}
	return sections
}
