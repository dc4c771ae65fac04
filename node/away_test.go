package node

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/job"
)

// unhurried is for clusters of more nodes and groups than a busy machine can keep up with.
func unhurried(c *Config) {
	c.Raft.Heartbeat, c.TTL = 3*time.Second, 20*time.Second
}

// joins has another node join, and waits until it votes.
func (c *cluster) joins(id string, change ...func(*Config)) *member {
	c.t.Helper()
	m := c.newMember(id, []string{c.members[0].cfg.Listen}, change...)
	c.members = append(c.members, m)
	m.open(c.t)
	c.awaitVoters(len(c.members))
	return m
}

// A node that has no replica of any group of jobs answers like every other, and its worker works for all of them.
func TestNodeWithoutReplicas(t *testing.T) {
	realTime(t)
	t.Parallel()
	const groups, jobs = 3, 9
	for name, mode := range modes(t) {
		t.Run(name, func(t *testing.T) {
			if name == "secure" {
				onlyLong(t, "the plain run is without TLS")
			}
			t.Parallel()
			var mu sync.Mutex
			ran := map[job.ID]int{}
			change := []func(*Config){mode, unhurried, func(c *Config) {
				if c.Executors = nil; c.NodeID == "n4" {
					c.Executors = []job.Type{job.TypeHTTP}
					c.Machine.Runners = map[job.Type]executor.Runner{job.TypeHTTP: runner(func(a job.Assignment) {
						mu.Lock()
						defer mu.Unlock()
						ran[a.Run.Job]++
					})}
				}
			}}
			c := startGroups(t, groups, change...)
			n := c.joins("n4", change...).testNode
			n.eventually("it knows the groups", func() bool { return n.split.Load().Groups == groups })
			if got := n.groups(); len(got) != 1 {
				t.Fatalf("it has replicas of %d groups", len(got))
			}
			events := hear(t, n, "topics=runs")
			spec := func(name string) map[string]any {
				return map[string]any{"name": name, "type": "http", "schedule": "0 3 * * *",
					"payload": map[string]any{"url": "http://127.0.0.1:1/"}}
			}
			made := map[string]job.ID{}
			in := map[uint8]bool{}
			for i := range jobs {
				j := n.create(spec(fmt.Sprint("job-", i)))
				made[j.Name], in[j.ID.Group()] = j.ID, true
			}
			if len(in) != groups {
				t.Errorf("jobs are in groups %v", in)
			}
			if a := n.call("POST", "/api/v1/jobs", spec("job-1")); a.status != 409 {
				t.Errorf("a second job-1: %d %s", a.status, a.body)
			}
			if p := ok[wire.JobPage](n, "GET", "/api/v1/jobs?prefix=job-", nil); len(p.Jobs) != jobs {
				t.Errorf("%d jobs in the list", len(p.Jobs))
			}
			n.eventually("stale reads have all of them", func() bool {
				return len(ok[wire.JobPage](n, "GET", "/api/v1/jobs?prefix=job-&stale=true", nil).Jobs) == jobs
			})
			ok[job.Job](n, "PATCH", "/api/v1/jobs/job-3", map[string]any{"name": "other", "schedule": "0 4 * * *"},
				"Content-Type", "application/merge-patch+json")
			if j := n.get("other"); j.ID != made["job-3"] || j.Schedule != "0 4 * * *" {
				t.Errorf("%+v", j)
			}
			var lines bytes.Buffer
			for i := range jobs {
				fmt.Fprintf(&lines, `{"name":"bulk-%d","type":"http","schedule":"0 3 * * *","payload":{"url":"http://x"}}`+"\n", i)
			}
			a := n.call("POST", "/api/v1/jobs:bulk", lines.String(), "Content-Type", "application/x-ndjson")
			if got := strings.Count(string(a.body), `"created"`); a.status != 200 || got != jobs {
				t.Errorf("bulk: %d, %d created: %s", a.status, got, a.body)
			}
			n.eventually("the status has all jobs and all leaders", func() bool { // a follower may be a moment behind
				s := ok[wire.Status](n, "GET", "/api/v1/status", nil)
				return s.Jobs == 2*jobs && len(s.Groups) == groups+1 &&
					!slices.ContainsFunc(s.Groups, func(g wire.GroupStatus) bool { return g.Leader == "" || g.Problem != "" })
			})
			if a := n.call("POST", "/api/v1/jobs", strings.Repeat(" ", 2<<20)); a.status != http.StatusRequestEntityTooLarge {
				t.Errorf("%d %s", a.status, a.body)
			}

			// Its worker carries out all of them, and a worker elsewhere that knows this node only finds their leaders.
			for _, id := range made {
				ok[map[string]any](n, "POST", "/api/v1/jobs/"+id.String()+":run", nil)
			}
			n.eventually("its worker ran all jobs once", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(ran) == jobs
			})
			n.eventually("events of the runs", func() bool { k, _ := events.seen("runs"); return k > 0 })
			if n.keys == nil {
				found, hangUp := client.FindGroups([]string{n.Addr()})
				defer hangUp()
				if list, _ := found.List(t.Context()); len(list) != groups {
					t.Errorf("a worker elsewhere finds the groups %v", list)
				}
			}

			// The leader of a group is lost: it finds the next one.
			lost, g := c.groupLeader(2)
			number := g.of.Group
			lost.crash()
			for i := range jobs {
				n.eventually("a job is created", func() bool {
					a := n.call("POST", "/api/v1/jobs", spec(fmt.Sprint("late-", i)))
					return a.status == 201 || a.status == 409
				})
			}
			if lead, _ := c.groupLeader(number); lead == lost {
				t.Error("the node that was lost leads")
			}
			lost.kill()
		})
	}
}
