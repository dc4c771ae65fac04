package node

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

var passphrase = []byte("correct horse battery staple")

// withKeys is the backup of a node, with the keys in its directory.
func (n *testNode) withKeys() []byte {
	n.t.Helper()
	var out bytes.Buffer
	same, err := datadir.WriteKeys(&out, n.cfg.DataDir, passphrase, 4)
	if err != nil {
		n.t.Fatal(err)
	}
	out.Write(n.backup())
	if err := same(); err != nil {
		n.t.Fatal(err)
	}
	return out.Bytes()
}

// shownBy are the certificates that a node shows.
func shownBy(t *testing.T, r *keys.Ring) (out []*x509.Certificate) {
	t.Helper()
	c, err := r.Shown()
	if err != nil {
		t.Fatal(err)
	}
	for _, der := range c.Certificate {
		x, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, x)
	}
	return out
}

// A cluster that is restored with its keys has its secrets, and is found by those who know the old CA; its nodes and
// those of the old cluster are none of each other's. Without the keys it is another cluster, whose secrets are missing.
func TestRestoreWithKeys(t *testing.T) {
	realTime(t)
	t.Parallel()
	secure, _ := securely(t)
	c := startJoined(t, 2, secure)
	old := c.leader()
	e := newEcho(t)
	ok[wire.Secret](old.testNode, "PUT", "/api/v1/secrets/k", map[string]any{"value": "the value of now"})
	old.create(map[string]any{"name": "with", "type": "http", "schedule": "@manual",
		"payload": map[string]any{"url": e.URL + "/", "headers": map[string]string{"Authorization": "Bearer secret://k"}}})
	pins := []keys.Hash{old.keys.CAHash()}
	r := c.rotate(wire.RotateRequest{})
	c.awaitCA(r.Next, c.members...)
	old.eventually("secrets are sealed anew", old.resealed)
	pins = append(pins, old.keys.CAHash())
	data := old.withKeys()
	for _, secret := range []string{"the value of now", "PRIVATE KEY", "CLUSTER KEY"} {
		if bytes.Contains(data, []byte(secret)) {
			t.Errorf("%q is in the backup", secret)
		}
	}

	t.Run("with", func(t *testing.T) {
		rc := restoreConfig(t, data)
		rc.Passphrase = passphrase
		res, err := datadir.Restore(rc)
		if err != nil || res.Keys != datadir.KeysRestored || res.Secrets != 1 || res.CA == r.Next {
			t.Fatalf("%+v, %v", res, err)
		}
		cfg := testConfig(t, rc.DataDir)
		cfg.Keys.On = true
		n := &member{testNode: open(t, cfg)}
		n.eventually("it leads", func() bool { return n.tracker.Epoch() != nil && n.resealed() })
		if problems, _, err := n.group.store.Check(); err != nil || len(problems) > 0 {
			t.Error(problems, err)
		}
		pins := append(pins, hashOf(t, res.CA))
		for i, pin := range pins {
			n.eventually("it is known by the old CAs", func() bool { return sees(n, pin) == nil })
			if n.keys.Trusts(pin) != (i == len(pins)-1) {
				t.Errorf("CA %d vouches for nodes, or the last one does not", i)
			}
		}
		for name, from := range map[string]*keys.Ring{"the old cluster": old.keys, "the new one": n.keys} {
			to := map[*keys.Ring]*keys.Ring{old.keys: n.keys, n.keys: old.keys}[from]
			if id, err := to.Verify(shownBy(t, from)); err == nil {
				t.Errorf("a node of %s is taken for one: %+v", name, id)
			}
		}
		if v, _, err := n.group.vault.Open("default", "k"); err != nil || v != "the value of now" {
			t.Errorf("%q, %v", v, err)
		}
		n.call("POST", "/api/v1/cluster:release", nil)
		n.eventually("it is released", func() bool { return !n.group.store.Info().Hold.On })
		n.call("POST", "/api/v1/jobs/with:run", nil)
		if run := n.ran("with", 1); run.Status != job.RunSucceeded || !strings.Contains(e.last(), "the value of now") {
			t.Errorf("%+v, %q", run, e.last())
		}
		// It goes on as any other: a restart, another rotation, a backup of its own.
		n.stop()
		n.testNode = open(t, cfg)
		n.eventually("it leads again", func() bool { return n.tracker.Epoch() != nil })
		next := ok[wire.Rotation](n.testNode, "POST", "/api/v1/cluster:rotate-ca", nil)
		n.eventually("its CA is replaced", func() bool {
			return n.keys.CAHash().String() == next.Next && n.keys.Authorities().Next == nil && n.resealed()
		})
		if err := sees(n, pins[0]); err != nil {
			t.Error(err)
		}
		again := restoreConfig(t, n.withKeys())
		again.Passphrase = passphrase
		if res, err := datadir.Restore(again); err != nil || res.Keys != datadir.KeysRestored {
			t.Errorf("%+v, %v", res, err)
		}
	})

	t.Run("without", func(t *testing.T) {
		rc := restoreConfig(t, data)
		res, err := datadir.Restore(rc)
		if err != nil || res.Keys != datadir.KeysLeftOut || res.CA != "" {
			t.Fatalf("%+v, %v", res, err)
		}
		if exists(filepath.Join(rc.DataDir, keys.Dir)) {
			t.Error("there are keys")
		}
		from := filepath.Join(t.TempDir(), "keys")
		a, err := keys.NewAuthority(res.ClusterID, rc.Now)
		if err == nil {
			err = a.Write(from, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		cfg := testConfig(t, rc.DataDir)
		cfg.Keys = KeysConfig{On: true, From: from}
		n := &member{testNode: open(t, cfg)}
		n.eventually("it leads", func() bool { return n.tracker.Epoch() != nil })
		if s := ok[wire.Secret](n.testNode, "GET", "/api/v1/secrets/k", nil); s.Status != "missing" || s.JobCount != 1 {
			t.Errorf("%+v", s)
		}
		if err := sees(n, pins[1]); err == nil {
			t.Error("it is known by the old CA")
		}
		n.call("POST", "/api/v1/cluster:release", nil)
		n.eventually("it is released", func() bool { return !n.group.store.Info().Hold.On })
		before := e.last()
		n.call("POST", "/api/v1/jobs/with:run", nil)
		if run := n.ran("with", 1); run.Reason != job.ReasonSecret || e.last() != before {
			t.Errorf("%+v", run)
		}
		ok[wire.Secret](n.testNode, "PUT", "/api/v1/secrets/k", map[string]any{"value": "the value of later"})
		n.call("POST", "/api/v1/jobs/with:run", nil)
		if run := n.ran("with", 2); run.Status != job.RunSucceeded || !strings.Contains(e.last(), "the value of later") {
			t.Errorf("%+v", run)
		}
	})

	t.Run("refused", func(t *testing.T) {
		flipped := bytes.Clone(data)
		flipped[bytes.IndexByte(data, '\n')+200] ^= 1
		plain := old.backup()
		end := []byte("-----END CARILLON LOCKED KEYS-----\n")
		alone := data[:bytes.Index(data, end)+len(end)]
		for name, tt := range map[string]struct {
			data       []byte
			passphrase string
			want       string
		}{
			"another passphrase": {data, "correct horse battery stable", "the passphrase is wrong"},
			"flipped":            {flipped, string(passphrase), "damaged"},
			"cut":                {data[:300], string(passphrase), "cut off"},
			"no keys":            {plain, string(passphrase), "has no keys"},
			"keys alone":         {alone, string(passphrase), "not a backup"},
		} {
			rc := restoreConfig(t, tt.data)
			rc.Passphrase = []byte(tt.passphrase)
			if _, err := datadir.Restore(rc); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v", name, err)
			}
			if exists(rc.DataDir) {
				t.Errorf("%s: the directory is there", name)
			}
		}
	})

	// Whatever is cut off leaves nothing that opens, and no keys when the restore is repeated without them.
	t.Run("cut off", func(t *testing.T) {
		for _, at := range []string{"state written", "keys written", "state changed", "snapshot made"} {
			rc := restoreConfig(t, data)
			rc.Passphrase = passphrase
			rc.Step = func(step string) error {
				if step == at {
					return faultpoint.ErrCutOff
				}
				return nil
			}
			if _, err := datadir.Restore(rc); err == nil {
				t.Fatalf("there is no step %q", at)
			}
			cfg := testConfig(t, rc.DataDir)
			cfg.Keys.On = true
			if n, err := Open(cfg); err == nil {
				n.Close()
				t.Errorf("it opens, cut off at %s", at)
			}
			rc.Backup, rc.Step, rc.Passphrase = bytes.NewReader(data), nil, nil
			if res, err := datadir.Restore(rc); err != nil || res.Keys != datadir.KeysLeftOut ||
				exists(filepath.Join(rc.DataDir, keys.Dir)) {
				t.Errorf("%s: %+v, %v", at, res, err)
			}
		}
	})
	if fi, err := os.Stat(filepath.Join(old.cfg.DataDir, keys.Dir, keys.ClusterFile)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
}
