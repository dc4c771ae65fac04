package node

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

// echo is a target that answers with all that it is sent, in several forms, and remembers it.
type echo struct {
	*httptest.Server
	mu   sync.Mutex
	got  []string
	hook []string // what was posted to /hook
}

func newEcho(t *testing.T) *echo {
	e := &echo{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		all := r.Header.Get("Authorization") + " " + r.URL.String() + " " + string(body)
		e.mu.Lock()
		if strings.HasPrefix(r.URL.Path, "/hook") {
			e.hook = append(e.hook, r.URL.Path)
		} else {
			e.got = append(e.got, all)
		}
		e.mu.Unlock()
		if r.URL.Query().Has("fail") || strings.HasPrefix(r.URL.Path, "/hook") {
			w.WriteHeader(http.StatusBadRequest)
		}
		// Over each of the bounds at which answers are cut, shifted so that every byte of a value is at one of them.
		for i := range 40 {
			fmt.Fprintf(w, "%s%s %s ", strings.Repeat("x", 100-i), all, base64.StdEncoding.EncodeToString([]byte(all)))
		}
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *echo) last() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.got) == 0 {
		return ""
	}
	return e.got[len(e.got)-1]
}

// traces are the forms in which a value may not be found, with their names.
func traces(value string) map[string][]byte {
	std := base64.StdEncoding.EncodeToString([]byte(value))
	shifted := base64.StdEncoding.EncodeToString([]byte("x" + value))
	return map[string][]byte{"raw": []byte(value), "percent": []byte(url.QueryEscape(value)),
		"base64": []byte(std[:len(std)-4]), "base64, shifted": []byte(shifted[4 : len(shifted)-4])}
}

// everything is all that is left of what a cluster did: its files, its log, its backups, its answers.
func everything(c *cluster, log *lockedBuffer) map[string][]byte {
	c.t.Helper()
	out := map[string][]byte{"log": []byte(log.String())}
	for _, m := range c.members {
		err := filepath.WalkDir(m.cfg.DataDir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // it was removed meanwhile, or is a socket
			}
			data, err := os.ReadFile(path)
			if err == nil {
				out[path] = data
			}
			return nil
		})
		if err != nil {
			c.t.Fatal(err)
		}
		if m.link.dead.Load() {
			continue
		}
		out["backup of "+m.id()] = m.backup()
		out["metrics of "+m.id()] = m.call("GET", "/metrics", nil).body
		doc := ok[struct{ Paths map[string]map[string]any }](m.testNode, "GET", "/api/v1/openapi.json", nil)
		for rt, methods := range doc.Paths {
			if methods["get"] == nil || strings.HasSuffix(rt, "/backup") {
				continue
			}
			if strings.HasSuffix(rt, "/events") { // it has no end
				out[m.id()+" "+rt] = someEvents(m)
				continue
			}
			path := strings.NewReplacer("{ref}", "with", "{name}", "api-key", "{queue}", "mail", "{id}", "x").Replace(rt)
			if a, err := m.try("GET", path, nil); err == nil {
				out[m.id()+" "+path] = a.body
			}
		}
		for _, ref := range []string{"with", "shell", "bad"} {
			for _, r := range m.runs(ref) {
				for _, path := range []string{"/api/v1/runs/" + r.RunID, "/api/v1/runs/" + r.RunID + "/output"} {
					if a, err := m.try("GET", path, nil); err == nil {
						out[m.id()+" "+path] = a.body
					}
				}
			}
		}
	}
	return out
}

// ran waits until a run of a job has ended for good, and returns the newest.
func (n *testNode) ran(ref string, more int) job.Run {
	n.t.Helper()
	var last job.Run
	n.eventually(ref+" ran", func() bool {
		ended := 0
		for _, r := range n.runs(ref) {
			if r.Status == job.RunSucceeded || r.Status == job.RunDead {
				if ended++; ended == 1 {
					last = r
				}
			}
		}
		return ended >= more
	})
	return last
}

