package apitest_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/store"
)

// step is a request to a route, and the record that it leaves.
type step struct {
	route  string // of the table
	path   string // after /api/v1, if it differs
	body   string
	action string
	object string // its name, or its id
	done   int
}

// unrecorded are the routes with other methods than GET that leave no record.
var unrecorded = map[string]string{
	"POST /api/v1/schedule:preview":  "it changes nothing",
	"POST /api/v1/cluster:scrub":     "it changes nothing",
	"POST /api/v1/dev:kill":          "a cluster to play with; what dies is a process",
	"POST /api/v1/workers:poll":      "workers",
	"POST /api/v1/workers:heartbeat": "workers",
	"POST /api/v1/workers:report":    "workers",
	"POST /api/v1/workers:output":    "workers",
}

// steps of one caller; x keeps those of two apart, and other is a node that does not lead.
func auditSteps(x, other string) []step {
	manual := fmt.Sprintf(`{"name":"%s-job","type":"queue","schedule":"0 9 * * *","payload":{"queue":"q"},"overlap":"allow"}`, x)
	line := `{"name":"%s-%d","type":"queue","schedule":"@manual","payload":{"queue":"q"}}`
	return []step{
		{"POST /api/v1/jobs", "/jobs", manual, "job.create", x + "-job", 0},
		{"POST /api/v1/jobs:bulk", "/jobs:bulk", fmt.Sprintf(line+"\n"+line+"\n", x, 1, x, 2), "job.create", "", 2},
		{"POST /api/v1/jobs:apply", "/jobs:apply", fmt.Sprintf(line+"\n"+line+"\n"+line+"\n", x, 1, x, 3, x, 4), "job.create", "", 2},
		{"PUT /api/v1/jobs/{ref}", "/jobs/" + x + "-job", manual, "job.update", x + "-job", 0},
		{"PATCH /api/v1/jobs/{ref}", "/jobs/" + x + "-job", `{"priority":"high"}`, "job.update", x + "-job", 0},
		{"POST /api/v1/jobs/{ref}:pause", "/jobs/" + x + "-job:pause", "", "job.pause", x + "-job", 0},
		{"POST /api/v1/jobs/{ref}:resume", "/jobs/" + x + "-job:resume", "", "job.resume", x + "-job", 0},
		{"POST /api/v1/jobs:act", "/jobs:act", `{"filter":{"prefix":"` + x + `-job"},"action":"tag","args":{"tags":{"a":"b"}}}`, "job.update", x + "-job", 0},
		{"POST /api/v1/jobs/{ref}:run", "/jobs/" + x + "-job:run", "", "job.run", x + "-job", 0},
		{"POST /api/v1/runs/{ref}:cancel", "/runs/$run:cancel", "", "run.cancel", x + "-job", 0},
		{"POST /api/v1/jobs/{ref}:backfill", "/jobs/" + x + "-job:backfill", `{"from":"2026-01-01T00:00:00Z","to":"2026-01-03T00:00:00Z"}`,
			"job.backfill", x + "-job", 2},
		{"POST /api/v1/jobs/{ref}:cancel", "/jobs/" + x + "-job:cancel", "", "job.cancel", x + "-job", 2},
		{"DELETE /api/v1/jobs/{ref}", "/jobs/" + x + "-job", "", "job.delete", x + "-job", 0},
		{"POST /api/v1/dead:redrive", "/dead:redrive", `{"all":true}`, "dead.redrive", "", 0},
		{"DELETE /api/v1/dead", "/dead?all=true", "", "dead.purge", "", 0},
		{"PUT /api/v1/calendars/{name}", "/calendars/" + x, `{"dates":["12-25"]}`, "calendar.put", x, 0},
		{"DELETE /api/v1/calendars/{name}", "/calendars/" + x, "", "calendar.delete", x, 0},
		{"PUT /api/v1/queues/{queue}", "/queues/" + x, `{"concurrency":5}`, "queue.put", x, 0},
		{"PATCH /api/v1/queues/{queue}", "/queues/" + x, `{"concurrency":6}`, "queue.put", x, 0},
		{"POST /api/v1/queues/{queue}:pause", "/queues/" + x + ":pause", "", "queue.pause", x, 0},
		{"POST /api/v1/queues/{queue}:resume", "/queues/" + x + ":resume", "", "queue.resume", x, 0},
		{"DELETE /api/v1/queues/{queue}", "/queues/" + x, "", "queue.delete", x, 0},
		{"POST /api/v1/tokens", "/tokens", `{"name":"` + x + `-token","role":"viewer"}`, "token.create", x + "-token", 0},
		{"POST /api/v1/tokens/{ref}:resume", "/tokens/$token:resume", "", "token.resume", x + "-token", 0},
		{"POST /api/v1/tokens/{ref}:revoke", "/tokens/" + x + "-token:revoke", "", "token.revoke", x + "-token", 0},
		{"POST /api/v1/cluster:clock-reset", "/cluster:clock-reset", "", "cluster.clock-reset", "", 0},
		{"POST /api/v1/cluster:release", "/cluster:release", "", "cluster.release", "", 0},
		{"GET /api/v1/backup", "/backup", "", "backup.create", "*", 0},
		{"POST /api/v1/backup:note", "/backup:note", `{"node_id":"` + other + `"}`, "backup.create", other, 0},
		{"POST /api/v1/backup:note", "/backup:note", `{"node_id":"` + other + `","keys":true}`, "backup.keys", other, 0},
		{"POST /api/v1/cluster:demote", "/cluster:demote", `{"node_id":"` + other + `"}`, "member.demote", other, 0},
		{"POST /api/v1/cluster:promote", "/cluster:promote", `{"node_id":"` + other + `"}`, "member.promote", other, 0},
	}
}

