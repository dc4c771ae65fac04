package proof

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

// TestGoodTimesAreQuiet has three nodes, a worker and clients at work, and reads their logs: once all have started there
// is nothing to say, and what they say is JSON if that was asked for. What happens by itself, such as an election on a
// machine that stood still, is no good time: then it looks again.
func TestGoodTimesAreQuiet(t *testing.T) {
	scenario(t)
	t.Parallel()
	const wind = time.Minute
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(target.Close)
	binary := harness.Build(t)
	cl := harness.NewCluster(t, binary, 3, "--log-format", "json", "--executors", "http")
	w := spawn(t, nil, binary, "worker", "--join", cl.Nodes[1].Addr, "--executors", "shell", "--name", "w1", "--log-format", "json")
	call := func(n *harness.Node, method, path, body string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, "http://"+n.Addr+path, strings.NewReader(body))
		if err != nil {
			return "", err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if resp.StatusCode >= 300 {
			err = fmt.Errorf("%s %s: %s %s", method, path, resp.Status, text)
		}
		return string(text), err
	}
	for i := range 20 {
		for _, spec := range []string{
			fmt.Sprintf(`{"name":"h%d","schedule":"@every 1s","type":"http","payload":{"url":%q}}`, i, target.URL),
			fmt.Sprintf(`{"name":"s%d","schedule":"@every 2s","type":"shell","payload":{"command":"echo hello"}}`, i),
			fmt.Sprintf(`{"name":"q%d","schedule":"@manual","type":"queue","payload":{"queue":"mail"}}`, i),
		} {
			if _, err := call(cl.Nodes[i%3], "POST", "/api/v1/jobs", spec); err != nil {
				t.Fatal(err)
			}
		}
	}
	harness.Eventually(t, time.Minute, "the worker works", func() bool {
		text, _ := call(cl.Nodes[2], "GET", "/api/v1/jobs/s0/runs?status=succeeded", "")
		return strings.Contains(text, `"worker":"w1"`)
	})
	// Clients as there are: one that scrapes, one that creates and reads, one that pulls, one that watches and leaves.
	round := func(i int) {
		for _, n := range cl.Nodes {
			_, _ = call(n, "GET", "/metrics", "")
			_, _ = call(n, "GET", "/readyz", "")
		}
		n := cl.Nodes[i%3]
		_, _ = call(n, "GET", "/api/v1/runs?limit=5", "")
		_, _ = call(n, "POST", fmt.Sprintf("/api/v1/jobs/q%d:run", i%20), "")
		text, _ := call(n, "POST", "/api/v1/workers:poll?queue=mail", `{"worker":"p1","wait":"1s"}`)
		var polled struct {
			Runs []struct{ Claim string }
		}
		if json.Unmarshal([]byte(text), &polled) == nil && len(polled.Runs) == 1 {
			_, _ = call(n, "POST", "/api/v1/workers:report?queue=mail",
				fmt.Sprintf(`{"results":[{"claim":%q,"outcome":"succeeded"}]}`, polled.Runs[0].Claim))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+n.Addr+"/api/v1/events", nil)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	logs := func() (all [][]byte) {
		for _, n := range cl.Nodes {
			all = append(all, n.Log())
		}
		return append(all, []byte(w.said()))
	}
	var said string
	for try := range 6 {
		round(try) // first requests open connections and sessions
		before := logs()
		for i, end := 0, time.Now().Add(wind); time.Now().Before(end); i++ {
			round(i)
			time.Sleep(200 * time.Millisecond)
		}
		said = ""
		for i, text := range logs() {
			said += string(text[len(before[i]):])
		}
		if said == "" {
			break
		}
		t.Logf("try %d:\n%s", try, said)
	}
	if said != "" {
		t.Errorf("in good times the nodes log, whenever one looks:\n%s", said)
	}
	for _, n := range cl.Nodes {
		n.Stop()
	}
	events := map[string]int{}
	for _, text := range logs() {
		for line := range bytes.Lines(text) {
			if bytes.HasPrefix(line, []byte("--- life")) {
				continue // the harness's own
			}
			var fields struct{ Time, Level, Msg, Event string }
			if err := json.Unmarshal(line, &fields); err != nil || fields.Time == "" || fields.Level == "" || fields.Msg == "" {
				t.Errorf("not a line of JSON with time, level and msg: %s", line)
			}
			if fields.Event != "" {
				events[fields.Event]++
			}
		}
	}
	if events["leading"] == 0 || events["takeover"] == 0 || events["joined"] != 2 || events["member_added"] != 2 || events["member_votes"] != 2 {
		t.Errorf("events %v", events)
	}
}
