package node

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/membership"
)

// small is a budget that a few requests use up, and that nobody waits for in vain within a test.
func small(c *Config) {
	c.Machine.Memory = membudget.Limits{Callers: 4 << 20, Bulk: 8 << 20, Members: 1 << 20, Strangers: 32 << 10, Wait: time.Hour}
}

// stall sends requests whose bodies do not come, until the test ends.
func (m *member) stall(n int, path, token string, size int64) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, n)
	var bodies []io.Closer
	for range n {
		in, out := io.Pipe()
		bodies = append(bodies, out)
		rq, err := http.NewRequestWithContext(ctx, "POST", "http://"+m.Addr()+path, in)
		if err != nil {
			m.t.Fatal(err)
		}
		if rq.ContentLength = size; token != "" {
			rq.Header.Set("Authorization", "Bearer "+token)
		}
		go func() {
			defer func() { ended <- struct{}{} }()
			if res, err := m.client.Do(rq); err == nil {
				res.Body.Close()
			}
		}()
	}
	m.t.Cleanup(func() {
		cancel()
		for _, b := range bodies { // net/http waits for them
			b.Close()
		}
		for range n {
			<-ended
		}
	})
}

// served asks for what needs the budget: a job of a token, at both nodes, and a message of one member to the other. None
// of them waits.
func served(t *testing.T, token string, members ...*member) {
	t.Helper()
	for i, m := range members {
		ok[job.Job](m.testNode, "POST", "/api/v1/jobs", job.Spec{Type: job.TypeHTTP, Schedule: "@manual",
			Payload: []byte(`{"url":"http://127.0.0.1:1/` + strings.Repeat("x", 1<<10) + `"}`)}, "Authorization", "Bearer "+token)
		other := members[1-i]
		res, err := m.forward.Client().Post("http://"+other.cfg.Listen+membership.KeysPath, "application/json",
			strings.NewReader("{}"+strings.Repeat(" ", 32<<10)))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode == http.StatusServiceUnavailable || res.StatusCode == http.StatusRequestEntityTooLarge {
			t.Errorf("a message from %s to %s: %d", m.id(), other.id(), res.StatusCode)
		}
	}
}

// Attack: strangers begin as many requests to join as they may, at the leader and at a follower. Requests with a token
// and members do not wait behind them.
func TestStrangersStarveNone(t *testing.T) {
	t.Parallel()
	c, admin := guarded(t, 2, small)
	for _, m := range c.members {
		m.stall(8, "/api/v1/cluster:join", "", 16<<10)
		m.eventually("strangers have all of their memory", func() bool {
			u := m.memory.Uses()["strangers"]
			return u.Held == 32<<10 && u.Waiting == 6
		})
	}
	served(t, admin, c.members...)
	for _, m := range c.members {
		if u := m.memory.Uses()["strangers"]; u.Most != 32<<10 || u.Waiting != 6 {
			t.Errorf("strangers at %s: %+v", m.id(), u)
		}
	}
}

// Attack: one token begins many requests with large bodies, and many bulk creates, and finishes none. Other tokens and
// members do not wait behind it.
func TestATokenStarvesNone(t *testing.T) {
	t.Parallel()
	c, admin := guarded(t, 2, small)
	greedy := ok[wire.TokenCreated](c.members[0].testNode, "POST", "/api/v1/tokens",
		wire.TokenRequest{Name: "greedy", Role: job.RoleOperator}, "Authorization", "Bearer "+admin).Text
	for _, m := range c.members {
		m.eventually(m.id()+" knows the token", func() bool { return m.whoami(greedy) == http.StatusOK })
		m.stall(20, "/api/v1/jobs", greedy, 1<<20)
		m.eventually("the token has its share", func() bool {
			u := m.memory.Uses()["callers"]
			return u.Held == 1<<20 && u.Waiting == 19
		})
		m.stall(20, "/api/v1/jobs:bulk", greedy, -1) // of which nothing comes: they hold nothing
	}
	served(t, admin, c.members...)
	for _, m := range c.members {
		a := m.call("POST", "/api/v1/jobs:bulk", nil, "Authorization", "Bearer "+admin)
		if a.status != http.StatusOK {
			t.Errorf("a bulk create at %s: %d %s", m.id(), a.status, a.body)
		}
		if u := m.memory.Uses(); u["bulk"].Waiting != 0 || u["callers"].Waiting != 19 || u["callers"].Most > 2<<20 {
			t.Errorf("%s: %+v", m.id(), u)
		}
	}
}
