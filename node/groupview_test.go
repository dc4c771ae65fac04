package node

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

var sample = regexp.MustCompile(`(?m)^(carillon_\w+)\{group="(\d+)"(?:,(\w+="\w+"))?\} (\S+)$`)

// groupMetrics are the metrics of a node that are of a group, by name and further label, and by group.
func (n *testNode) groupMetrics() map[string]map[uint32]float64 {
	n.t.Helper()
	out := map[string]map[uint32]float64{}
	for _, m := range sample.FindAllStringSubmatch(string(n.call("GET", "/metrics", nil).body), -1) {
		name := m[1]
		if m[3] != "" {
			name += "{" + m[3] + "}"
		}
		group, err := strconv.ParseUint(m[2], 10, 32)
		if err != nil {
			n.t.Fatal(err)
		}
		value, err := strconv.ParseFloat(m[4], 64)
		if err != nil {
			n.t.Fatal(err)
		}
		if out[name] == nil {
			out[name] = map[uint32]float64{}
		}
		if _, twice := out[name][uint32(group)]; twice {
			n.t.Errorf("%s of group %d is there twice", name, group)
		}
		out[name][uint32(group)] = value
	}
	return out
}

// Every group that a node has a replica of has series of its own, which are about it and nothing else.
func TestMetricsOfGroups(t *testing.T) {
	realTime(t)
	t.Parallel()
	const groups, jobs = 3, 24
	c := startGroups(t, groups)
	in := map[uint32]float64{0: 0}
	for i := range jobs {
		j := c.members[i%3].make(map[string]any{"name": fmt.Sprint("job-", i), "type": "http", "schedule": "@manual",
			"payload": map[string]any{"url": "http://127.0.0.1:1/"}})
		in[uint32(j.ID.Group())]++
	}
	if len(in) != groups+1 {
		t.Fatalf("jobs by group: %v", in)
	}
	c.members[0].eventually("the metrics of each group are its own", func() bool {
		for number, n := range in {
			leaders, sum := 0.0, 0.0
			for _, m := range c.members {
				all := m.groupMetrics()
				if len(all["carillon_leader"]) != groups+1 || all["carillon_apply_seconds_count"][number] == 0 {
					return false
				}
				leaders += all["carillon_leader"][number]
				// Only the leader says what all replicas have: a sum over nodes is what the cluster has.
				for _, name := range []string{"carillon_jobs{status=\"scheduled\"}", "carillon_backlog_runs",
					"carillon_backlog_oldest_seconds", "carillon_open_runs", "carillon_dead_letters"} {
					value, says := all[name][number]
					if says != (m.hostedGroup(number).tracker.Epoch() != nil) {
						return false
					}
					if strings.HasPrefix(name, "carillon_jobs") {
						sum += value
					}
				}
			}
			if leaders != 1 || sum != n {
				return false
			}
		}
		return true
	})
}

// The metrics of single jobs are those of all groups, whichever node is asked.
func TestMetricsOfJobsInGroups(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := startGroups(t, 3)
	tg := newTarget(t)
	in := map[uint32]bool{}
	const jobs = 12
	for i := range jobs {
		j := c.members[i%3].create(tg.spec(fmt.Sprint("job-", i), "@manual"))
		in[uint32(j.ID.Group())] = true
	}
	if len(in) < 2 {
		t.Fatalf("groups: %v", in)
	}
	c.members[0].call("POST", "/api/v1/jobs/job-3:run", nil)
	for _, m := range c.members {
		m.eventually("every node knows of the success", func() bool {
			text := string(m.call("GET", "/metrics/jobs?prefix=job-", nil).body)
			return strings.Count(text, "\ncarillon_job_failing{") == jobs &&
				strings.Contains(text, `carillon_job_last_success_timestamp_seconds{job_name="job-3",namespace="default"} `) &&
				strings.Count(text, "\ncarillon_job_last_success") == 1 && strings.Contains(text, "carillon_jobs_omitted 0")
		})
	}
	tg.set(500)
	c.members[0].create(tg.spec("bad", "@manual", "retry", map[string]any{"max_retries": 0}))
	c.members[1].call("POST", "/api/v1/jobs/bad:run", nil)
	c.members[2].eventually("a job fails", func() bool {
		return strings.Contains(string(c.members[2].call("GET", "/metrics/jobs", nil).body),
			`carillon_job_failing{job_name="bad",namespace="default"} 1`)
	})
}