// The values of secrets get to the targets of their jobs and to nothing else: not into the files of any node, not into a
// backup, an answer, a metric or the log. What a job spells out itself gets everywhere, which is what secrets are for
// (and which shows that the look for them finds what is there).
func TestSecretsLeaveNoTrace(t *testing.T) {
	realTime(t)
	t.Parallel()
	const (
		value   = "s3cr3t/vä lue+%"
		literal = "l1t3ral-value-of-a-header"
		hook    = "T0123/B4567/h00kValue"
		rotated = "r0tated and quite different"
	)
	log := &lockedBuffer{}
	secure, _ := securely(t)
	c := startJoined(t, 3, secure, func(cfg *Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		cfg.Executors = []job.Type{job.TypeHTTP, job.TypeShell}
	})
	n, e := c.leader(), newEcho(t)
	put := func(n *member, name, value string) wire.Secret {
		return ok[wire.Secret](n.testNode, "PUT", "/api/v1/secrets/"+name, map[string]any{"value": value})
	}
	follower := c.others(n)[0]
	if s := put(follower, "api-key", value); s.Version != 1 || s.Status != "set" {
		t.Errorf("%+v", s)
	}
	put(n, "hook", hook)
	n.create(map[string]any{"name": "with", "type": "http", "schedule": "@manual", "payload": map[string]any{
		"url":     e.URL + "/p/secret://api-key?k=secret://api-key&x=1",
		"headers": map[string]string{"Authorization": "Bearer secret://api-key"},
		"body":    map[string]any{"a": []string{"secret://api-key"}, "n": 12345678901234567}}})
	n.create(map[string]any{"name": "literal", "type": "http", "schedule": "@manual", "payload": map[string]any{
		"url": e.URL, "headers": map[string]string{"Authorization": "Bearer " + literal}}})
	n.create(map[string]any{"name": "shell", "type": "shell", "schedule": "@manual", "payload": map[string]any{
		"command": `printf '%s' "$KEY" | head -c 5; printf '%s' "$KEY" | tail -c +6;
			printf '%s' "$KEY" | base64; i=0; while [ $i -lt 400 ]; do printf '%s%s' "$i" "$KEY"; i=$((i+1)); done`,
		"env": map[string]string{"KEY": "secret://api-key"}}})
	n.create(map[string]any{"name": "bad", "type": "http", "schedule": "@manual", "retry": map[string]any{"max_retries": 0},
		"notify":  map[string]any{"webhook": e.URL + "/hook/secret://hook"},
		"payload": map[string]any{"url": e.URL + "/?fail=1", "headers": map[string]string{"X-Key": "secret://api-key"}, "body": "key secret://api-key."}})

	for _, ref := range []string{"with", "literal", "shell", "bad"} {
		n.call("POST", "/api/v1/jobs/"+ref+":run", nil)
	}
	with, shell, bad := n.ran("with", 1), n.ran("shell", 1), n.ran("bad", 1)
	n.ran("literal", 1)
	escaped := strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(value), "+", "%20"), "%2F", "/")
	e.mu.Lock()
	got := strings.Join(e.got, "\n")
	e.mu.Unlock()
	for _, want := range []string{"Bearer " + value, "/p/" + escaped, "k=" + url.QueryEscape(value)[:9], `{"a":["` + value + `"],"n":12345678901234567}`,
		"key " + value + "."} {
		if !strings.Contains(strings.ReplaceAll(got, "+%25", "%2B%25"), want) {
			t.Errorf("no %q in what the target got:\n%s", want, got)
		}
	}
	for name, r := range map[string]job.Run{"with": with, "shell": shell, "bad": bad} {
		if !strings.Contains(r.Output+r.Error, "***") {
			t.Errorf("%s left %q, %q", name, r.Output, r.Error)
		}
	}
	if with.Status != job.RunSucceeded || shell.Status != job.RunSucceeded || bad.Status != job.RunDead {
		t.Errorf("%v %v %v", with, shell, bad)
	}
	n.eventually("the webhook was called", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.hook) > 0 && e.hook[0] == "/hook/"+hook
	})
	n.eventually("that is recorded", func() bool {
		l := n.get("bad").LastNotification
		return l != nil && l.Outcome == job.NotificationFailed
	})
	if l := n.get("bad").LastNotification; !strings.Contains(l.Error, "400") {
		t.Errorf("%+v", l)
	}

	// A new value counts for the next run, under another leader too; a deleted secret ends its run before it begins.
	put(n, "api-key", rotated)
	n.stop()
	n.link.dead.Store(true)
	n = c.leader()
	n.call("POST", "/api/v1/jobs/with:run", nil)
	if r := n.ran("with", 2); r.Status != job.RunSucceeded || !strings.Contains(e.last(), rotated) {
		t.Errorf("%+v, %q", r, e.last())
	}
	a := n.call("DELETE", "/api/v1/secrets/api-key", nil)
	if a.status != http.StatusConflict || !strings.Contains(string(a.body), "with") || !strings.Contains(string(a.body), "force") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := n.call("DELETE", "/api/v1/secrets/api-key?force=true", nil); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}
	before := e.last()
	n.call("POST", "/api/v1/jobs/with:run", nil)
	r := n.ran("with", 3)
	if r.Status != job.RunDead || r.Reason != job.ReasonSecret || !strings.Contains(r.Error, `no secret "api-key"`) || e.last() != before {
		t.Errorf("%+v", r)
	}
	put(n, "api-key", value)

	for _, m := range c.members {
		if !m.link.dead.Load() {
			if err := m.group.raft.Snapshot().Error(); err != nil {
				t.Error(err)
			}
		}
	}
	all := everything(c, log)
	found := 0
	for where, data := range all {
		for _, v := range []string{value, hook, rotated} {
			for form, trace := range traces(v) {
				if i := bytes.Index(data, trace); i >= 0 {
					t.Errorf("%q (%s) is in %s: …%q…", v, form, where, data[max(0, i-60):min(len(data), i+60)])
				}
			}
		}
		if bytes.Contains(data, []byte(literal)) {
			found++
		}
	}
	if found < 6 {
		t.Errorf("a value that a job spells out is in %d of %d places", found, len(all))
	}
}

