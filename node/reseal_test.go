package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// resealed says whether all secrets are sealed with the key that a node would seal with now.
func (m *member) resealed() bool {
	with := m.keys.Sealer()
	all := with != nil
	m.group.store.EachSecret(func(_ store.SecretKey, row *store.Secret) {
		all = all && keys.SealedBy(row.Sealed) == with.KeyID() &&
			(row.Previous == nil || keys.SealedBy(row.Previous) == with.KeyID())
	})
	return all
}

// Secrets are there after a rotation, after a restart of all nodes, when the leader dies in the middle of one, and after
// more rotations than keys are remembered. None is left sealed with a key that was replaced, the one before it included.
func TestSecretsOutliveRotations(t *testing.T) {
	realTime(t)
	t.Parallel()
	secure, first := securely(t)
	c := startJoined(t, 3, secure, calm)
	c.awaitWorkers(3)
	e := newEcho(t)
	put := func(value string) {
		t.Helper()
		ok[wire.Secret](c.leader().testNode, "PUT", "/api/v1/secrets/k", map[string]any{"value": value})
	}
	put("the value before")
	put("the value of now")
	c.leader().create(map[string]any{"name": "with", "type": "http", "schedule": "@manual",
		"payload": map[string]any{"url": e.URL + "/", "headers": map[string]string{"Authorization": "Bearer secret://k"}}})
	ran := 0
	check := func(when string) {
		t.Helper()
		n := c.leader()
		n.eventually(when+": the run is begun", func() bool {
			a, err := n.try("POST", "/api/v1/jobs/with:run", nil)
			return err == nil && a.status < 300
		})
		ran++
		if r := n.ran("with", ran); r.Status != job.RunSucceeded || !strings.Contains(e.last(), "the value of now") {
			t.Errorf("%s: %+v, %q", when, r, e.last())
		}
		for _, m := range c.members {
			m.eventually(when+": both values, sealed anew, are on "+m.id(), func() bool { // it may be behind
				return m.resealed() && slices.Equal(m.group.vault.Values("default", []string{"k"}),
					[]string{"the value of now", "the value before"})
			})
		}
		if s := ok[wire.Secret](n.testNode, "GET", "/api/v1/secrets/k", nil); s.Status != "set" || s.Version != 2 {
			t.Errorf("%s: %+v", when, s)
		}
	}
	check("before")
	r := c.rotate(wire.RotateRequest{})
	c.awaitCA(r.Next, c.members...)
	check("after a rotation")

	for _, m := range c.members {
		m.stop()
	}
	for _, m := range c.members {
		m.link = &link{}
		m.open(t)
	}
	c.awaitVoters(3)
	c.awaitWorkers(3)
	check("after a restart")

	lead := c.leader()
	r = c.rotate(wire.RotateRequest{})
	lead.crash()
	lead.stop()
	lead.link = &link{}
	lead.open(t)
	c.awaitVoters(3)
	c.awaitCA(r.Next, c.members...)
	c.awaitWorkers(3)
	check("after the death of a leader")

	for range keys.MaxFormer {
		r = c.rotate(wire.RotateRequest{})
		c.awaitCA(r.Next, c.members...)
	}
	check("after many rotations")
	for _, m := range c.members {
		if m.keys.Opener(first.KeyID()) != nil {
			t.Errorf("%s still has the first key, which nothing needs", m.id())
		}
	}
	lead = c.leader()
	recorded := 0
	err := lead.group.store.View(func(v *store.View) error {
		return v.EachAuditBack(0, func(_ uint64, a store.Audit) bool {
			if a.Action == "secret.reseal" && a.Done == 1 && a.Outcome == "" && strings.HasPrefix(a.Name, "leader n") {
				recorded++
			}
			return true
		})
	})
	if err != nil || recorded != 2+keys.MaxFormer {
		t.Errorf("%d records, %v", recorded, err)
	}
}

// When the old key may be known to others, secrets are sealed with the new one without waiting for a member that is
// off. That one has not got the key when it is back; as a leader it gets it before it hands out a run.
func TestSecretsAreResealedWithoutAMember(t *testing.T) {
	realTime(t)
	t.Parallel()
	secure, first := securely(t)
	c := startJoined(t, 3, secure)
	c.awaitWorkers(3)
	e := newEcho(t)
	lead := c.leader()
	ok[wire.Secret](lead.testNode, "PUT", "/api/v1/secrets/k", map[string]any{"value": "the value of now"})
	lead.create(map[string]any{"name": "with", "type": "http", "schedule": "@every 1s",
		"payload": map[string]any{"url": e.URL + "/", "headers": map[string]string{"Authorization": "Bearer secret://k"}}})
	off := c.others(lead)[0]
	off.stop()
	r := c.rotate(wire.RotateRequest{DistrustOld: true})
	lead.eventually("secrets are sealed with the new key", func() bool {
		sealed := ""
		lead.group.store.EachSecret(func(_ store.SecretKey, row *store.Secret) { sealed = keys.SealedBy(row.Sealed) })
		return sealed != "" && sealed != first.KeyID() && lead.resealed()
	})
	if s := lead.group.store.Info().Security; s.Rotation == nil || s.Rotation.CA != r.Next {
		t.Fatalf("%+v", s)
	}
	off.link = &link{}
	off.open(t)
	for lead := c.leader(); lead != off; lead = c.leader() {
		lead.eventually("the other one leads", func() bool {
			return off.tracker.Epoch() != nil || c.op("transfer", off.id()).status == 204
		})
	}
	c.awaitCA(r.Next, c.members...)
	for _, run := range off.runs("with") {
		if run.Reason == job.ReasonSecret {
			t.Errorf("%+v", run)
		}
	}
	off.ran("with", 1)
	if got := e.last(); !strings.Contains(got, "the value of now") {
		t.Errorf("%q", got)
	}
}