// Of members that come and go, of a leadership that is handed on and of a CA that is replaced, package node's tests have
// real nodes.
var elsewhere = []string{"POST /api/v1/cluster:rotate-ca", "POST /api/v1/cluster:join", "POST /api/v1/cluster:remove",
	"POST /api/v1/cluster:grow-groups", // TestGrowGroups
	"POST /api/v1/cluster:move-group", "POST /api/v1/cluster:transfer", "POST /api/v1/join-tokens",
	"POST /api/v1/join-tokens/{ref}:revoke",
	// TestSecretsAreRecorded: they need keys.
	"PUT /api/v1/secrets/{name}", "DELETE /api/v1/secrets/{name}"}

func lastAudit(t testing.TB, n *apitest.Node) (seq uint64, a store.Audit) {
	t.Helper()
	err := n.State().View(func(v *store.View) error {
		return v.EachAuditBack(0, func(s uint64, r store.Audit) bool {
			seq, a = s, r
			return false
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return seq, a
}

// Every route that changes something leaves exactly one record with its caller, asked of the leader or of a follower,
// and its repetition none. The routes are those of the table: a new one has to be in here.
func TestEveryChangeLeavesOneRecord(t *testing.T) {
	underOneLeader(t, everyChangeLeavesOneRecord)
}

func everyChangeLeavesOneRecord(t *tenure) {
	nodes := t.cluster(3, apitest.Secure)
	leader := nodes[0]
	var known []string
	for _, via := range []struct {
		x     string
		n     *apitest.Node
		other string
	}{{"l", leader, nodes[1].Options.NodeID}, {"f", nodes[1], nodes[2].Options.NodeID}} {
		token := leader.Token(t, wire.TokenRequest{Name: "admin " + via.x, Role: job.RoleAdmin, Shell: true})
		from := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, 9)}}).DialContext}}
		run, made := "", wire.TokenCreated{}
		for i, s := range auditSteps(via.x, via.other) {
			known = append(known, s.route)
			method, _, _ := strings.Cut(s.route, " ")
			path := strings.NewReplacer("$run", run, "$token", made.ID).Replace(s.path)
			before, _ := lastAudit(t, leader)
			for try := range 2 {
				if try == 1 && method == "GET" {
					continue // two backups are two
				}
				rq, err := http.NewRequestWithContext(t.Context(), method, "http://"+via.n.Addr()+"/api/v1"+path, strings.NewReader(s.body))
				if err != nil {
					t.Fatal(err)
				}
				rq.Header.Set("Authorization", "Bearer "+token)
				rq.Header.Set("Idempotency-Key", fmt.Sprint("key-", via.x, i))
				res, err := from.Do(rq)
				if err != nil {
					t.Fatal(err)
				}
				data, err := io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil || res.StatusCode >= 300 {
					t.Fatalf("%s via %s, try %d: %d %s %v", s.route, via.x, try, res.StatusCode, data, err)
				}
				if s.action == "token.create" && try == 0 {
					if err := json.Unmarshal(data, &made); err != nil {
						t.Fatal(err)
					}
				}
				if s.action == "job.run" {
					var made job.Run
					if err := json.Unmarshal(data, &made); err != nil {
						t.Fatal(err)
					}
					run = made.RunID
				}
				seq, a := lastAudit(t, leader)
				if seq != before+1 {
					t.Fatalf("%s via %s, try %d: %d records", s.route, via.x, try, seq-before)
				}
				if a.Action != s.action || a.Name != "admin "+via.x || a.Token == "" || a.Address != "127.0.2.9" || a.Outcome != "" ||
					s.object != "*" && s.object != a.Object && s.object != a.ID || a.Done != s.done ||
					method != "GET" && strings.TrimSuffix(a.Request, ":"+a.ID) != fmt.Sprint("key-", via.x, i) {
					t.Errorf("%s via %s: %+v", s.route, via.x, a)
				}
				if text := fmt.Sprintf("%+v", a); strings.Contains(text, `"`) || strings.Contains(text, "0 9 * * *") {
					t.Errorf("%s: a record has something of what is in its object: %s", s.route, text)
				}
			}
		}
	}
	for _, rt := range api.Routes() {
		name := rt.Method + " " + rt.Path
		_, never := unrecorded[name]
		if has := slices.Contains(known, name) || slices.Contains(elsewhere, name); rt.Method != "GET" && has == never {
			t.Errorf("say in this test which record %s leaves, or why it leaves none", name)
		}
	}
	// Replicas agree.
	want, err := leader.State().Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes[1:] {
		for got := ""; got != want; {
			if want, err = leader.State().Digest(); err != nil {
				t.Fatal(err)
			}
			if got, err = n.State().Digest(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-t.Context().Done():
				t.Fatal("a replica has another state")
			case <-time.After(time.Millisecond):
			}
		}
		if problems, _, err := n.State().Check(); err != nil || len(problems) > 0 {
			t.Error(problems, err)
		}
	}
}

