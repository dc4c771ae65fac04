package node

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/enroll"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

func (c *cluster) openAll() {
	c.t.Helper()
	for _, m := range c.members {
		m.link = &link{}
		m.cfg.Keys.From = ""
		m.open(c.t)
	}
}

func (m *member) keyFile(name string) string { return filepath.Join(m.cfg.DataDir, keys.Dir, name) }

func (m *member) lose(name string) {
	m.t.Helper()
	if err := os.RemoveAll(m.keyFile(name)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) trouble(code string) (wire.Trouble, bool) {
	for _, tr := range m.status("").Troubles {
		if tr.Code == code {
			return tr, true
		}
	}
	return wire.Trouble{}, false
}

// A majority of the voters lost the keys. Whichever leads gets them from the one that has them before it hands out a
// run: none ends because a secret could not be read.
func TestLeaderLostItsKeys(t *testing.T) {
	realTime(t)
	t.Parallel()
	secure, a := securely(t)
	c := startJoined(t, 3, secure)
	c.awaitWorkers(3)
	e := newEcho(t)
	ok[wire.Secret](c.leader().testNode, "PUT", "/api/v1/secrets/k", map[string]any{"value": "the value of now"})
	c.leader().create(map[string]any{"name": "with", "type": "http", "schedule": "@every 1s",
		"payload": map[string]any{"url": e.URL + "/", "headers": map[string]string{"Authorization": "Bearer secret://k"}}})
	c.stopAll()
	for _, m := range c.members[:2] {
		m.lose(keys.ClusterFile)
	}
	c.openAll()
	for _, to := range c.members[:2] {
		c.leader().eventually(to.id()+" leads", func() bool {
			return to.tracker.Epoch() != nil || c.op("transfer", to.id()).status == 204
		})
	}
	for _, m := range c.members {
		m.eventually(m.id()+" has the keys", func() bool {
			return m.keys.Authority() != nil && m.keys.CAHash() == keys.HashOf(a.Cert) && exists(m.keyFile(keys.ClusterFile))
		})
	}
	lead := c.leader()
	lead.ran("with", 2)
	for _, r := range lead.runs("with") {
		if r.Reason == job.ReasonSecret {
			t.Errorf("%+v", r)
		}
	}
	lead.eventually("nothing is wrong", func() bool { _, bad := lead.trouble(wire.TroubleKeys); return !bad })
}

// All voters lost the keys. The cluster works on and says so; a backup with the keys, put on one of them, mends it.
// Without one it begins again as a plain one that can be made secure.
func TestKeysAreLostEverywhere(t *testing.T) {
	realTime(t)
	t.Parallel()
	secure, a := securely(t)
	c := startJoined(t, 3, secure)
	lead := c.leader()
	ok[wire.Secret](lead.testNode, "PUT", "/api/v1/secrets/k", map[string]any{"value": "the value of now"})
	backup := lead.withKeys()
	c.stopAll()
	for _, m := range c.members {
		m.lose(keys.ClusterFile)
	}
	c.openAll()
	c.awaitVoters(3)
	lead = c.leader()
	tr, bad := lead.trouble(wire.TroubleKeys)
	if !bad || !strings.Contains(tr.Remedy, "--from-backup") {
		t.Errorf("%+v", lead.status("").Troubles)
	}
	p := lead.call("POST", "/api/v1/cluster:rotate-ca", nil).problem()
	if p.Code != job.CodeUnavailable || !strings.Contains(p.Remedy, keys.ClusterFile) {
		t.Errorf("%+v", p)
	}
	if p := lead.call("POST", "/api/v1/join-tokens", wire.JoinTokenRequest{}).problem(); p.Code != job.CodeUnavailable {
		t.Errorf("%+v", p)
	}

	out := filepath.Join(t.TempDir(), "out")
	made, err := enroll.KeysOfBackup(bytes.NewReader(backup), passphrase, out)
	if err != nil || made.CA != keys.HashOf(a.Cert).String() {
		t.Fatalf("%+v, %v", made, err)
	}
	if _, err := enroll.KeysOfBackup(bytes.NewReader(backup), passphrase, out); err == nil {
		t.Error("keys are overwritten")
	}
	m := c.others(lead)[0]
	m.stop()
	data, err := os.ReadFile(filepath.Join(out, keys.ClusterFile))
	if err == nil {
		err = os.WriteFile(m.keyFile(keys.ClusterFile), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.restart()
	for _, m := range c.members {
		m.eventually(m.id()+" has the keys", func() bool { return m.keys.Authority() != nil })
		if v, _, err := m.group.vault.Open("default", "k"); err != nil || v != "the value of now" {
			t.Errorf("%s: %q, %v", m.id(), v, err)
		}
	}

	// Now all of it is gone, the nodes' own keys too.
	c.stopAll()
	for _, m := range c.members {
		m.lose("")
		m.cfg.Machine.Listen = nil
		if n, err := Open(m.cfg); err == nil || !strings.Contains(err.Error(), "cluster recover") {
			t.Errorf("%v, %v", n, err)
		}
	}
	m = c.members[0]
	r, err := datadir.Recover(m.cfg.DataDir, map[string]string{m.id(): m.cfg.Listen}, quiet)
	if err != nil || !r.Alone || !r.KeysLost {
		t.Fatalf("%+v, %v", r, err)
	}
	if n, err := Open(m.cfg); err == nil || !strings.Contains(err.Error(), "cluster init") {
		t.Errorf("it is secure without keys: %v, %v", n, err)
	}
	id, err := datadir.ClusterOf(m.cfg.DataDir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	from := filepath.Join(t.TempDir(), "new")
	if _, err := enroll.MakeKeys(from, id, time.Now()); err != nil {
		t.Fatal(err)
	}
	cfg := testConfig(t, m.cfg.DataDir)
	cfg.Keys = KeysConfig{On: true, From: from}
	n := open(t, cfg)
	n.eventually("it leads", func() bool { return n.Node.Ready() == nil })
	if s := ok[wire.Secret](n, "GET", "/api/v1/secrets/k", nil); s.Status != "missing" {
		t.Errorf("%+v", s)
	}
	if row, ok := n.members.Row(m.id()); !ok || row.Key == "" {
		t.Errorf("%+v", row)
	}
}

// The clocks of all nodes are fifteen years ahead: the cluster forms, and its CA has ended. carillon says that clocks
// differ; other clients, with the clock of the nodes, refuse the CA until it is replaced.
func TestClockFifteenYearsAhead(t *testing.T) {
	realTime(t)
	t.Parallel()
	secure, a := securely(t)
	c := startJoined(t, 3, secure)
	shifted := func(shift time.Duration) *member {
		t.Helper()
		c.stopAll()
		for _, m := range c.members {
			m.clock = &shiftedClock{start: time.Now()}
			m.clock.shift.Store(int64(shift))
			m.cfg.Clock = m.clock
		}
		c.openAll()
		c.members[0].eventually("the clock mark is at the clock", func() bool {
			for _, m := range c.members {
				if m.tracker.Epoch() != nil {
					a, err := m.try("POST", "/api/v1/cluster:clock-reset", nil)
					return err == nil && a.status < 300
				}
			}
			return false
		})
		c.awaitVoters(3)
		for _, m := range c.members {
			m.eventually(m.id()+" has a new certificate", func() bool { return !m.keys.Due(m.clock.Now()) })
		}
		return c.leader()
	}
	verify := func(m *member, ca *x509.Certificate) error {
		certs := shownBy(t, m.keys)
		roots, inter := x509.NewCertPool(), x509.NewCertPool()
		roots.AddCert(ca)
		for _, x := range certs[1:] {
			inter.AddCert(x)
		}
		_, err := certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: inter, CurrentTime: m.clock.Now(),
			DNSName: "127.0.0.1"})
		return err
	}
	lead := shifted(15 * 365 * 24 * time.Hour)
	if err := sees(lead, keys.HashOf(a.Cert)); err == nil || !strings.Contains(err.Error(), "clock") {
		t.Errorf("%v", err)
	}
	if err := verify(lead, a.Cert); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("%v", err)
	}
	r := c.rotate(wire.RotateRequest{})
	c.awaitCA(r.Next, c.members...)
	if err := verify(lead, lead.keys.CA()); err != nil {
		t.Error(err)
	}
	// And back: the new CA is not valid yet for who goes by dates, and nodes do not.
	lead = shifted(0)
	if err := sees(lead, keys.HashOf(a.Cert)); err != nil {
		t.Error(err)
	}
	if err := verify(lead, lead.keys.CA()); err == nil {
		t.Error("a CA of the future is valid")
	}
	r = c.rotate(wire.RotateRequest{})
	c.awaitCA(r.Next, c.members...)
	if err := verify(lead, lead.keys.CA()); err != nil {
		t.Error(err)
	}
}
