package node

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// puller takes runs of queues and holds them until it is told to end one.
type puller struct {
	t       *testing.T
	l       *client.Leader
	session string
	held    []job.Assignment
}

func newPuller(t *testing.T, addr, name, queue string) *puller {
	t.Helper()
	p := &puller{t: t, l: client.NewLeader([]string{addr}, client.WithQueue("", queue))}
	t.Cleanup(p.l.Close)
	r, err := p.l.Poll(t.Context(), job.Poll{Worker: name, Secret: name})
	if err != nil {
		t.Fatal(err)
	}
	p.session = r.Session
	return p
}

// poll asks once and keeps what it gets.
func (p *puller) poll(wait time.Duration) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	r, err := p.l.Poll(ctx, job.Poll{Session: p.session, Free: 100 - len(p.held), Wait: job.Duration(wait)})
	if err != nil {
		p.t.Fatal(err)
	}
	p.session, p.held = r.Session, append(p.held, r.Runs...)
}

// finish reports the oldest run as done.
func (p *puller) finish() {
	p.t.Helper()
	a := p.held[0]
	p.held = p.held[1:]
	if _, err := p.l.Report(p.t.Context(), job.Report{Session: p.session,
		Results: []job.Result{{Ref: job.Ref{Fence: a.Fence}, Outcome: job.OutcomeSucceeded}}}); err != nil {
		p.t.Fatal(err)
	}
}

func queueJob(name, queue string) map[string]any {
	return map[string]any{"name": name, "type": "queue", "schedule": "@manual", "overlap": "allow",
		"payload": map[string]any{"queue": queue}}
}

func TestQueues(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	get := func() wire.Queue { t.Helper(); return ok[wire.Queue](n, "GET", "/api/v1/queues/mail", nil) }

	if a := n.call("GET", "/api/v1/queues/mail", nil); a.status != 404 || a.problem().Code != job.CodeUnknownQueue ||
		!strings.Contains(a.problem().Message, "there are none") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := n.call("POST", "/api/v1/queues/mail:pause", nil); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	n.create(queueJob("m", "mail"))
	if q := get(); q.Declared || q.Jobs != 1 || q.Version != 0 || q.Workers == nil || len(q.Workers) != 0 {
		t.Errorf("%+v", q)
	}
	if a := n.call("DELETE", "/api/v1/queues/mail", nil); a.status != 404 || a.problem().Code != job.CodeNotFound {
		t.Errorf("%d %s", a.status, a.body)
	}
	q := ok[wire.Queue](n, "PUT", "/api/v1/queues/mail", map[string]any{"concurrency": 2})
	if !q.Declared || q.Concurrency != 2 || q.Version == 0 || q.UpdatedAt == 0 {
		t.Errorf("%+v", q)
	}
	old := fmt.Sprintf("%q", fmt.Sprint(q.Version-1))
	if a := n.call("PATCH", "/api/v1/queues/mail", map[string]any{"concurrency": 9}, "If-Match", old, "Content-Type",
		"application/merge-patch+json"); a.status != 412 {
		t.Errorf("%d %s", a.status, a.body)
	}

	p := newPuller(t, n.Addr(), "w", "mail")
	for range 5 {
		ok[job.Run](n, "POST", "/api/v1/jobs/m:run", nil)
	}
	for len(p.held) < 2 {
		p.poll(time.Second)
	}
	p.poll(100 * time.Millisecond)
	if q := get(); len(p.held) != 2 || q.Running != 2 || q.Backlog != 3 || q.OldestDueAt == 0 ||
		q.WaitReason != "queue mail is at its limit (2 of 2 running)" || fmt.Sprint(q.Workers) != "[w]" {
		t.Errorf("%d held; %+v", len(p.held), q)
	}
	if why := n.get("m").WaitReason; why != "queue mail is at its limit (2 of 2 running)" {
		t.Error(why)
	}
	p.finish() // and its place is taken
	for len(p.held) < 2 {
		p.poll(time.Second)
	}
	if q := ok[wire.Queue](n, "POST", "/api/v1/queues/mail:pause", nil); !q.Paused || q.Concurrency != 2 {
		t.Errorf("%+v", q)
	}
	p.finish()
	p.finish()
	p.poll(300 * time.Millisecond)
	if q := get(); len(p.held) != 0 || q.Running != 0 || q.Backlog != 2 || q.WaitReason != "queue mail is paused" {
		t.Errorf("%+v", q)
	}
	if why := n.get("m").WaitReason; why != "queue mail is paused" {
		t.Error(why)
	}
	ok[wire.Queue](n, "POST", "/api/v1/queues/mail:resume", nil)
	for len(p.held) < 2 {
		p.poll(time.Second)
	}
	p.finish()
	p.finish()
	ok[wire.Queue](n, "PUT", "/api/v1/queues/empty", map[string]any{})
	l := ok[wire.QueueList](n, "GET", "/api/v1/queues", nil)
	if len(l.Queues) != 2 || l.Queues[0].Name != "empty" || l.Queues[1].Name != "mail" || l.Queues[1].Backlog != 0 {
		t.Errorf("%+v", l)
	}
	if a := n.call("GET", "/api/v1/queues/mial", nil); a.status != 404 ||
		!strings.Contains(a.problem().Message, "empty, mail") {
		t.Errorf("%d %s", a.status, a.body)
	}
	// The same request again is the same answer, also if the queue is gone by then.
	for range 2 {
		if a := n.call("DELETE", "/api/v1/queues/empty", nil, "Idempotency-Key", "once"); a.status != 204 {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if err := n.Node.service.KnownQueue(job.QueueKey{Namespace: job.DefaultNamespace, Name: "empty"}); job.CodeOf(err) != job.CodeUnknownQueue {
		t.Error(err)
	}
	// What was said survives a restart.
	n.stop()
	n = start(t, n.cfg.DataDir)
	if q := get(); q.Concurrency != 2 || q.Paused || q.Jobs != 1 {
		t.Errorf("%+v", q)
	}
}

// A queue is changed also while all turns of expensive reads are taken. What takes one is left out of the answer, which
// says so.
func TestChangeOfAQueueWaitsForNoTurn(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir())
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		end, err := n.Node.service.Turn(ctx, api.Read{Stale: true})
		cancel()
		if err != nil {
			break
		}
		defer end()
	}
	if q := ok[wire.Queue](n, "PUT", "/api/v1/queues/mail", map[string]any{"concurrency": 3}); q.Concurrency != 3 || !q.BacklogMore {
		t.Errorf("%+v", q)
	}
}

