package observe

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

// prometheus is a real one, with rules whose minutes are seconds.
type prometheus struct {
	t    *testing.T
	addr string
}

// hasty makes minutes of the rules seconds: how long something must last, what is looked back at, and how old a run may
// be. Everything else is as it is installed.
func hasty(rules string) string {
	for _, r := range [][2]string{
		{`(?m)for: \S+$`, "for: 1s"}, {`\[(5|15|30)m\]|\[6h\]`, "[20s]"}, {`offset 2m`, "offset 5s"},
		{`offset 30m`, "offset 20s"}, {`_oldest_seconds\) > 300`, "_oldest_seconds) > 3"},
	} {
		re := regexp.MustCompile(r[0])
		if !re.MatchString(rules) {
			panic("the rules have no " + r[0])
		}
		rules = re.ReplaceAllString(rules, r[1])
	}
	return rules
}

// target are the addresses under one name of a job.
type target struct {
	job, path string
	addrs     []string
	more      string // of its configuration
}

func startPrometheus(t *testing.T, targets ...target) *prometheus {
	t.Helper()
	binary := tool(t, "prometheus")
	dir := t.TempDir()
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}\n" +
		"rule_files: [rules.yaml]\nscrape_configs:\n")
	for _, x := range targets {
		list, err := json.Marshal(x.addrs)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&config, "  - {job_name: %s, metrics_path: %s, static_configs: [{targets: %s}]%s}\n", x.job, x.path,
			list, x.more)
	}
	for name, text := range map[string]string{"prometheus.yaml": config.String(),
		"rules.yaml": hasty(read(t, rulesFile))} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := &prometheus{t: t, addr: harness.FreeAddr(t)}
	spawn(t, binary, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--web.listen-address="+p.addr,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--log.level=warn")
	harness.Eventually(t, time.Minute, "Prometheus is ready", func() bool {
		r, err := http.Get("http://" + p.addr + "/-/ready") //nolint:noctx // a test
		if err == nil {
			r.Body.Close()
		}
		return err == nil && r.StatusCode == http.StatusOK
	})
	return p
}

// series is one of an answer.
type series struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
	Values [][2]any          `json:"values"`
}

func (p *prometheus) get(path string, query url.Values, answer any) {
	p.t.Helper()
	r, err := http.Get("http://" + p.addr + path + "?" + query.Encode()) //nolint:noctx // a test
	if err != nil {
		p.t.Fatal(err)
	}
	defer r.Body.Close()
	var a struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil || a.Status != "success" {
		p.t.Fatalf("%s %s: %v %s", path, query, err, a.Error)
	}
	if err := json.Unmarshal(a.Data, answer); err != nil {
		p.t.Fatal(err)
	}
}

func (p *prometheus) query(expr string) []series {
	p.t.Helper()
	var a struct{ Result []series }
	p.get("/api/v1/query", url.Values{"query": {expr}}, &a)
	return a.Result
}

// fired waits until an alert has fired, at any time.
func (p *prometheus) fired(alert, labels string) {
	p.t.Helper()
	harness.Eventually(p.t, 2*time.Minute, alert+" fires", func() bool {
		expr := fmt.Sprintf(`max_over_time(ALERTS{alertname=%q,alertstate="firing"%s}[1h])`, alert, labels)
		return len(p.query(expr)) > 0
	})
}

// explained looks at the texts of the alerts that fire now.
func (p *prometheus) explained() {
	p.t.Helper()
	var a struct {
		Alerts []struct {
			Labels, Annotations map[string]string
			State               string
		}
	}
	p.get("/api/v1/alerts", nil, &a)
	for _, x := range a.Alerts {
		for name, text := range x.Annotations {
			if strings.Contains(text, "error expanding") || strings.Contains(text, "<no value>") ||
				strings.Contains(text, "{{") || strings.Contains(text, "  ") || strings.HasSuffix(text, " ") {
				p.t.Errorf("%s of %s: %s", name, x.Labels["alertname"], text)
			}
		}
		p.t.Logf("%s %s: %s", x.State, x.Labels["alertname"], x.Annotations["description"])
	}
}

// The configuration in docs/observe.md is one that Prometheus takes.
func TestScrapeConfig(t *testing.T) {
	promtool := tool(t, "promtool")
	fence := regexp.MustCompile("(?s)```yaml\n(rule_files:.*?)```").FindStringSubmatch(read(t, observeDoc))
	if fence == nil {
		t.Fatal("docs/observe.md has no configuration")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"prometheus.yaml": fence[1], "rules.yaml": read(t, rulesFile),
		"carillon.token": "x", "carillon-ca.pem": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(promtool, "check", "config", filepath.Join(dir, "prometheus.yaml")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// A secure node is scraped with a viewer's token and the CA of the cluster, as the document says, and not without.
func TestScrapeOfASecureNode(t *testing.T) {
	long(t)
	tool(t, "prometheus")
	binary, addr, dir := harness.Build(t), harness.FreeAddr(t), filepath.Join(t.TempDir(), "data")
	token := filepath.Join(t.TempDir(), "token")
	spawn(t, binary, "server", "--node-id", "n1", "--listen", addr, "--data-dir", dir, "--bootstrap", "--secure")
	harness.Eventually(t, harness.ReadyLimit, "a token is made", func() bool {
		return exec.Command(binary, "--addr", "unix:"+filepath.Join(dir, "admin.sock"), "token", "create", "prometheus",
			"--role", "viewer", "--out", token).Run() == nil
	})
	tls := fmt.Sprintf(", scheme: https, tls_config: {ca_file: %q}", filepath.Join(dir, "keys", "ca.pem"))
	auth := fmt.Sprintf("%s, authorization: {credentials_file: %q}", tls, token)
	p := startPrometheus(t, target{"carillon", "/metrics", []string{addr}, auth},
		target{"carillon-jobs", "/metrics/jobs", []string{addr}, auth},
		target{"carillon-none", "/metrics", []string{addr}, tls})
	harness.Eventually(t, time.Minute, "it is scraped", func() bool {
		return len(p.query(`up{job="carillon"} == 1`)) == 1 && len(p.query(`up{job="carillon-jobs"} == 1`)) == 1 &&
			len(p.query(`up{job="carillon-none"} == 0`)) == 1
	})
}