// A cluster without keys takes no secrets, and no job that refers to one.
func TestPlainClusterHasNoSecrets(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	if a := n.call("PUT", "/api/v1/secrets/api-key", map[string]any{"value": "hunter2hunter2"}); a.status != http.StatusConflict ||
		!strings.Contains(string(a.body), "--secure") {
		t.Errorf("%d %s", a.status, a.body)
	}
	a := n.call("POST", "/api/v1/jobs", map[string]any{"type": "shell", "schedule": "@manual",
		"payload": map[string]any{"command": "date", "env": map[string]string{"K": "secret://api-key"}}})
	if a.status != http.StatusBadRequest || a.problem().Field != "payload.env.K" || !strings.Contains(string(a.body), "--secure") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// What a job may not refer to, and how: at its creation, in bulk, by patch, by a secret of another namespace, by one
// that is not there yet, and to a host that the secret is not for.
func TestReferencesThatAreRefused(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), func(c *Config) { c.Keys.On = true })
	for path, body := range map[string]any{"api-key": map[string]any{"value": "hunter2hunter2"},
		"bound":                    map[string]any{"value": "hunter2hunter2", "hosts": []string{"api.example.com", "127.0.0.1:1"}},
		"elsewhere?namespace=team": map[string]any{"value": "hunter2hunter2"}} {
		if a := n.call("PUT", "/api/v1/secrets/"+path, body); a.status != 200 {
			t.Fatalf("%s: %d %s", path, a.status, a.body)
		}
	}
	spec := func(typ string, payload map[string]any) map[string]any {
		return map[string]any{"type": typ, "schedule": "@manual", "payload": payload}
	}
	httpTo := func(u string, more ...any) map[string]any {
		p := map[string]any{"url": u}
		for i := 0; i < len(more); i += 2 {
			p[more[i].(string)] = more[i+1]
		}
		return spec("http", p)
	}
	n.create(map[string]any{"name": "fine", "type": "http", "schedule": "@manual", "payload": map[string]any{"url": "https://api.example.com/secret://bound"}})
	for name, tt := range map[string]struct {
		spec        map[string]any
		field, want string
	}{
		"as host":              {httpTo("https://secret://api-key/x"), "payload.url", "path or the query"},
		"in a host":            {httpTo("https://x.secret://api-key"), "payload.url", "path or the query"},
		"in the user":          {httpTo("https://secret://api-key@example.com/"), "payload.url", "path or the query"},
		"as a whole URL":       {httpTo("secret://api-key"), "payload.url", "path or the query"},
		"in a fragment":        {httpTo("https://h/#secret://api-key"), "payload.url", "path or the query"},
		"in the header Host":   {httpTo("https://h/", "headers", map[string]string{"host": "secret://api-key"}), "payload.headers.host", "host"},
		"in a header's name":   {httpTo("https://h/", "headers", map[string]string{"secret://api-key": "x"}), "payload.headers", "cannot be referred to here"},
		"in the method":        {httpTo("https://h/", "method", "secret://api-key"), "payload.method", "refer to the secret in body, headers, url"},
		"without verification": {httpTo("https://h/secret://api-key", "insecure_skip_verify", true), "payload.insecure_skip_verify", "not verified"},
		"without a name":       {httpTo("https://h/?a=secret://"), "payload.url", "not the name"},
		"one that is not set":  {httpTo("https://h/?a=secret://later"), "payload.url", "carillon secret set later"},
		"of another namespace": {httpTo("https://h/?a=secret://elsewhere"), "payload.url", "no secret"},
		"to another host":      {httpTo("https://evil.example.com/?a=secret://bound"), "payload.url", "api.example.com"},
		"to another port":      {httpTo("http://127.0.0.1:2/?a=secret://bound"), "payload.url", "127.0.0.1:1"},
		"bound, in a shell":    {spec("shell", map[string]any{"command": "date", "env": map[string]string{"A": "secret://bound"}}), "payload.env.A", "api.example.com"},
		"in a command":         {spec("shell", map[string]any{"command": "echo secret://api-key"}), "payload.command", "refer to the secret in env"},
		"in a broker": {spec("message", map[string]any{"broker": "nats://secret://api-key", "subject": "a"}), "payload.broker",
			"refer to the secret in data, headers"},
		"in a webhook's host": {map[string]any{"type": "http", "schedule": "@manual", "payload": map[string]any{"url": "https://h/"},
			"notify": map[string]any{"webhook": "https://secret://api-key/x"}}, "notify.webhook", "path or the query"},
		"in a webhook, not set": {map[string]any{"type": "http", "schedule": "@manual", "payload": map[string]any{"url": "https://h/"},
			"notify": map[string]any{"webhook": "https://h/secret://later"}}, "notify.webhook", "carillon secret set later"},
	} {
		t.Run(name, func(t *testing.T) {
			a := n.call("POST", "/api/v1/jobs", tt.spec)
			if a.status != http.StatusBadRequest || a.problem().Field != tt.field || !strings.Contains(string(a.body), tt.want) {
				t.Errorf("%d, want field %s, %s\n%s", a.status, tt.field, tt.want, a.body)
			}
			// A job that is fine does not become it.
			patch := map[string]any{"type": tt.spec["type"], "payload": tt.spec["payload"], "notify": tt.spec["notify"]}
			if a := n.call("PATCH", "/api/v1/jobs/fine", patch, "Content-Type", "application/merge-patch+json"); a.status != http.StatusBadRequest {
				t.Errorf("patch: %d %s", a.status, a.body)
			}
		})
	}
	// JSON may write a reference otherwise; it is one all the same.
	escaped := `{"type":"queue","schedule":"@manual","payload":{"queue":"q","data":"\u0073ecret:\/\/later"}}`
	if a := n.call("POST", "/api/v1/jobs", escaped); a.status != http.StatusBadRequest || a.problem().Field != "payload.data" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A backup that is restored in a cluster with other keys has its secrets, and cannot open them: they are listed as
