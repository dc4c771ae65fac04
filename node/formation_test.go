package node

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/enroll"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/port"
	"github.com/carillon-scheduler/carillon/store"
)

// forming are nodes that are to be started with one list.
func forming(t *testing.T, size int, change ...func(*Config)) *cluster {
	t.Helper()
	c := &cluster{t: t}
	var list []string
	for i := range size {
		ln := port.Listen(t)
		cfg := testConfig(t, t.TempDir())
		cfg.NodeID, cfg.Listen, cfg.Bootstrap = fmt.Sprintf("n%d", i+1), ln.Addr().String(), false
		cfg.Raft.Heartbeat = time.Second // they share the processors, and several such tests run at once
		list = append(list, cfg.Listen)
		c.members = append(c.members, &member{cfg: cfg, link: &link{ln: ln}})
	}
	for _, m := range c.members {
		m.cfg.Cluster = list
		for _, f := range change {
			f(&m.cfg)
		}
	}
	t.Cleanup(c.killAll)
	return c
}

// formed waits until all nodes are voters of one cluster, and returns its id.
func (c *cluster) formed() string {
	c.t.Helper()
	for _, m := range c.members {
		m.eventually(m.id()+" is one of the voters", func() bool {
			return m.service.Ready() == nil && len(m.members.Servers()) == len(c.members)
		})
	}
	id := c.members[0].members.Cluster().ID
	for _, m := range c.members {
		if other := m.members.Cluster().ID; other != id {
			c.t.Fatalf("%s is in %s and not in %s", m.id(), other, id)
		}
	}
	return id
}

// waits is what a node says about why it is not part of a cluster.
func (m *member) waits() (text, remedy string) {
	p := m.call("GET", "/readyz", nil).problem()
	return p.Message, p.Remedy
}

// Three nodes with one list are one cluster, whoever is there first. Until then each says what it waits for.
func TestFormation(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := forming(t, 3)
	for i, m := range []*member{c.members[2], c.members[0]} {
		m.open(t)
		want := fmt.Sprintf("%d of 3 new nodes seen", i+1)
		m.eventually(want, func() bool { text, _ := m.waits(); return strings.Contains(text, want) })
	}
	m := c.members[0]
	a := m.call("GET", "/readyz", nil)
	p := a.problem()
	if late := c.members[1].cfg.Listen; a.status != http.StatusServiceUnavailable || p.Code != job.CodeNotReady ||
		!strings.Contains(p.Message, "waiting for "+late+" to answer") || !strings.Contains(p.Remedy, "--cluster") {
		t.Errorf("%d %+v", a.status, p)
	}
	s := ok[wire.Status](m.testNode, "GET", "/api/v1/status", nil)
	if s.Ready || s.ClusterID != "" || !strings.Contains(s.NotReady, "2 of 3 new nodes seen") || len(s.Troubles) != 1 ||
		s.Troubles[0].Code != wire.TroubleNotReady || s.Troubles[0].Remedy == "" {
		t.Errorf("%+v", s)
	}
	c.members[1].open(t)
	id := c.formed()
	var rows map[string]store.Node
	m.eventually("it has the rows of all", func() bool {
		rows, _ = m.members.Rows()
		return len(rows) == 3
	})
	for _, m := range c.members {
		if r := rows[m.id()]; r.Instance != m.dir.Instance || r.Level != m.cfg.supports() || r.Address != m.cfg.Listen {
			t.Errorf("%+v", r)
		}
	}
	// All are started again with the same list, and are what they were.
	for _, m := range c.members {
		m.kill()
	}
	for _, m := range c.members {
		m.reopen()
	}
	if again := c.formed(); again != id {
		t.Errorf("%s became %s", id, again)
	}
}