// Every node says why a job waits, and takes changes of queues; the limit holds through a change of the leader.
func TestQueuesFromAnyNode(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startCluster(t, 3)
	for i, m := range c.members {
		m.create(queueJob(fmt.Sprint("m", i), "mail"))
	}
	ok[wire.Queue](c.others(c.leader())[0].testNode, "PUT", "/api/v1/queues/mail", map[string]any{"concurrency": 1})
	for i, m := range c.members {
		ok[job.Run](m.testNode, "POST", fmt.Sprintf("/api/v1/jobs/m%d:run", i), nil)
	}
	for _, m := range c.members {
		m.eventually("the reason shows", func() bool { return m.get("m0").WaitReason == "no worker takes queue mail" })
	}
	p := newPuller(t, c.leader().Addr(), "w", "mail")
	for len(p.held) < 1 {
		p.poll(time.Second)
	}
	check := func() {
		t.Helper()
		for _, m := range c.members {
			m.eventually("the limit shows", func() bool {
				q := ok[wire.Queue](m.testNode, "GET", "/api/v1/queues/mail", nil)
				return q.Running == 1 && q.Concurrency == 1 && q.Backlog == 2 &&
					q.WaitReason == "queue mail is at its limit (1 of 1 running)"
			})
		}
	}
	check()
	was := c.leader()
	was.eventually("the others have caught up and take over",
		func() bool { return was.call("POST", "/api/v1/cluster:transfer", nil).status == 204 })
	was.eventually("another one leads", func() bool { l := c.leader(); return l != nil && l != was })
	newPuller(t, c.leader().Addr(), "other", "mail").poll(300 * time.Millisecond)
	check()
}