// A plain cluster records where requests came from, and whose admin socket they came by.
func TestAuditOfAPlainCluster(t *testing.T) {
	dir := socketDir(t)
	n := openIn(t, dir)
	defer func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	}()
	c := client.New("unix:" + filepath.Join(dir, node.AdminSocket))
	if _, err := c.PauseQueue(t.Context(), "q"); err == nil {
		t.Fatal("there is such a queue")
	}
	if _, a := lastAudit(t, n); a.Name != "admin socket of n1" || a.Address != "" || a.Token != "" || a.Action != "queue.pause" ||
		a.Outcome != "not_found" {
		t.Errorf("%+v", a)
	}
	// Headers of a stranger do not count without the one that only nodes send.
	if status, p := ask(t, n, "PUT", "/api/v1/queues/q", "", `{"concurrency":5}`, wire.AddressHeader, "192.0.2.1", wire.LocalHeader, "true"); status != 200 {
		t.Fatalf("%d %+v", status, p)
	}
	if _, a := lastAudit(t, n); a.Name != "" || a.Address != "127.0.0.1" || a.Action != "queue.put" {
		t.Errorf("%+v", a)
	}
}

func TestListAndExportAudit(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	root := n.Token(t, wire.TokenRequest{Name: "root", Role: job.RoleAdmin})
	as := func(token string) *client.Client {
		return client.New(n.Addr(), client.WithHeader("Authorization", "Bearer "+token), client.WithAttempts(1))
	}
	ctx := t.Context()
	all := as(root)
	three := 3
	for i := range 5 {
		if _, err := all.In("team-a").PutQueue(ctx, fmt.Sprint("a", i), wire.QueueChange{Concurrency: &three}, 0); err != nil {
			t.Fatal(err)
		}
		n.Clock.Advance(time.Minute)
	}
	if _, err := all.PutQueue(ctx, "b", wire.QueueChange{Concurrency: &three}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := all.CreateToken(ctx, wire.TokenRequest{Name: "team admin", Role: job.RoleAdmin, Namespace: "team-a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := all.CreateToken(ctx, wire.TokenRequest{Name: "ci", Role: job.RoleViewer}); err != nil {
		t.Fatal(err)
	}
	list := func(c *client.Client, q wire.AuditQuery) (out []string) {
		t.Helper()
		for {
			page, err := c.Audit(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Records {
				out = append(out, r.Object)
			}
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				return out
			}
		}
	}
	team := as(n.Token(t, wire.TokenRequest{Name: "team", Role: job.RoleAdmin, Namespace: "team-a"}))
	start := job.At(apitest.Noon)
	for _, tt := range []struct {
		name string
		c    *client.Client
		q    wire.AuditQuery
		want string
	}{
		{"nothing said", all, wire.AuditQuery{}, "ci b"},
		{"every namespace", all.In("*"), wire.AuditQuery{}, "ci team admin b a4 a3 a2 a1 a0"},
		{"page", all.In("*"), wire.AuditQuery{Limit: 2}, "ci team admin b a4 a3 a2 a1 a0"},
		{"namespace", all.In("default"), wire.AuditQuery{}, "b"},
		{"kind", all.In("*"), wire.AuditQuery{Action: "token"}, "ci team admin"},
		{"action", all.In("*"), wire.AuditQuery{Action: "queue.put"}, "b a4 a3 a2 a1 a0"},
		{"object", all.In("team-a"), wire.AuditQuery{Object: "a3"}, "a3"},
		{"token", all, wire.AuditQuery{Token: "root", Object: "b"}, "b"},
		{"other token", all, wire.AuditQuery{Token: "ci"}, ""},
		{"after", all.In("*"), wire.AuditQuery{After: wire.Seqs{5}}, "ci team admin b"},
		{"since", all.In("team-a"), wire.AuditQuery{Since: start + 60_000, Until: start + 180_000}, "a2 a1"},
		{"of a namespace", team, wire.AuditQuery{}, "team admin a4 a3 a2 a1 a0"},
	} {
		if got := strings.Join(list(tt.c, tt.q), " "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	var seqs []uint64
	err := all.In("*").ExportAudit(ctx, wire.AuditQuery{After: wire.Seqs{2}, Limit: 3}, func(r wire.AuditRecord, _ json.RawMessage) error {
		seqs = append(seqs, r.Seq)
		return nil
	})
	if err != nil || !slices.Equal(seqs, []uint64{3, 4, 5}) {
		t.Errorf("%v %v", seqs, err)
	}
	if err := team.In("default").ExportAudit(ctx, wire.AuditQuery{}, nil); job.CodeOf(err) != job.CodeForbidden {
		t.Errorf("%v", err)
	}
	for path, want := range map[string]string{"?action=job.craete": "job.create", "?since=yesterday": "since", "?after=x": "after",
		"?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z": "until"} {
		if status, p := ask(t, n, "GET", "/api/v1/audit"+path, root, ""); status != 400 || !strings.Contains(fmt.Sprint(p), want) {
			t.Errorf("%s: %d %+v", path, status, p)
		}
	}
	viewer := n.Token(t, wire.TokenRequest{Name: "viewer", Role: job.RoleViewer})
	if status, _ := ask(t, n, "GET", "/api/v1/audit", viewer, ""); status != 403 {
		t.Errorf("a viewer gets %d", status)
	}
	if status, _ := ask(t, n, "GET", "/api/v1/audit:export", "", ""); status != 401 {
		t.Errorf("without a token: %d", status)
	}
	res := send(t, ctx, n, "GET", "/api/v1/audit:export?namespace=*", root, nil)
	defer res.Body.Close()
	lines := 0
	for sc := bufio.NewScanner(res.Body); sc.Scan(); lines++ {
	}
	if lines != 8 || res.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("%d lines of %s", lines, res.Header.Get("Content-Type"))
	}
}