// A node of three whose directory was lost is started with the same command: it founds nothing, says what to do, and is
// taken in when that was done. With the fault planted it founds a cluster of its own.
func TestFormationWithALostDirectory(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := forming(t, 3)
	for _, m := range c.members {
		m.open(t)
	}
	id := c.formed()
	first := c.members[0]
	for _, m := range c.members { // the one that founds
		if m.former.State().List[0] == m.cfg.Listen {
			first = m
		}
	}
	other := c.others(first)[0]
	spec := job.Spec{Name: "kept", Type: job.TypeHTTP, Schedule: "@manual", Payload: []byte(`{"url":"http://127.0.0.1:1"}`)}
	other.eventually("the job is created", func() bool {
		s := other.call("POST", "/api/v1/jobs", spec).status
		return s == http.StatusCreated || s == http.StatusConflict // or an answer got lost
	})
	first.kill()
	if err := os.RemoveAll(first.cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	first.reopen()
	first.eventually("it says what to do", func() bool {
		text, remedy := first.waits()
		return strings.Contains(text, "with another data directory") && strings.Contains(remedy,
			"carillon cluster remove "+first.id())
	})
	if own := first.members.Cluster().ID; own != "" || len(first.members.Servers()) != 0 {
		t.Fatalf("it is in cluster %q", own)
	}
	other.eventually("it is removed", func() bool {
		return other.call("POST", "/api/v1/cluster:remove", wire.NodeRequest{NodeID: first.id()}).status < 300
	})
	if again := c.formed(); again != id {
		t.Errorf("%s became %s", id, again)
	}
	first.eventually("it has the job", func() bool {
		return first.call("GET", "/api/v1/jobs/kept", nil).status == http.StatusOK
	})
}

// Nodes with different lists form nothing, and each names both lists. One that the list does not have is not started, and
// leaves its directory empty.
func TestFormationWithAnotherList(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := forming(t, 3)
	c.members[2].cfg.Cluster = []string{c.members[0].cfg.Listen, c.members[2].cfg.Listen}
	for _, m := range c.members {
		m.open(t)
	}
	for _, m := range []*member{c.members[0], c.members[2]} {
		m.eventually(m.id()+" names both lists", func() bool {
			text, remedy := m.waits()
			return strings.Count(text, "--cluster "+"127.0.0.1:") == 2 && strings.Contains(remedy, "the same --cluster")
		})
	}
	cfg := testConfig(t, filepath.Join(t.TempDir(), "data"))
	cfg.Bootstrap, cfg.Cluster = false, c.members[0].cfg.Cluster
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "this node is not in the list") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "node.json")); err == nil {
		t.Error("the directory is not empty")
	}
}

// A node that is a cluster of its own and is started with a list of nodes that are another one stands still, and says
// so; the other cluster says so too, and goes on.
func TestFormationBesideAnotherCluster(t *testing.T) {
	realTime(t)
	t.Parallel()
	c := forming(t, 3)
	alone := c.members[0]
	list := alone.cfg.Cluster
	alone.cfg.Cluster, alone.cfg.Bootstrap = nil, true
	alone.open(t)
	alone.eventually("a cluster of one", func() bool { return alone.service.Ready() == nil })
	alone.kill()
	rest := &cluster{t: t, members: c.members[1:]}
	for _, m := range rest.members {
		m.cfg.Cluster = list[1:]
		m.open(t)
	}
	rest.formed()
	alone.cfg.Cluster = list
	alone.reopen()
	alone.eventually("it stands still", func() bool {
		text, remedy := alone.waits()
		return strings.Contains(text, "it does nothing") && strings.Contains(remedy, "empty this node's data directory")
	})
	if alone.Leads() {
		t.Error("it leads")
	}
	s := ok[wire.Status](alone.testNode, "GET", "/api/v1/status", nil)
	if s.Ready || len(s.Troubles) != 1 || s.Troubles[0].Code != wire.TroubleOtherCluster {
		t.Errorf("%+v", s)
	}
	for _, m := range rest.members {
		m.kill()
		m.cfg.Cluster = list
		m.reopen()
	}
	rest.formed()
	m := rest.members[0]
	m.eventually("the others say so", func() bool {
		m.former.Look(t.Context())
		text, _ := m.members.Mentioned()
		return m.service.Ready() == nil && strings.Contains(text, alone.cfg.Listen)
	})
}

// Nodes that were given the same keys form a secure cluster, with one admin's token and the join token of the keys.
func TestSecureFormation(t *testing.T) {
	realTime(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	made, err := enroll.MakeKeys(dir, "formed-securely", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	token, err := keys.ReadTokenFile(keys.JoinToken, filepath.Join(dir, keys.JoinTokenFile))
	if err != nil {
		t.Fatal(err)
	}
	c := forming(t, 3, secure, func(c *Config) { c.Keys = KeysConfig{On: true, From: dir, Token: token} })
	for _, m := range c.members {
		m.open(t)
	}
	if id := c.formed(); id != made.Cluster {
		t.Errorf("%s", id)
	}
	var tokens []string
	for _, m := range c.members {
		if _, err := os.Stat(filepath.Join(m.cfg.DataDir, AdminTokenFile)); err == nil {
			tokens = append(tokens, m.cfg.DataDir)
		}
	}
	if len(tokens) != 1 {
		t.Fatalf("admin tokens in %v", tokens)
	}
	leader := c.leader()
	if joins := leader.group.store.Info().Security.Joins; len(joins) != 1 || joins[0].ID != token.ID {
		t.Errorf("%+v", joins)
	}
	// One whose directory was lost founds nothing, and joins when it was removed.
	lost := c.others(leader)[0]
	lost.kill()
	if err := os.RemoveAll(lost.cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	lost.reopen()
	says := func() string {
		err, _ := lost.service.Ready().(*job.Error)
		if err == nil {
			return ""
		}
		return err.Message + " " + err.Remedy
	}
	lost.eventually("it says what to do", func() bool { return strings.Contains(says(), "carillon cluster remove "+lost.id()) })
	leader.eventually("it is removed", func() bool {
		_, err := leader.members.Remove(t.Context(), lost.id())
		return err == nil
	})
	c.formed()
}
