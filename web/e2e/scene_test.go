//go:build carillon_browser

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// node starts one, with shell jobs.
func node(t *testing.T, flags ...string) *harness.Node {
	t.Helper()
	chromium(t) // first: without it nothing is built
	n := harness.NewNode(t, harness.Build(t), t.TempDir(), append([]string{"--executors", "http,shell",
		"--log-level", "error"}, flags...)...)
	n.Start()
	return n
}

// call asks a node for something that has to work, with JSON. It asks again where there is no leader for a moment.
func call(t *testing.T, n *harness.Node, method, path, body string) (data []byte) {
	t.Helper()
	harness.Eventually(t, patience, method+" "+path, func() bool {
		rq, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.Addr+"/api/v1"+path, bytes.NewBufferString(body))
		must(t, err)
		if body != "" {
			rq.Header.Set("Content-Type", "application/json")
		}
		res, err := http.DefaultClient.Do(rq)
		must(t, err)
		defer res.Body.Close()
		data, err = io.ReadAll(res.Body)
		must(t, err)
		if res.StatusCode == http.StatusServiceUnavailable && bytes.Contains(data, []byte("nothing was changed")) {
			return false
		}
		if res.StatusCode >= 300 {
			t.Fatalf("%s %s %s: %s %s", method, path, body, res.Status, data)
		}
		return true
	})
	return data
}

// create makes a shell job. More fields are JSON, such as `"overlap":"allow"`.
func create(t *testing.T, n *harness.Node, name, schedule, command string, more ...string) {
	t.Helper()
	body := fmt.Sprintf(`{"name":%s,"type":"shell","schedule":%s,"payload":{"command":%s}`, quote(name), quote(schedule),
		quote(command))
	for _, m := range more {
		body += "," + m
	}
	call(t, n, "POST", "/jobs", body+"}")
}

// ran waits for a run of a job that ended so.
func ran(t *testing.T, n *harness.Node, name string, status job.RunStatus) string {
	t.Helper()
	id := ""
	harness.Eventually(t, patience, fmt.Sprintf("a run of %s that is %s", name, status), func() bool {
		runs, err := n.Client.JobRuns(context.Background(), name, client.RunQuery{})
		for _, r := range runs.Runs {
			if r.Status == status && r.RunID != "" {
				id = r.RunID
			}
		}
		return err == nil && id != ""
	})
	return id
}

// busy is a node as people have them: jobs that are well, that fail, that overlap, wait and pause. Its first job is
// called hello.
func busy(t *testing.T) (n *harness.Node, run string) {
	t.Helper()
	n = node(t)
	stage(t, n)
	return n, ran(t, n, "hello", job.RunSucceeded)
}

// stage gives a node its jobs.
func stage(t *testing.T, n *harness.Node) {
	t.Helper()
	call(t, n, "PUT", "/calendars/holidays", `{"timezone":"Europe/Berlin","dates":["12-25","12-26","01-01"],"weekdays":["sat","sun"]}`)
	call(t, n, "PUT", "/calendars/nights", `{"timezone":"UTC","daily":["22:00-06:00"]}`)
	call(t, n, "PUT", "/queues/mail", `{"concurrency":4}`)
	create(t, n, "hello", "@every 1s", "echo hello from $CARILLON_RUN", `"tags":{"team":"core"}`)
	create(t, n, "invoice-export", "@every 2s", "echo cannot reach db-$CARILLON_ATTEMPT port 5432: refused >&2; exit 1",
		`"tags":{"team":"billing"},"retry":{"max_retries":0}`)
	create(t, n, "ledger-sync", "@every 3s", "echo 'ledger 4711 is locked by \"importer\"' >&2; exit 3",
		`"tags":{"team":"billing"},"retry":{"max_retries":1,"base":"500ms"}`)
	call(t, n, "POST", "/jobs", `{"name":"webhook","type":"http","schedule":"@every 4s","retry":{"max_retries":0},`+
		`"tags":{"team":"core"},"payload":{"url":"http://127.0.0.1:1/hook"}}`)
	create(t, n, "thumbnails", "@every 1s", "sleep 2.6", `"tags":{"team":"media"}`)
	create(t, n, "search-index", "@every 1s", "sleep 600; true", `"tags":{"team":"search"},"overlap":"skip"`)
	create(t, n, "nightly-report", "30 2 * * *", "echo report", `"timezone":"Europe/Berlin","calendars":["holidays"]`)
	create(t, n, "old-import", "@hourly", "true", `"tags":{"team":"core"}`)
	call(t, n, "POST", "/jobs/old-import:pause", "")
	call(t, n, "POST", "/jobs", `{"name":"welcome-mail","type":"queue","schedule":"@every 5s","overlap":"allow","payload":{"queue":"mail","data":{"to":"ada"}}}`)
	for i := range 8 {
		create(t, n, fmt.Sprintf("metrics-rollup-%02d", i), "@hourly", "true", `"tags":{"team":"metrics"}`)
		create(t, n, fmt.Sprintf("cache-warm-%02d", i), fmt.Sprintf("%d */%d * * *", i*6, i%5+1), "true")
	}
	bulk(t, n, 60, func(i int) string {
		return fmt.Sprintf(`{"namespace":"reports","name":"report-%02d","type":"http","schedule":"%s",`+
			`"payload":{"url":"http://127.0.0.1:1/"}}`, i, []string{"*/15 * * * *", "0 * * * *", fmt.Sprint(i, " */2 * * *"),
			fmt.Sprintf("30 %d * * *", i%24), "0 9 * * 1-5", "5,35 8-18 * * *"}[i%6])
	})
	ran(t, n, "invoice-export", job.RunDead)
	ran(t, n, "ledger-sync", job.RunDead)
	ran(t, n, "thumbnails", job.RunSucceeded)
}

// occurrences are those of a job, as the API has them.
func occurrences(t *testing.T, n *harness.Node, name string) (p client.OccurrencePage) {
	t.Helper()
	must(t, json.Unmarshal(call(t, n, "GET", "/jobs/"+name+"/occurrences", ""), &p))
	return p
}
