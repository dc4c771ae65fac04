package node

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// audits are the records of a node's own state, oldest first.
func (n *testNode) audits() (out []store.Audit) {
	n.t.Helper()
	err := n.group.store.View(func(v *store.View) error {
		return v.EachAudit(0, func(_ uint64, a store.Audit) bool {
			out = append(out, a)
			return true
		})
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// of are the records of one kind of object, as text.
func of(all []store.Audit, kinds ...string) (out []string) {
	for _, a := range all {
		if slices.Contains(kinds, a.Kind()) {
			out = append(out, a.Action+" "+a.ID+" from "+a.Address)
		}
	}
	return out
}

// Members that come and go leave a record each, and what the leader does by itself none. A leader cannot
// remove itself: on a secure cluster its successor records that the node asked.
func TestAuditOfMembers(t *testing.T) {
	realTime(t)
	t.Parallel()
	for mode, change := range modes(t) {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := startJoined(t, 4, change)
			joined := of(c.leader().audits(), "member")
			slices.Sort(joined)
			want := []string{"member.join n2 from 127.0.0.1", "member.join n3 from 127.0.0.1", "member.join n4 from 127.0.0.1"}
			if !slices.Equal(joined, want) {
				t.Fatalf("%q", joined)
			}
			if mode == "secure" {
				made := ok[wire.JoinTokenCreated](c.leader().testNode, "POST", "/api/v1/join-tokens", nil)
				ok[wire.JoinToken](c.leader().testNode, "POST", "/api/v1/join-tokens/"+made.ID+":revoke", nil)
				from := made.ID + " from 127.0.0.1"
				if got := of(c.leader().audits(), "join-token"); !slices.Equal(got, []string{"join-token.create " + from,
					"join-token.revoke " + from}) {
					t.Errorf("%q", got)
				}
			}
			begun := len(c.leader().audits())
			lead := c.leader()
			to := c.others(lead)[0]
			c.mustOp("transfer", to.id())
			lead = c.leader()
			gone := c.others(lead)[0]
			c.mustOp("demote", gone.id())
			c.mustOp("promote", gone.id())
			c.mustOp("remove", gone.id())
			c.mustOp("remove", gone.id()) // done before
			c.mustOp("remove", lead.id())
			want = []string{"cluster.transfer " + to.id(), "member.demote " + gone.id(), "member.promote " + gone.id(),
				"member.remove " + gone.id(), "member.remove " + lead.id()}
			var rest *member
			for _, m := range c.members {
				if m != gone && m != lead {
					rest = m
				}
			}
			rest.eventually("all is recorded", func() bool { return len(rest.audits()) >= begun+len(want) })
			got := of(rest.audits()[begun:], "member", "cluster")
			for i := range want {
				want[i] += " from 127.0.0.1"
			}
			if !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// The leader is killed while jobs are created: of every job that there is, there is one record, and of no other.
func TestAuditSurvivesTheLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	old := c.leader()
	others := c.others(old)
	r := newRecorder(t)
	var wg sync.WaitGroup
	half := make(chan struct{})
	for w := range 4 {
		via := c.members[w%3]
		if via == old {
			via = others[0]
		}
		wg.Go(func() {
			for i := range 60 {
				name := fmt.Sprint("w", w, "-", i)
				for {
					a, err := via.try("POST", "/api/v1/jobs", r.spec(name, "@manual"), "Idempotency-Key", name)
					if err == nil && a.status == 201 {
						break
					}
				}
				if w == 0 && i == 20 {
					close(half)
				}
			}
		})
	}
	<-half
	old.crash()
	wg.Wait()
	jobs, records := map[string]int{}, map[string]int{}
	lead := c.leader()
	err := lead.group.store.View(func(v *store.View) error {
		return v.EachJob(0, func(id job.ID, d store.Definition) bool {
			jobs[d.Spec.Name+" "+id.String()]++
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range lead.audits() {
		if a.Kind() == "job" && a.Outcome == "" {
			records[a.Object+" "+a.ID]++
		}
	}
	if len(jobs) != 240 || !maps.Equal(jobs, records) {
		t.Errorf("%d jobs, %d records", len(jobs), len(records))
	}
	c.sameState()
}

// What is refused before anything is proposed leaves a count and no record.
func TestRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	n := start(t, t.TempDir(), func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	// A stranger can write what is long, and what a terminal would obey.
	for range 3 {
		if a := n.call("POST", "/api/v1/jobs/%1b%5d0;"+strings.Repeat("x", 50_000)+":backfill", "{"); a.status != 400 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	lines := 0
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "request refused") {
			if lines++; len(line) > 1000 || strings.Contains(line, "\x1b") {
				t.Errorf("%d bytes: %.300q", len(line), line)
			}
		}
	}
	if lines == 0 {
		t.Error("none is logged")
	}
	if text := string(n.call("GET", "/metrics", nil).body); !strings.Contains(text, `carillon_requests_refused_total{code="malformed"} 3`) {
		t.Error("they are not counted")
	}
	if got := n.audits(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
