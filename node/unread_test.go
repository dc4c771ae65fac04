package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/internal/slowread"
	"github.com/carillon-scheduler/carillon/internal/slowread/slowreadtest"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// largeJob is a job whose definition is an answer of a hundred kilobytes.
func largeJob(name string) job.Spec {
	return job.Spec{Name: name, Type: job.TypeHTTP, Schedule: "@manual",
		Payload: []byte(`{"url":"http://127.0.0.1:1/","body":"` + strings.Repeat("x", 100<<10) + `"}`)}
}

// largeCalendars makes calendars of a quarter of a megabyte together: more than the kernels' buffers take of an answer.
func largeCalendars(m *member, with []string) {
	m.t.Helper()
	for i := range 4 {
		ok[schedule.Calendar](m.testNode, "PUT", fmt.Sprint("/api/v1/calendars/large-", i),
			schedule.Calendar{Dates: slices.Repeat([]string{"2026-12-25"}, 4600)}, with...)
	}
}

// Attack: a viewer asks for large answers and takes none. What they have in memory is bounded, on the leader and on a
// node that reads its own state; another viewer, and members, are answered; and it ends with the connections.
func TestAnswersNotTaken(t *testing.T) {
	t.Parallel()
	c, admin := guarded(t, 2, func(c *Config) {
		c.Machine.Memory = membudget.Limits{Answers: 2 << 20, Wait: time.Hour}
		c.Machine.Unread = slowread.Limits{Each: 60, Time: time.Hour}
	})
	with := []string{"Authorization", "Bearer " + admin}
	largeCalendars(c.members[0], with)
	const path = "/api/v1/calendars?stale=true"
	token := func(name string) string {
		return ok[wire.TokenCreated](c.members[0].testNode, "POST", "/api/v1/tokens",
			wire.TokenRequest{Name: name, Role: job.RoleViewer}, with...).Text
	}
	greedy, honest := token("greedy"), token("honest")
	for _, m := range c.members {
		m.eventually(m.id()+" knows the tokens and the calendars", func() bool {
			return len(m.call("GET", path, nil, with...).body) > 200<<10 && m.whoami(greedy) == http.StatusOK && m.whoami(honest) == http.StatusOK
		})
		var conns []*slowreadtest.Client
		for i := range 40 {
			conns = append(conns, leave(m, path, greedy))
			if i < 2 { // there is room for two
				m.eventually("the answer waits", func() bool { return m.port.Unread.Waiting() == i+1 })
			}
		}
		m.eventually("the token has its share", func() bool {
			u := m.memory.Uses()["answers"]
			return u.Held > 256<<10 && u.Waiting > 20 && m.port.Unread.Waiting() > 0
		})
		if u := m.memory.Uses()["answers"]; u.Most > 2<<20/4 {
			t.Errorf("%s: %+v", m.id(), u)
		}
		for _, text := range []string{honest, admin} {
			if a := m.call("GET", path, nil, "Authorization", "Bearer "+text); len(a.body) < 200<<10 {
				t.Errorf("%s answers another viewer: %d, %d bytes", m.id(), a.status, len(a.body))
			}
		}
		for _, c := range conns {
			c.Close()
		}
		m.eventually("nothing is left of it", func() bool {
			u := m.memory.Uses()["answers"]
			return u.Held == 0 && u.Waiting == 0 && m.port.Unread.Waiting() == 0
		})
	}
	served(t, admin, c.members...)
}

// leave asks from another address and takes no answer.
func leave(m *member, path, token string) *slowreadtest.Client {
	m.t.Helper()
	c, err := slowreadtest.Dial(m.Addr(), "127.0.0.2")
	if err != nil {
		m.t.Skipf("cannot dial from 127.0.0.2 on this machine: %v", err)
	}
	m.t.Cleanup(c.Close)
	if err := c.Get(path, token); err != nil {
		m.t.Fatal(err)
	}
	return c
}

// So many answers wait for the readers at one address. The connection of the next is closed, which is counted.
func TestAnswersNotTakenAreCounted(t *testing.T) {
	t.Parallel()
	const large = 200 << 10
	c, admin := guarded(t, 1, func(c *Config) { c.Machine.Unread = slowread.Limits{Each: 2, Time: time.Hour} })
	m, with := c.members[0], []string{"Authorization", "Bearer " + admin}
	largeCalendars(m, with)
	for i := range 2 {
		leave(m, "/api/v1/calendars", admin)
		m.eventually("it waits", func() bool { return m.port.Unread.Waiting() == i+1 })
	}
	if n := leave(m, "/api/v1/calendars", admin).Rest(); n >= large {
		t.Errorf("the third gets %d bytes", n)
	}
	a := m.call("GET", "/metrics", nil, with...)
	if want := `carillon_limited_total{reason="unread"} 1`; !strings.Contains(string(a.body), want) {
		t.Errorf("the metrics lack %q", want)
	}
}

// A page of large jobs is short, and its cursor goes on: answers are in memory as a whole.
func TestPagesOfLargeRows(t *testing.T) {
	n := start(t, t.TempDir())
	names := map[string]bool{}
	for i := range 50 {
		spec := largeJob(fmt.Sprintf("large-%02d", i))
		n.create(spec)
		names[spec.Name] = true
	}
	for _, query := range []string{"", "&prefix=large", "&q=large"} {
		seen, pages := map[string]bool{}, 0
		for cursor := ""; ; pages++ {
			page := ok[wire.JobPage](n, "GET", "/api/v1/jobs?limit=1000"+query+"&cursor="+cursor, nil)
			text := 0
			for _, j := range page.Jobs {
				text += len(j.Payload)
				if seen[j.Name] || !names[j.Name] {
					t.Errorf("%q: %s again", query, j.Name)
				}
				seen[j.Name] = true
			}
			if text > 2<<20+128<<10 {
				t.Errorf("%q: a page with %d bytes of payloads", query, text)
			}
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		if len(seen) != len(names) || pages == 0 {
			t.Errorf("%q: %d of %d jobs on %d pages", query, len(seen), len(names), pages+1)
		}
	}
}

// The metrics of jobs are read page by page, and the pages need not fit into the share of a token together.
func TestMetricsOfLargeJobs(t *testing.T) {
	t.Parallel()
	c, admin := guarded(t, 1)
	m, with := c.members[0], []string{"Authorization", "Bearer " + admin}
	var lines strings.Builder
	const jobs = 1200
	for i := range jobs {
		spec := largeJob(fmt.Sprintf("large-%04d", i))
		spec.Payload = spec.Payload[:len(spec.Payload)-90<<10-2]
		spec.Payload = append(spec.Payload, `"}`...)
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(text, '\n'))
	}
	if a := m.call("POST", "/api/v1/jobs:bulk", lines.String(), append(with, "Content-Type", "application/x-ndjson")...); a.status != http.StatusOK {
		t.Fatalf("%d %.300s", a.status, a.body)
	}
	a := m.call("GET", "/metrics/jobs", nil, with...)
	if text := string(a.body); a.status != http.StatusOK || strings.Count(text, "\ncarillon_job_failing{") != 1000 ||
		!strings.Contains(text, fmt.Sprintf("\ncarillon_jobs_omitted %d\n", jobs-1000)) {
		t.Errorf("%d %.500s", a.status, a.body)
	}
	m.eventually("nothing is left of it", func() bool { return m.memory.Uses()["answers"].Held == 0 })
}
