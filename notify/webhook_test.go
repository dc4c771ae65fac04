package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/port"
	"github.com/carillon-scheduler/carillon/store"
)

// onLoopback lets jobs reach the receivers of tests.
var onLoopback = func() *egress.Policy {
	p, err := egress.New(egress.Options{Loopback: true})
	if err != nil {
		panic(err)
	}
	return p
}()

func testMessage() *Message {
	return &Message{Kind: "failure", JobID: 7, Name: "nightly", RunID: "r_1", Status: "dead",
		Reason: "retries_exhausted", Error: "<b> & exit 1", ScheduledAt: 1_700_000_000_000,
		At: 1_700_000_060_000, Key: "j_7:failure:3:1700000060000"}
}

func TestWebhook(t *testing.T) {
	var got map[string]any
	var head http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head = r.Header
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.Method != "POST" {
			t.Errorf("%s %v", r.Method, err)
		}
		fmt.Fprint(w, "ok")
	}))
	defer srv.Close()
	if r := NewPoster(&Settings{Egress: onLoopback}).Post(t.Context(), srv.URL+"/services/secret", false,
		testMessage()); r.Outcome != Sent || r.Err != nil {
		t.Fatalf("%+v", r)
	}
	if head.Get("Idempotency-Key") != "j_7:failure:3:1700000060000" || !strings.HasPrefix(head.Get("Content-Type"),
		"application/json") {
		t.Errorf("%v", head)
	}
	for k, want := range map[string]string{"text": "Job nightly failed", "kind": "failure", "job_id": "j_7",
		"name": "nightly", "run_id": "r_1", "status": "dead", "error": "<b> & exit 1",
		"scheduled_at": "2023-11-14T22:13:20Z"} {
		if got[k] != want {
			t.Errorf("%s is %v, want %q", k, got[k], want)
		}
	}
	a := got["attachments"].([]any)[0].(map[string]any)
	if a["color"] != "danger" || a["text"] != "&lt;b&gt; &amp; exit 1" || a["fallback"] != "Job nightly failed" {
		t.Errorf("%v", a)
	}
	m := testMessage()
	m.Kind, m.Status, m.Error = "recovery", "succeeded", ""
	if b, err := m.body(); err != nil || !bytes.Contains(b, []byte(`"text":"Job nightly works again"`)) || !bytes.Contains(b, []byte(`"color":"good"`)) || bytes.Contains(b, []byte(`"error"`)) {
		t.Errorf("%s %v", b, err)
	}
}