// missing, and the runs that need them end and say so, until they are set again.
func TestSecretsOfOtherKeys(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), func(c *Config) { c.Keys.On = true })
	e := newEcho(t)
	other, err := keys.NewAuthority("other", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ok[wire.Secret](n, "PUT", "/api/v1/secrets/api-key", map[string]any{"value": "hunter2hunter2"})
	n.create(map[string]any{"name": "with", "type": "http", "schedule": "@manual", "payload": map[string]any{"url": e.URL + "/secret://api-key"}})
	sealed, err := other.Seal([]byte("hunter2hunter2"), "secret", "default", "api-key", "2")
	if err != nil {
		t.Fatal(err)
	}
	n.putSealed("api-key", 2, sealed)
	if s := ok[wire.Secret](n, "GET", "/api/v1/secrets/api-key", nil); s.Status != "missing" || s.JobCount != 1 || s.Jobs[0] != "with" {
		t.Errorf("%+v", s)
	}
	n.call("POST", "/api/v1/jobs/with:run", nil)
	if r := n.ran("with", 1); r.Reason != job.ReasonSecret || !strings.Contains(r.Error, "key that the cluster no longer has") || e.last() != "" {
		t.Errorf("%+v", r)
	}
	ok[wire.Secret](n, "PUT", "/api/v1/secrets/api-key", map[string]any{"value": "hunter3hunter3"})
	n.call("POST", "/api/v1/jobs/with:run", nil)
	if r := n.ran("with", 2); r.Status != job.RunSucceeded || !strings.Contains(e.last(), "hunter3hunter3") {
		t.Errorf("%+v", r)
	}
}

