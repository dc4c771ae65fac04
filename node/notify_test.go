package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/notify"
)

// hook is a receiver of webhooks that remembers what it was told.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	told   []string // name, kind and status
	keys   []string
	status int
	hang   chan struct{} // if not nil, answers wait for it
}

func newHook(t *testing.T) *hook {
	h := &hook{status: 200}
	h.Server = httptest.NewServer(http.HandlerFunc(h.serve))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) serve(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	var m struct{ Name, Kind, Status, Text string }
	_ = json.Unmarshal(data, &m)
	h.mu.Lock()
	status, hang := h.status, h.hang
	if status == 200 {
		h.told = append(h.told, m.Name+" "+m.Kind+" "+m.Status)
		h.keys = append(h.keys, r.Header.Get("Idempotency-Key"))
	}
	h.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}
	w.WriteHeader(status)
}

func (h *hook) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.told)
}

func (h *hook) answer(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

func quickly(c *Config) { c.Machine.NotifyRetry = 20 * time.Millisecond }

// stableLeader lets no leader be elected on a machine under load without a reason. A test about one change of the
// leader cannot tell another one from what it waits for, and a notification that is on its way then is unknown, as it
// should be.
func stableLeader(c *Config) { c.Raft.Heartbeat = 2 * time.Second }

// runOnce triggers a job and waits for the end of the run.
func (n *testNode) runOnce(ref string) {
	n.t.Helper()
	before := n.get(ref)
	ok[job.Run](n, "POST", "/api/v1/jobs/"+ref+":run", nil)
	n.eventually("the run of "+ref+" has ended", func() bool {
		j := n.get(ref)
		return j.OpenRuns == 0 && (j.LastRunAt != before.LastRunAt || j.LastRunStatus != before.LastRunStatus)
	})
}

func (n *testNode) outcome(ref, kind, outcome string) {
	n.t.Helper()
	last := "none"
	n.eventually(fmt.Sprintf("the %s of %s is %s", kind, ref, outcome), func() bool {
		a := n.call("GET", "/api/v1/jobs/"+ref, nil)
		if a.status == http.StatusServiceUnavailable {
			return false // there is no leader yet
		}
		var j job.Job
		if err := json.Unmarshal(a.body, &j); err != nil || a.status != 200 {
			n.t.Fatalf("%d %s", a.status, a.body)
		}
		l := j.LastNotification
		if l == nil {
			return false
		}
		if now := fmt.Sprintf("%+v", *l); now != last {
			last = now
			n.t.Logf("the last notification of %s: %s", ref, now)
		}
		return l.Kind == kind && l.Outcome == outcome
	})
}

func notifying(url string, more ...any) []any {
	m := map[string]any{"webhook": url}
	for i := 0; i < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return []any{"notify", m, "retry", map[string]any{"max_retries": 0}}
}

func TestFailureAndRecoveryAreToldOnce(t *testing.T) {
	t.Parallel()
	h := newHook(t)
	n := start(t, t.TempDir(), quickly,
		func(c *Config) { c.Notify.Webhooks = map[string]string{"ops": h.URL + "/secret"} })
	tg := newTarget(t)
	n.create(tg.spec("pay", "@manual", notifying("ops")...))
	n.create(tg.spec("quiet", "@manual", "retry", map[string]any{"max_retries": 0}))
	if j := n.get("pay"); j.Notify == nil || j.Notify.Webhook != "ops" || len(j.Notify.On) != 2 ||
		j.LastNotification != nil || j.Failing {
		t.Errorf("%+v", j.Notify)
	}
	n.runOnce("pay") // healthy
	tg.set(400)
	n.runOnce("quiet")
	n.runOnce("pay")
	n.outcome("pay", "failure", "sent")
	j := n.get("pay")
	if l := j.LastNotification; !j.Failing || l.Status != "dead" || l.RunID == "" || l.Attempts != 1 || l.Error != "" ||
		l.FinishedAt == 0 || l.At == 0 {
		t.Errorf("%+v", l)
	}
	n.runOnce("pay")
	tg.set(200)
	n.runOnce("pay")
	n.outcome("pay", "recovery", "sent")
	n.runOnce("pay")
	if j := n.get("pay"); j.Failing {
		t.Error("still failing")
	}
	if got, want := h.all(), []string{"pay failure dead", "pay recovery succeeded"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if h.keys[0] == h.keys[1] || h.keys[0] == "" {
		t.Errorf("%q", h.keys)
	}
	m := string(n.call("GET", "/metrics", nil).body)
	for _, want := range []string{`carillon_notifications_total{group="0",outcome="sent"} 2`,
		`carillon_notifications_pending{group="0"} 0`} {
		if !strings.Contains(m, want) {
			t.Errorf("%s is not in the metrics", want)
		}
	}
	if s := ok[wire.Status](n, "GET", "/api/v1/status", nil); s.Notifications != nil {
		t.Errorf("%+v", s.Notifications)
	}
}

func TestNotifyWithoutAReceiverIsRefused(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	tg := newTarget(t)
	for _, c := range []struct {
		notify any
		field  string
	}{
		{map[string]any{}, "notify"}, {map[string]any{"webhook": "ops"},
			"notify.webhook"}, {map[string]any{"webhook": "gopher://x/"}, "notify.webhook"},
		{map[string]any{"email": []string{"ops@example.com"}},
			"notify.email"}, {map[string]any{"webhook": tg.URL, "on": []string{"sucess"}}, "notify.on"},
		{map[string]any{"webhoook": tg.URL}, "notify.webhoook"}, {"ops", "notify"},
	} {
		a := n.call("POST", "/api/v1/jobs", tg.spec("x", "@manual", "notify", c.notify))
		if p := a.problem(); a.status/100 != 4 || p.Field != c.field || p.Remedy == "" && c.field != "notify" {
			t.Errorf("%v: %d %s", c.notify, a.status, a.body)
		}
	}
	if a := n.call("GET", "/api/v1/jobs/x", nil); a.status != 404 {
		t.Errorf("%d", a.status)
	}
	// An edit adds it, another takes it away.
	n.create(tg.spec("x", "@manual"))
	if a := n.call("PATCH", "/api/v1/jobs/x", `{"notify":{"email":["ops@example.com"]}}`); a.status != 422 &&
		a.status != 400 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if j := ok[job.Job](n, "PATCH", "/api/v1/jobs/x", `{"notify":{"webhook":"`+tg.URL+`"}}`); j.Notify == nil ||
		j.Notify.Webhook != tg.URL {
		t.Errorf("%+v", j.Notify)
	}
	if j := ok[job.Job](n, "PATCH", "/api/v1/jobs/x", `{"notify":null}`); j.Notify != nil {
		t.Errorf("%+v", j.Notify)
	}
}

// A receiver that is down is tried again until it is up; its job's recovery waits for its turn, and others are not held
// up.
func TestAReceiverThatIsDownIsTriedAgain(t *testing.T) {
	t.Parallel()
	down, up := newHook(t), newHook(t)
	down.answer(503)
	n := start(t, t.TempDir(), quickly)
	tg := newTarget(t)
	n.create(tg.spec("a", "@manual", notifying(down.URL)...))
	n.create(tg.spec("b", "@manual", notifying(up.URL)...))
	tg.set(400)
	n.runOnce("a")
	n.eventually("it was tried more than once", func() bool {
		l := n.get("a").LastNotification
		return l != nil && l.Attempts > 2 && l.Outcome == "pending"
	})
	if l := n.get("a").LastNotification; !strings.Contains(l.Error, "answered 503") ||
		strings.Contains(l.Error, "http://") {
		t.Errorf("%+v", l)
	}
	n.runOnce("b")
	n.outcome("b", "failure", "sent")
	n.eventually("the status says so", func() bool {
		s := ok[wire.Status](n, "GET", "/api/v1/status", nil)
		return s.Notifications != nil && s.Notifications.Waiting >= 1 && strings.Contains(s.Notifications.Error, "503")
	})
	tg.set(200)
	n.runOnce("a")
	if got := down.all(); len(got) != 0 {
		t.Errorf("%q", got)
	}
	down.answer(200)
	n.outcome("a", "recovery", "sent")
	if got, want := down.all(), []string{"a failure dead", "a recovery succeeded"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if s := ok[wire.Status](n, "GET", "/api/v1/status", nil); s.Notifications != nil {
		t.Errorf("%+v", s.Notifications)
	}
	gone := newHook(t)
	gone.answer(404) // that is an answer
	ok[job.Job](n, "PATCH", "/api/v1/jobs/b", `{"notify":{"webhook":"`+gone.URL+`"}}`)
	n.runOnce("b")
	n.outcome("b", "recovery", "failed")
}

// A receiver that never answers holds up no other, and is not told twice: it may have heard.
func TestASlowReceiverHarmsNoOther(t *testing.T) {
	realTime(t)
	t.Parallel()
	slow, quick := newHook(t), newHook(t)
	slow.hang = make(chan struct{})
	n := start(t, t.TempDir(), quickly, func(c *Config) { c.Notify.Timeout = time.Second })
	tg := newTarget(t)
	tg.set(400)
	for i := range 8 {
		n.create(tg.spec(fmt.Sprint("s", i), "@manual", notifying(slow.URL)...))
		ok[job.Run](n, "POST", fmt.Sprintf("/api/v1/jobs/s%d:run", i), nil)
	}
	n.create(tg.spec("q", "@manual", notifying(quick.URL)...))
	n.runOnce("q")
	n.outcome("q", "failure", "sent")
	for i := range 8 {
		n.outcome(fmt.Sprint("s", i), "failure", "unknown")
	}
	if got := slow.all(); len(got) != 8 {
		t.Errorf("told %q", got)
	}
	if l := n.get("s0").LastNotification; !strings.Contains(l.Error, "no answer within 1s") {
		t.Errorf("%+v", l)
	}
}

// One notification goes both ways; the one that works is not repeated because the other does not.
func TestWebhookAndMail(t *testing.T) {
	t.Parallel()
	h := newHook(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0") // a mail server that is busy twice
	if err != nil {
		t.Fatal(err)
	}
	var mails bytes.Buffer
	var mu sync.Mutex
	var done sync.WaitGroup
	t.Cleanup(func() { ln.Close(); done.Wait() })
	done.Go(func() {
		for i := 0; ; i++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if i < 2 {
				fmt.Fprint(c, "421 later\r\n")
				c.Close()
				continue
			}
			// to everything it will say
			fmt.Fprint(c, "220 a\r\n250 b\r\n250 c\r\n250 d\r\n354 e\r\n250 f\r\n221 g\r\n")
			data, _ := io.ReadAll(c)
			c.Close()
			mu.Lock()
			mails.Write(data)
			mu.Unlock()
		}
	})
	n := start(t, t.TempDir(), quickly, func(c *Config) {
		c.Notify.SMTP = notify.SMTP{Addr: ln.Addr().String(), From: "carillon@example.com"}
	})
	tg := newTarget(t)
	tg.set(400)
	n.create(tg.spec("pay", "@manual", notifying(h.URL, "email", []string{"ops@example.com"})...))
	n.runOnce("pay")
	n.outcome("pay", "failure", "sent")
	n.eventually("the mail is there", func() bool { mu.Lock(); defer mu.Unlock(); return mails.Len() > 0 })
	mu.Lock()
	defer mu.Unlock()
	if text := mails.String(); strings.Count(text, "Subject:") != 1 ||
		!strings.Contains(text, "RCPT TO:<ops@example.com>") || !strings.Contains(text, "Job pay failed") {
		t.Errorf("%s", text)
	}
	if got := h.all(); len(got) != 1 {
		t.Errorf("told %q", got)
	}
	if l := n.get("pay").LastNotification; l.Attempts != 3 {
		t.Errorf("%+v", l)
	}
}

// A leader that dies while it sends may have told: the next one records that the outcome is unknown, and does not tell
// again. It tells what comes after.
func TestALeaderThatDiesWhileItSends(t *testing.T) {
	realTime(t)
	t.Parallel()
	h := newHook(t)
	h.hang = make(chan struct{})
	senders := make(chan string, 16)
	c := startCluster(t, 3, quickly, stableLeader, func(c *Config) {
		id := c.NodeID
		c.Machine.BeforeNotify = func(context.Context) { senders <- id }
	})
	c.awaitWorkers(3)
	lead := c.leader()
	tg := newTarget(t)
	tg.set(400)
	lead.create(tg.spec("pay", "@manual", notifying(h.URL)...))
	lead.runOnce("pay")
	old := c.named(<-senders)
	old.eventually("it is being sent", func() bool { return len(h.all()) == 1 })
	old.crash()
	h.mu.Lock()
	close(h.hang)
	h.hang = nil
	h.mu.Unlock()
	via := c.others(old)[0]
	via.outcome("pay", "failure", "unknown")
	if l := via.get("pay").LastNotification; !strings.Contains(l.Error, old.id()) || l.Attempts != 1 {
		t.Errorf("%+v", l)
	}
	tg.set(200)
	via.runOnce("pay")
	via.outcome("pay", "recovery", "sent")
	if got, want := h.all(), []string{"pay failure dead", "pay recovery succeeded"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

// The same between the claim and the sending: then nothing was sent, which is what at most once costs, and the job says
// so.
func TestALeaderThatDiesBeforeItSends(t *testing.T) {
	realTime(t)
	t.Parallel()
	h := newHook(t)
	senders := make(chan string, 1)
	var first sync.Once
	c := startCluster(t, 3, quickly, stableLeader, func(c *Config) {
		id := c.NodeID
		c.Machine.BeforeNotify = func(ctx context.Context) {
			first.Do(func() { // it never gets further
				senders <- id
				<-ctx.Done()
			})
		}
	})
	c.awaitWorkers(3)
	lead := c.leader()
	tg := newTarget(t)
	tg.set(400)
	lead.create(tg.spec("pay", "@manual", notifying(h.URL)...))
	lead.runOnce("pay")
	old := c.named(<-senders)
	old.crash()
	via := c.others(old)[0]
	via.outcome("pay", "failure", "unknown")
	tg.set(200)
	via.runOnce("pay")
	via.outcome("pay", "recovery", "sent")
	if got, want := h.all(), []string{"pay recovery succeeded"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

// What came of a proposal is not always known. A claim that may be in the log is not sent on, but tried again once the
// log says that it is there; what was sent is recorded in the end, and not sent again meanwhile.
func TestNotificationsWhenTheLogIsInDoubt(t *testing.T) {
	t.Parallel()
	h := newHook(t)
	var mu sync.Mutex
	var seen []string
	n := start(t, t.TempDir(), quickly, func(c *Config) {
		c.Machine.ProposeNotice = func(cmd fsm.Command, next func(fsm.Command) (*fsm.Reply, error)) (*fsm.Reply, error) {
			mu.Lock()
			defer mu.Unlock()
			name := fmt.Sprintf("%T", cmd)
			seen = append(seen, name)
			switch len(seen) {
			case 1: // the claim: lost before the log
				return nil, errors.New("outcome unknown")
			case 2: // and behind it
				next(cmd)
				return nil, errors.New("outcome unknown")
			case 3: // which is settled as never sent, with an answer that is lost
				next(cmd)
				return nil, errors.New("outcome unknown")
			case 6: // the end of the try that was sent, twice
				return nil, errors.New("outcome unknown")
			case 7:
				next(cmd)
				return nil, errors.New("outcome unknown")
			}
			return next(cmd)
		}
	})
	tg := newTarget(t)
	tg.set(400)
	n.create(tg.spec("pay", "@manual", notifying(h.URL)...))
	n.runOnce("pay")
	n.outcome("pay", "failure", "sent")
	tg.set(200)
	n.runOnce("pay")
	n.outcome("pay", "recovery", "sent")
	if got, want := h.all(), []string{"pay failure dead", "pay recovery succeeded"}; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	mu.Lock()
	defer mu.Unlock()
	const claim, settle = "*fsm.ClaimNotices", "*fsm.SettleNotices"
	if want := []string{claim, claim, settle, settle, claim, settle, settle, settle, claim, settle}; !slices.Equal(seen,
		want) {
		t.Errorf("%q, want %q", seen, want)
	}
}

// What waits to be sent survives the process, and the number that makes its key too.
func TestTheOutboxSurvivesARestart(t *testing.T) {
	t.Parallel()
	h := newHook(t)
	h.answer(503)
	dir := t.TempDir()
	n := start(t, dir, quickly)
	tg := newTarget(t)
	tg.set(400)
	n.create(tg.spec("pay", "@manual", notifying(h.URL)...))
	n.runOnce("pay")
	n.eventually("it was tried", func() bool {
		l := n.get("pay").LastNotification
		return l != nil && l.Attempts > 0 && l.Outcome == "pending"
	})
	h.answer(503)
	n.stop()
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	n = start(t, dir, quickly)
	h.answer(200)
	n.eventually("it is done with", func() bool {
		l := n.get("pay").LastNotification
		return l != nil &&
			l.FinishedAt != 0
	})
	// The try that the stop cut short may be unknown; none arrived twice.
	if got := h.all(); len(got) > 1 {
		t.Errorf("told %q", got)
	}
}
