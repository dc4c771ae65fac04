package observe

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// expand puts values into the variables of an expression, as Grafana does.
var expand = strings.NewReplacer("$__rate_interval", "10s", "$job", "carillon", "$group", ".*", "$instance", ".*")

// Every query of the dashboard is one that Prometheus answers, and those that must have data in a cluster that works
// have some. With CARILLON_PICTURES=DIR it leaves pictures, drawn by a page of its own: Grafana itself is in no package
// of Debian's.
func TestDashboardShowsACluster(t *testing.T) {
	long(t)
	chromium := ""
	pictures := os.Getenv("CARILLON_PICTURES")
	if pictures != "" {
		var err error
		if chromium, err = exec.LookPath("chromium"); err != nil {
			t.Skip("there is no Chromium: apt-get install chromium")
		}
	}
	tool(t, "prometheus")
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		if strings.HasPrefix(r.URL.Path, "/bad") {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(sink.Close)
	cl := harness.NewClusterAt(t, harness.Build(t), 3, func(i int, n *harness.Node) {
		if i == 0 { // it begins the cluster
			n.Flags = append(n.Flags, "--groups", "2")
		}
	}, "--executors", "http,shell", "--lease", "3s")
	n := cl.Nodes[0]
	_, metrics := startWorker(t, n, "w1", "--executors", "queue", "--command", "sleep 0.1", "--queues", "mail")
	var addrs []string
	for _, n := range cl.Nodes {
		addrs = append(addrs, n.Addr)
	}
	p := startPrometheus(t, target{"carillon", "/metrics", addrs, ""},
		target{"carillon-jobs", "/metrics/jobs", addrs, ""},
		target{"carillon-workers", "/metrics", []string{metrics}, ""})
	began := time.Now()
	create := func(name string, spec job.Spec) {
		t.Helper()
		spec.Name, spec.Schedule = name, "@every 1s"
		var err error
		if !harness.Within(harness.ReadyLimit, func() bool {
			_, err = n.Client.CreateJob(t.Context(), spec)
			return err == nil
		}) {
			t.Fatal(err)
		}
	}
	call := func(path string) json.RawMessage { return fmt.Appendf(nil, `{"url":%q}`, sink.URL+path) }
	none := 0
	for i := range 40 {
		create(fmt.Sprintf("report-%d", i), job.Spec{Type: job.TypeHTTP, Payload: call("/good")})
	}
	for i := range 3 {
		create(fmt.Sprintf("broken-%d", i), job.Spec{Type: job.TypeHTTP, Payload: call("/bad"),
			Retry: job.Retry{MaxRetries: &none}})
		create(fmt.Sprintf("letter-%d", i), job.Spec{Type: job.TypeQueue, Payload: json.RawMessage(`{"queue":"mail"}`)})
		create(fmt.Sprintf("invoice-%d", i), job.Spec{Type: job.TypeQueue, Overlap: "allow",
			Payload: json.RawMessage(`{"queue":"invoices"}`)}) // without a worker
		create(fmt.Sprintf("script-%d", i), job.Spec{Type: job.TypeShell,
			Payload: json.RawMessage(`{"command":"sleep 1.5"}`)}) // overlaps itself
	}
	lasts := 30 * time.Second
	if pictures != "" {
		lasts = 100 * time.Second
	}
	time.Sleep(lasts / 2)
	leader := cl.Leader()
	leader.Kill("to be seen")
	time.Sleep(lasts / 10)
	leader.Start()
	time.Sleep(lasts / 2)

	d := readDashboard(t)
	var whole any
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &whole); err != nil {
		t.Fatal(err)
	}
	from, to := began.Unix(), time.Now().Unix()
	answers := map[int][][]series{}
	for _, panel := range d.Panels {
		for _, q := range panel.Targets {
			expr := expand.Replace(q.Expr)
			var a struct{ Result []series }
			if q.Instant {
				a.Result = p.query(expr)
			} else {
				p.get("/api/v1/query_range", url.Values{"query": {expr}, "start": {fmt.Sprint(from)},
					"end": {fmt.Sprint(to)}, "step": {"1"}}, &a)
			}
			answers[panel.ID] = append(answers[panel.ID], a.Result)
			if len(a.Result) == 0 && !mayBeEmpty[panel.Title] {
				t.Errorf("%s shows nothing: %s", panel.Title, expr)
			}
		}
	}
	if pictures == "" {
		return
	}
	data, err := json.Marshal(map[string]any{"dashboard": whole, "answers": answers, "from": from, "to": to})
	if err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(t.TempDir(), "dashboard.html")
	text := strings.Replace(read(t, "testdata/dashboard.html"), "/*DATA*/null", string(data), 1)
	if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	height, overview := 0, 0
	for _, panel := range d.Panels {
		if panel.Type == "row" && overview == 0 {
			overview = height
		}
		height = max(height, (panel.GridPos.Y+panel.GridPos.H)*30)
	}
	for name, height := range map[string]int{"dashboard": height, "overview": overview} {
		out, err := exec.Command(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
			"--user-data-dir="+t.TempDir(), fmt.Sprintf("--window-size=1440,%d", height),
			"--screenshot="+filepath.Join(pictures, name+".png"), "file://"+page).CombinedOutput()
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// mayBeEmpty are panels of what does not happen in a cluster that works.
var mayBeEmpty = map[string]bool{"Alerts that fire": true, "Limited, by reason": true,
	"Refused, by code": true}