// Each way in which a receiver can fail is arrived, did not arrive, or unknown.
func TestWebhookOutcomes(t *testing.T) {
	var n atomic.Int64
	serve := func(h http.HandlerFunc) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n.Add(1); h(w, r) }))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	status := func(code int, header ...string) string {
		return serve(func(w http.ResponseWriter, r *http.Request) {
			if len(header) == 2 {
				w.Header().Set(header[0], header[1])
			}
			w.WriteHeader(code)
			fmt.Fprint(w, "no\x1b[31m such\nhook")
		})
	}
	hangUp := serve(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		c, _, _ := w.(http.Hijacker).Hijack()
		c.Close()
	})
	silent := serve(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	long := serve(func(w http.ResponseWriter, r *http.Request) { // ten megabytes, slowly: what counts is the status
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(200)
		for range 10 << 10 {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			time.Sleep(time.Millisecond)
		}
	})
	closed := "http://" + port.Reserve(t)
	p := NewPoster(&Settings{Timeout: 700 * time.Millisecond, Egress: onLoopback})
	slow := NewPoster(&Settings{Timeout: 20 * time.Second, Egress: onLoopback})
	for name, c := range map[string]struct {
		p       *Poster
		url     string
		outcome Outcome
		after   time.Duration
		says    string
	}{
		"created":            {slow, status(201), Sent, 0, ""},
		"refused connection": {slow, closed + "/secret", Retry, 0, "connection refused"},
		"no such host":       {slow, "http://no.such.host.invalid/secret", Retry, 0, ""},
		"no TLS":             {slow, strings.Replace(status(200), "http:", "https:", 1), Retry, 0, ""},
		"503":                {slow, status(503), Retry, 0, "answered 503: no [31m such hook"},
		"429":                {slow, status(429, "Retry-After", "90"), Retry, 90 * time.Second, "429"},
		"429 for ever":       {slow, status(429, "Retry-After", "99999999"), Retry, maxRetryAfter, "429"},
		"404":                {slow, status(404), Permanent, 0, "answered 404"},
		"a redirect":         {slow, status(302, "Location", closed), Permanent, 0, "answered 302"},
		"hung up":            {slow, hangUp, Unknown, 0, ""},
		"silent":             {p, silent, Unknown, 0, "no answer within 700ms"},
		"no URL":             {slow, "http://[", Permanent, 0, "not a URL"},
		"a long answer":      {slow, long, Sent, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n.Store(0)
			r := c.p.Post(context.Background(), c.url, false, testMessage())
			if r.Outcome != c.outcome || r.After != c.after || (r.Err == nil) != (c.outcome == Sent) {
				t.Fatalf("%+v", r)
			}
			if r.Err != nil && (!strings.Contains(r.Err.Error(), c.says) || strings.Contains(r.Err.Error(), "secret")) {
				t.Error(r.Err)
			}
			if n.Load() > 1 {
				t.Errorf("it was sent %d times", n.Load())
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := slow.Post(ctx, closed, false, testMessage()); r.Outcome != Retry {
		t.Errorf("%+v", r)
	}
}

func TestSettingsCheck(t *testing.T) {
	s := &Settings{Webhooks: map[string]string{"ops": "https://hooks.example.com/secret"}}
	for _, c := range []struct {
		n     *job.Notify
		field string
	}{
		{nil, ""}, {&job.Notify{Webhook: "ops"}, ""}, {&job.Notify{Webhook: "https://x.example/"}, ""},
		{&job.Notify{Webhook: "dev"}, "notify.webhook"}, {&job.Notify{Email: []string{"a@b.c"}}, "notify.email"},
	} {
		err := s.Check(job.DefaultNamespace, c.n)
		e, _ := err.(*job.Error)
		if (c.field == "") != (err == nil) || e != nil && e.Field != c.field {
			t.Errorf("%+v: %v", c.n, err)
		}
	}
	if u, where, err := s.URL(job.DefaultNamespace, &job.Notify{Webhook: "ops"}); err != nil || u != "https://hooks.example.com/secret" ||
		where != "webhook ops" {
		t.Error(u, where, err)
	}
	if _, where, err := s.URL(job.DefaultNamespace, &job.Notify{Webhook: "https://h.example/secret"}); err != nil || where != "h.example" {
		t.Error(where, err)
	}
	if _, _, err := s.URL(job.DefaultNamespace, &job.Notify{Webhook: "dev"}); err == nil {
		t.Error("an unknown name")
	}
	for status, says := range map[string]string{"dead": "failed", "quarantined": "quarantine", "expired": "deadline",
		"lost": "lost"} {
		if m := (&Message{Kind: "failure", JobID: 7, Status: status}); !strings.Contains(m.Title(), says) ||
			!strings.Contains(m.Title(), "j_7") {
			t.Error(m.Title())
		}
	}
}

// Two jobs of one name are told apart by their namespaces; of the usual one nothing is said to people.
func TestMessagesSayTheNamespace(t *testing.T) {
	for space, want := range map[string]string{job.DefaultNamespace: "Job mail failed", "team-a": "Job team-a/mail failed"} {
		m := message(&store.Notice{Job: 7, Kind: store.NotifyFailure, Status: job.RunDead}, &job.Spec{Name: "mail", Namespace: space}, "c")
		if m.Title() != want || m.Namespace != space {
			t.Errorf("%q in %q, want %q in %q", m.Title(), m.Namespace, want, space)
		}
		said := slices.Contains(m.lines(), [2]string{"Namespace", space})
		if said != (space != job.DefaultNamespace) {
			t.Errorf("%s: %q", space, m.lines())
		}
	}
}

// Attack: a job of another namespace sends by the webhook, or by the mail server, that the operator gave to one.
func TestReceiversOfNamespaces(t *testing.T) {
	hook, mail := &job.Notify{Webhook: "ops"}, &job.Notify{Email: []string{"a@b.c"}}
	for name, c := range map[string]struct {
		s          Settings
		hook, mail map[string]bool // of which namespaces
	}{
		"the usual one": {Settings{Webhooks: map[string]string{"ops": "https://h/"}, SMTP: SMTP{Addr: "h:25"}},
			map[string]bool{"default": true}, map[string]bool{"default": true}},
		"another one": {Settings{Webhooks: map[string]string{"team-a/ops": "https://h/"}, SMTP: SMTP{Addr: "h:25", Namespaces: []string{"team-a"}}},
			map[string]bool{"team-a": true}, map[string]bool{"team-a": true}},
		"all": {Settings{Webhooks: map[string]string{"*/ops": "https://h/"}, SMTP: SMTP{Addr: "h:25", Namespaces: []string{"*"}}},
			map[string]bool{"default": true, "team-a": true}, map[string]bool{"default": true, "team-a": true}},
	} {
		for _, space := range []string{"default", "team-a"} {
			if err := c.s.Check(space, hook); (err == nil) != c.hook[space] {
				t.Errorf("%s: webhook in %s: %v", name, space, err)
			}
			if _, _, err := c.s.URL(space, hook); (err == nil) != c.hook[space] {
				t.Errorf("%s: URL in %s: %v", name, space, err)
			}
			if err := c.s.Check(space, mail); (err == nil) != c.mail[space] {
				t.Errorf("%s: mail in %s: %v", name, space, err)
			}
			if c.mail[space] {
				continue
			}
			// The node that leads when it is sent may have other settings than the one that took the job.
			if r := c.s.Mail(t.Context(), mail.Email, &Message{Namespace: space}); r.Outcome != Retry || !strings.Contains(r.Err.Error(), space) {
				t.Errorf("%s: sent for %s: %+v", name, space, r)
			}
		}
	}
}