// A group that left a node, with its files closed, is not read for metrics, and goes on counting when it comes back.
func TestMetricsOfAGroupThatLeft(t *testing.T) {
	realTime(t)
	t.Parallel()
	n := start(t, t.TempDir())
	n.group.meters.Detach()
	n.group.meters.Applied(nil, nil, 0)
	if all := n.groupMetrics(); len(all["carillon_leader"]) != 0 || all["carillon_apply_seconds_count"][0] == 0 {
		t.Errorf("%v", all)
	}
	before := n.groupMetrics()["carillon_apply_seconds_count"][0]
	n.meters.Group(0).Applied(nil, nil, 0)
	if after := n.groupMetrics()["carillon_apply_seconds_count"][0]; after <= before {
		t.Errorf("%v after %v", after, before)
	}
}

// A group without a majority stands still alone, and the answers that it cannot give name it.
func TestGroupWithoutMajority(t *testing.T) {
	onlyLong(t, "waits for the bounds of requests that no leader answers")
	t.Parallel()
	const groups, lost = 3, 2
	c := startGroups(t, groups)
	left := c.members[0].testNode
	in := map[uint32]string{} // a job of each group
	spec := func(name string) map[string]any {
		return map[string]any{"name": name, "type": "http", "schedule": "@manual",
			"payload": map[string]any{"url": "http://127.0.0.1:1/"}}
	}
	for i := 0; len(in) < groups; i++ {
		j := left.create(spec(fmt.Sprint("job-", i)))
		in[uint32(j.ID.Group())] = j.ID.String()
	}
	left.eventually("it is ready", func() bool { return left.call("GET", "/readyz", nil).status == 200 })
	for _, m := range c.members[1:] {
		if err := m.hostedGroup(lost).raft.Shutdown().Error(); err != nil {
			t.Fatal(err)
		}
	}
	left.eventually("it is not ready", func() bool { return left.call("GET", "/readyz", nil).status == 503 })
	for _, m := range c.members {
		m.eventually(m.id()+" names that group, and no other", func() bool { // leaders of others may change meanwhile
			a := m.call("GET", "/readyz", nil)
			text := a.problem().Message
			return a.status == 503 && strings.HasPrefix(text, "group 2: ") && strings.Count(text, "group") == 1
		})
		if a := m.call("GET", "/healthz", nil); a.status != 200 {
			t.Errorf("%s: %d %s", m.id(), a.status, a.body)
		}
	}
	// Everything that needs the group says so; nothing else notices.
	name := ""
	for i := 0; name == ""; i++ {
		if x := fmt.Sprint("new-", i); job.PlaceOf(job.NameJob, job.DefaultNamespace, x, groups) == lost {
			name = x
		}
	}
	for path, body := range map[string]any{
		"/api/v1/jobs/" + in[lost]: nil, "/api/v1/jobs": nil, "/api/v1/runs": nil, "/api/v1/jobs?": spec(name),
	} {
		method := "GET"
		if body != nil {
			method = "POST"
		}
		var a apiAnswer
		left.eventually("only the lost group has no leader", func() bool {
			a = left.call(method, path, body)
			return a.status != 503 || strings.HasPrefix(a.problem().Message, "group 2: ")
		})
		if e := a.problem(); a.status != 503 || e.Code != job.CodeNoLeader ||
			!strings.HasPrefix(e.Message, "group 2: ") || strings.Count(e.Message, "group 2") != 1 {
			t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
		}
	}
	for number := uint32(1); number <= groups; number++ {
		if number != lost {
			left.get(in[number])
		}
	}
	// A stale list has the group's jobs from this node's own replica, and is without them where there is none.
	if p := ok[wire.JobPage](left, "GET", "/api/v1/jobs?stale=true", nil); len(p.Jobs) < groups {
		t.Errorf("%d jobs", len(p.Jobs))
	}
	left.eventually("status says which group has no leader", func() bool {
		s := ok[wire.Status](left, "GET", "/api/v1/status", nil)
		for _, g := range s.Groups {
			if (g.ID == lost) != (g.Leader == "") || (g.ID == lost) != (g.Problem != "") {
				return false
			}
		}
		return !s.Ready && len(s.Groups) == groups+1 && slices.ContainsFunc(s.Troubles, func(t wire.Trouble) bool {
			return t.Code == wire.TroubleNoLeader && strings.HasPrefix(t.Text, "group 2: ")
		})
	})
}