// Many set a secret while many runs are handed out with it: each run has one whole value, of a version that there was.
func TestSecretsAreSetWhileRunsStart(t *testing.T) {
	realTime(t)
	t.Parallel()
	n := start(t, t.TempDir(), func(c *Config) { c.Keys.On = true })
	e := newEcho(t)
	ok[wire.Secret](n, "PUT", "/api/v1/secrets/k", map[string]any{"value": "value-000-000"})
	n.create(map[string]any{"name": "with", "type": "http", "schedule": "@manual", "overlap": "allow", "payload": map[string]any{"url": e.URL + "/?k=secret://k"}})
	var all sync.WaitGroup
	const setters, each = 4, 8
	for i := range setters {
		all.Go(func() {
			for k := range each {
				if a := n.call("PUT", "/api/v1/secrets/k", map[string]any{"value": fmt.Sprintf("value-%03d-%03d", i, k)}); a.status != 200 {
					t.Errorf("%d %s", a.status, a.body)
				}
				n.call("POST", "/api/v1/jobs/with:run", nil)
			}
		})
	}
	all.Wait()
	n.ran("with", setters*each)
	if s := ok[wire.Secret](n, "GET", "/api/v1/secrets/k", nil); s.Version != 1+setters*each {
		t.Errorf("version %d", s.Version)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, got := range e.got {
		var i, k int
		if _, err := fmt.Sscanf(got[strings.Index(got, "value-"):], "value-%03d-%03d", &i, &k); err != nil || i >= setters || k >= each {
			t.Errorf("%q, %v", got, err)
		}
	}
	if len(e.got) != setters*each {
		t.Errorf("%d runs", len(e.got))
	}
	for _, r := range n.runs("with") {
		if strings.Contains(r.Output, "value-") {
			t.Errorf("%+v", r)
		}
	}
}

// putSealed writes a sealed value as it is, as a restored backup has one.
func (n *testNode) putSealed(name string, version uint64, sealed []byte) {
	n.t.Helper()
	e := n.tracker.Epoch()
	now, err := e.Scheduler.Stamp()
	if err != nil {
		n.t.Fatal(err)
	}
	reply, err := e.Proposer.Propose(&fsm.PutSecret{Head: e.Head(now), Name: name, Version: version, Sealed: sealed}).Wait()
	if err != nil || reply.Items[0].Code != fsm.CodeOK {
		n.t.Fatalf("%+v, %v", reply, err)
	}
}

// Attack: an admin of one namespace sets secrets until the cluster takes no more, and nobody else can set one.
func TestOneNamespaceDoesNotUseUpAllSecrets(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), func(c *Config) { c.Keys.On = true })
	const most = 512
	put := func(namespace string, i int) apiAnswer {
		return n.call("PUT", fmt.Sprintf("/api/v1/secrets/k%d?namespace=%s", i, namespace), map[string]any{"value": "a-value"})
	}
	for i := range most {
		if a := put("team-a", i); a.status != 200 {
			t.Fatalf("secret %d: %d %s", i, a.status, a.body)
		}
	}
	if p := put("team-a", most).problem(); p.Code != job.CodeState || !strings.Contains(p.Message, "512 secrets") {
		t.Errorf("one more: %+v", p)
	}
	for namespace, i := range map[string]int{"team-a": 7, "team-b": most} { // another value, and another namespace
		if a := put(namespace, i); a.status != 200 {
			t.Errorf("%s: %d %s", namespace, a.status, a.body)
		}
	}
}

// A run whose secrets have more lines together than are masked is not started, and says why.
func TestSecretsOfManyLines(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), func(c *Config) { c.Keys.On = true })
	tg := newTarget(t)
	var refs []string
	for i := range 5 {
		name := fmt.Sprint("s", i)
		value := strings.Repeat(fmt.Sprintf("line-%d\n", i), job.MaxSecretLines)
		if a := n.call("PUT", "/api/v1/secrets/"+name, map[string]any{"value": value}); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
		refs = append(refs, "secret://"+name)
		n.create(map[string]any{"name": fmt.Sprint("with-", i+1), "type": "http", "schedule": "@manual",
			"payload": map[string]any{"url": tg.URL, "method": "POST", "body": strings.Join(refs, " ")}})
	}
	for name, want := range map[string]job.RunStatus{"with-4": job.RunSucceeded, "with-5": job.RunDead} {
		ok[job.Run](n, "POST", "/api/v1/jobs/"+name+":run", nil)
		n.eventually(name+" ends", func() bool {
			page := ok[wire.RunPage](n, "GET", "/api/v1/jobs/"+name+"/runs", nil)
			if len(page.Runs) == 0 || page.Runs[0].Status != want {
				return false
			}
			if want == job.RunDead && !strings.Contains(page.Runs[0].Error, "1280 lines together, and at most 1024") {
				t.Errorf("it says %q", page.Runs[0].Error)
			}
			return true
		})
	}
}
