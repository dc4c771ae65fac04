package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
)

// securely makes the members of a cluster secure ones, with keys that were made beforehand.
func securely(t *testing.T) (func(*Config), *keys.Authority) {
	t.Helper()
	a, err := keys.NewAuthority("secure", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "keys")
	if err := a.Write(dir, nil); err != nil {
		t.Fatal(err)
	}
	tok := a.JoinToken("abcdefghijkm")
	if err := os.WriteFile(filepath.Join(dir, keys.JoinTokenFile), []byte(tok.Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(c *Config) { c.Keys = KeysConfig{On: true, From: dir, Token: tok} }, a
}

// modes are the ways to run a cluster.
func modes(t *testing.T) map[string]func(*Config) {
	secure, _ := securely(t)
	return map[string]func(*Config){"plain": func(*Config) {}, "secure": secure}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// begin starts the first node of a cluster and waits until it leads.
func (c *cluster) begin(change ...func(*Config)) *member {
	c.t.Helper()
	m := c.newMember("n1", nil, change...)
	c.members = append(c.members, m)
	m.open(c.t)
	c.t.Cleanup(m.kill)
	m.eventually("it leads", func() bool { return m.service.Ready() == nil })
	return m
}

// A cluster that is begun with nothing makes its keys itself, a node joins with the token that it left, and gets the
// keys of the cluster when it votes, and not before.
func TestSecureClusterFromNothing(t *testing.T) {
	t.Parallel()
	on := func(c *Config) { c.Keys.On = true }
	c := &cluster{t: t}
	first := c.begin(on, func(c *Config) { c.Members.StableFor = time.Hour })
	tok, left := first.JoinToken()
	if !left {
		t.Fatal("there is no join token")
	}
	if fi, err := os.Stat(filepath.Join(first.cfg.DataDir, keys.JoinTokenFile)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	info := first.group.store.Info()
	if id, _ := first.keys.Identity(); info.Security.CA != tok.CA.String() || id.Cluster != info.ClusterID {
		t.Errorf("%+v, %+v", info, id)
	}
	second := c.newMember("n2", []string{first.cfg.Listen}, on, func(cfg *Config) { cfg.Keys.Token = tok })
	c.members = append(c.members, second)
	second.open(t)
	t.Cleanup(second.kill)
	second.eventually("it has joined", func() bool { return second.service.Ready() == nil })
	has := func() bool { return exists(filepath.Join(second.cfg.DataDir, keys.Dir, keys.ClusterFile)) }
	if has() || second.keys.Authority() != nil {
		t.Error("a node without a vote has the keys of the cluster")
	}
	if row, _ := first.members.Row("n2"); row.Key == "" || row.Instance != second.dir.Instance {
		t.Errorf("%+v", row)
	}
	// It may not take them, and none signs in its name for another.
	dial := transport.NodeDial(second.keys, second.cfg.Machine.Dialer(time.Second, 0), nil)
	hc := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	res, err := hc.Get("http://" + first.cfg.Listen + membership.KeysPath)
	if err != nil || res.StatusCode != http.StatusForbidden {
		t.Errorf("%v, %v", res, err)
	} else {
		res.Body.Close()
	}
	second.eventually("it is promoted", func() bool { return c.op("promote", "n2").status == 204 })
	second.eventually("it votes", func() bool { return len(voters(second)) == 2 })
	if !has() || second.keys.Authority() == nil {
		t.Error("a voter has no keys")
	}
	if j, _ := first.group.store.Info().Security.Join(tok.ID); j.Used != 1 {
		t.Errorf("%+v", j)
	}
	// Join tokens are made and revoked by the API. A repetition is the same token.
	var made [2]wire.JoinTokenCreated
	for i := range made {
		made[i] = ok[wire.JoinTokenCreated](second.testNode, "POST", "/api/v1/join-tokens",
			wire.JoinTokenRequest{TTL: job.Duration(time.Hour), Uses: 3}, "Idempotency-Key", "k1")
	}
	if parsed, err := keys.ParseToken(keys.JoinToken, made[0].Text); err != nil || made[0] != made[1] ||
		parsed.CA != tok.CA || made[0].Uses != 3 {
		t.Errorf("%+v, %v", made, err)
	}
	ok[wire.JoinToken](first.testNode, "POST", "/api/v1/join-tokens/"+made[0].ID+":revoke", nil)
	all := ok[wire.JoinTokenList](second.testNode, "GET", "/api/v1/join-tokens", nil)
	if n := len(all.Tokens); n != 2 || all.Tokens[1].Status != "revoked" || all.Tokens[0].Used != 1 {
		t.Errorf("%+v", all)
	}
	// Strangers see what is for them, and nothing of what is for nodes.
	for _, path := range []string{membership.PeerPath, membership.KeysPath, membership.CertificatePath,
		membership.SelfPath} {
		if a := first.call("GET", path, nil); a.status != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// A join token gives a vote, and with it the keys of the cluster, only if it says so. A node that came with another one
// stays on standby until it is promoted, and the status says what that costs.
func TestJoinTokenWithoutAVote(t *testing.T) {
	t.Parallel()
	secure, _ := securely(t)
	c := &cluster{t: t}
	first := c.begin(secure)
	made := ok[wire.JoinTokenCreated](first.testNode, "POST", "/api/v1/join-tokens", wire.JoinTokenRequest{Uses: 2})
	if made.Voter {
		t.Errorf("%+v", made)
	}
	tok, err := keys.ParseToken(keys.JoinToken, made.Text)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"n2", "n3"} {
		m := c.newMember(id, []string{first.cfg.Listen}, func(cfg *Config) { cfg.Keys.On, cfg.Keys.Token = true, tok })
		c.members = append(c.members, m)
		m.open(t)
		t.Cleanup(m.kill)
		m.eventually("it has joined", func() bool { return m.service.Ready() == nil })
	}
	troubled := func() bool {
		s := ok[wire.Status](first.testNode, "GET", "/api/v1/status", nil)
		return slices.ContainsFunc(s.Troubles, func(t wire.Trouble) bool {
			return t.Code == wire.TroubleFewVoters && strings.Contains(t.Remedy, "cluster promote "+t.Node)
		})
	}
	first.eventually("the status says that one node votes", troubled)
	first.eventually("they have caught up", func() bool { // and would vote if they were to
		s := ok[wire.Status](first.testNode, "GET", "/api/v1/status", nil)
		return !slices.ContainsFunc(s.Members, func(m wire.Member) bool { return m.Lag == nil || *m.Lag > 0 })
	})
	for _, m := range c.members[1:] {
		if row, _ := first.members.Row(m.id()); !row.Standby || exists(m.keyFile(keys.ClusterFile)) {
			t.Errorf("%+v", row)
		}
	}
	if got := voters(first); len(got) != 1 {
		t.Errorf("%v vote", got)
	}
	c.mustOp("promote", "n2")
	c.mustOp("promote", "n3")
	first.eventually("all of them vote", func() bool { return len(voters(first)) == 3 })
	first.eventually("the status is content", func() bool { return !troubled() })
}

// asks is a request to join, as a node with a key makes it.
func asks(t *testing.T, key *ecdsa.PrivateKey, tok keys.Token, id, instance, addr string) wire.JoinRequest {
	t.Helper()
	csr, err := keys.NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	h, err := keys.KeyHash(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return wire.JoinRequest{NodeID: id, InstanceID: instance, Address: addr, Level: fsm.Level, CSR: csr,
		JoinToken: tok.ID, Proof: tok.Proof(h, id, instance)}
}

func newNodeKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Each way in which a join token can be wrong has an error of its own, and nothing is called back or changed.
func TestJoinTokenIsWrong(t *testing.T) {
	t.Parallel()
	secure, a := securely(t)
	c := &cluster{t: t}
	lead := c.begin(secure)
	add := func(id string, change func(*store.JoinToken)) keys.Token {
		tok := a.JoinToken(id)
		sum := tok.Sum()
		row := store.JoinToken{ID: id, Sum: sum[:], Uses: 1, Voter: true, ExpiresAt: time.Now().Add(time.Hour).UnixMilli()}
		change(&row)
		cmd := &fsm.CreateJoinToken{Head: lead.tracker.Epoch().Head(time.Now().UnixMilli()), Token: row}
		if r, err := lead.prop().Propose(cmd).Wait(); err != nil || r.Items[0].Code != fsm.CodeOK {
			t.Fatalf("%+v, %v", r, err)
		}
		return tok
	}
	propose := func(cmd fsm.Command) {
		if r, err := lead.prop().Propose(cmd).Wait(); err != nil || r.Items[0].Code != fsm.CodeOK {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	head := func() fsm.Head { return lead.tracker.Epoch().Head(time.Now().UnixMilli()) }
	soon := add("aaaaaaaaaaab", func(j *store.JoinToken) { j.ExpiresAt = time.Now().UnixMilli() + 1 })
	lead.eventually("it expires", func() bool {
		j, _ := lead.group.store.Info().Security.Join(soon.ID)
		return j.Ended(time.Now().UnixMilli()) != ""
	})
	used := add("aaaaaaaaaaac", func(*store.JoinToken) {})
	propose(&fsm.PutNode{Head: head(), Join: used.ID,
		Node: store.Node{ID: "gone", Instance: "i", Address: "127.0.0.1:9", Level: fsm.Level}})
	propose(&fsm.RemoveNode{Head: head(), ID: "gone"})
	gone := add("aaaaaaaaaaad", func(*store.JoinToken) {})
	propose(&fsm.RevokeJoinToken{Head: head(), ID: gone.ID})
	other, err := keys.NewAuthority("secure", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	good := a.JoinToken("abcdefghijkm")
	key := newNodeKey(t)
	before, err := lead.group.store.Digest()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(tok keys.Token) wire.JoinRequest { return asks(t, key, tok, "n2", "i2", "127.0.0.1:1") }
	stolen := ask(good)
	stolen.CSR = asks(t, newNodeKey(t), good, "n2", "i2", "127.0.0.1:1").CSR
	renamed := ask(good)
	renamed.NodeID = "n3"
	bare := ask(good)
	bare.CSR, bare.JoinToken, bare.Proof = nil, "", nil
	member := ask(good)
	member.Member = true
	own := member
	own.NodeID, own.InstanceID = "n1", lead.dir.Instance
	for name, tc := range map[string]struct {
		rq   wire.JoinRequest
		says string
	}{
		"expired": {ask(soon), "has expired"}, "used up": {ask(used), "is used up"},
		"revoked":         {ask(gone), "was revoked"},
		"unknown":         {ask(a.JoinToken("aaaaaaaaaaaz")), "no join token"},
		"another cluster": {ask(other.JoinToken(good.ID)), "secret of the join token"},
		"another key":     {stolen, "secret of the join token"}, "another node": {renamed, "secret of the join token"},
		"no token":    {bare, "has no join token"},
		"as a member": {member, "says that it is a member"}, "as the leader": {own, "says that it is a member"},
	} {
		p := lead.call("POST", "/api/v1/cluster:join", tc.rq).problem()
		if p.Code != job.CodeForbidden || !strings.Contains(p.Message, tc.says) || p.Remedy == "" {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if after, err := lead.group.store.Digest(); err != nil || after != before {
		t.Errorf("the state has changed: %v", err)
	}
	// A good token is not enough: at the address there must be a node with the key.
	p := lead.call("POST", "/api/v1/cluster:join", asks(t, key, good, "n2", "i2", lead.cfg.Listen)).problem()
	if !strings.Contains(p.Message, "another node answers") {
		t.Errorf("%+v", p)
	}
}

// A node that was given the join token of another cluster ends with an error that says so.
func TestJoinTokenOfAnotherCluster(t *testing.T) {
	t.Parallel()
	secure, _ := securely(t)
	c := &cluster{t: t}
	lead := c.begin(secure)
	other, err := keys.NewAuthority("other", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	m := c.newMember("n2", []string{lead.cfg.Listen}, func(cfg *Config) {
		cfg.Keys = KeysConfig{On: true, Token: other.JoinToken("abcdefghijkm")}
	})
	m.open(t)
	err = <-m.done
	m.done = nil
	m.stop()
	var e *job.Error
	if !errors.As(err, &e) || e.Code != job.CodeForbidden || !strings.Contains(e.Message, "another cluster answers there") ||
		!strings.Contains(e.Remedy, "cluster token create") {
		t.Errorf("%v", err)
	}
}

// The answer to a join gets lost, or the node dies before it has written it down: the repetition is recognised by its
// key, uses nothing, and works when the token has expired meanwhile. Another key is told to remove the node first.
func TestJoinIsRepeated(t *testing.T) {
	realTime(t)
	t.Parallel()
	secure, a := securely(t)
	c := &cluster{t: t}
	lead := c.begin(secure)
	stride := 3
	if long {
		stride = 1
	}
	for at := 1; ; at += stride {
		id := fmt.Sprintf("x%d", at)
		var n atomic.Int64
		m := c.newMember(id, []string{lead.cfg.Listen}, secure, func(cfg *Config) {
			cfg.Machine.KeyStep = func(string) error {
				if n.Add(1) >= int64(at) { // and nothing after it
					return faultpoint.ErrCutOff
				}
				return nil
			}
		})
		m.link.ln.Close()
		switch tn, err := Open(m.cfg); {
		case err == nil:
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- tn.Run(ctx) }()
			lead.eventually("it has joined, or died", func() bool {
				return n.Load() >= int64(at) || tn.service.Ready() == nil
			})
			cancel()
			<-ended
		case !errors.Is(err, faultpoint.ErrCutOff):
			t.Fatalf("step %d: %v", at, err)
		}
		if n.Load() < int64(at) { // there are no more steps
			if at < 10 {
				t.Errorf("a join has %d steps", at-1)
			}
			return
		}
		m.cfg.Machine.KeyStep = nil
		m.link = &link{}
		m.open(t)
		m.eventually("it has joined", func() bool { return m.service.Ready() == nil })
		if j, _ := lead.group.store.Info().Security.Join("abcdefghijkm"); j.Used != 1+(at-1)/stride {
			t.Errorf("after a crash at step %d: %+v", at, j)
		}
		row, _ := lead.members.Row(id)
		other := asks(t, newNodeKey(t), a.JoinToken("abcdefghijkm"), id, row.Instance, row.Address)
		p := lead.call("POST", "/api/v1/cluster:join", other).problem()
		if p.Code != job.CodeState || !strings.Contains(p.Remedy, "carillon cluster remove "+id) {
			t.Errorf("a live row and another key: %+v", p)
		}
		c.mustOp("remove", id) // while it lives: it may have a vote by now, and one of two is no majority
		m.stop()
		if at > 20 {
			t.Fatal("a join has no end")
		}
	}
}

// Nodes that were off for a year form a cluster again, and renew their certificates by themselves. So do those with a
// wrong clock.
func TestOffForAYear(t *testing.T) {
	realTime(t)
	t.Parallel()
	secure, _ := securely(t)
	c := startJoined(t, 3, secure)
	for _, shift := range []time.Duration{400 * 24 * time.Hour, -15 * 365 * 24 * time.Hour} {
		for _, m := range c.members {
			m.stop()
		}
		for _, m := range c.members {
			m.clock = &shiftedClock{start: time.Now()}
			m.clock.shift.Store(int64(shift))
			m.cfg.Clock = m.clock
			m.link = &link{}
			m.open(t)
		}
		for _, m := range c.members {
			m.eventually(m.id()+" has a leader and a new certificate", func() bool {
				_, leader := m.group.raft.LeaderWithID()
				return leader != "" && len(voters(m)) == 3 && !m.keys.Due(m.clock.Now())
			})
		}
	}
}

// A voter that lost the keys of the cluster gets them from the others; one whose own key is gone is told what to do.
func TestKeysAreLost(t *testing.T) {
	realTime(t)
	t.Parallel()
	secure, a := securely(t)
	c := startJoined(t, 3, secure)
	m := c.others(c.leader())[0]
	m.stop()
	file := filepath.Join(m.cfg.DataDir, keys.Dir, keys.ClusterFile)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	m.cfg.Keys.From = ""
	m.restart()
	m.eventually("it has the keys again", func() bool { return m.keys.Authority() != nil && exists(file) })
	if m.keys.CAHash() != keys.HashOf(a.Cert) {
		t.Error("it has others")
	}
	m.stop()
	m.cfg.Machine.Listen = nil
	refused := func() {
		t.Helper()
		if n, err := Open(m.cfg); err == nil || !strings.Contains(err.Error(), "lost its key") ||
			!strings.Contains(err.Error(), "remove the node") {
			t.Errorf("%v, %v", n, err)
		}
	}
	// It could sign itself another certificate, which the others would not take.
	if err := os.Remove(filepath.Join(m.cfg.DataDir, keys.Dir, keys.NodeFile)); err != nil {
		t.Fatal(err)
	}
	refused()
	if exists(filepath.Join(m.cfg.DataDir, keys.Dir, keys.NodeFile)) {
		t.Error("it has made itself a key")
	}
	if err := os.RemoveAll(filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	refused()
}

// The only voter has the keys of the cluster and not its own: a recovery gives it another one, and it goes on as it was.
func TestTheOnlyVoterLostItsKey(t *testing.T) {
	realTime(t)
	t.Parallel()
	secure, a := securely(t)
	c := &cluster{t: t}
	m := c.begin(secure)
	m.stop()
	if err := os.Remove(filepath.Join(m.cfg.DataDir, keys.Dir, keys.NodeFile)); err != nil {
		t.Fatal(err)
	}
	m.link = &link{}
	m.cfg.Machine.Listen = nil
	if n, err := Open(m.cfg); err == nil || !strings.Contains(err.Error(), "cluster recover") {
		t.Fatalf("%v, %v", n, err)
	}
	r, err := datadir.Recover(m.cfg.DataDir, map[string]string{m.id(): m.cfg.Listen}, quiet)
	if err != nil || !r.NewKey || r.KeysLost {
		t.Fatalf("%+v, %v", r, err)
	}
	m.open(t)
	m.eventually("it leads", func() bool { return m.service.Ready() == nil })
	if m.keys.CAHash() != keys.HashOf(a.Cert) {
		t.Error("it has another CA")
	}
	m.eventually("it is known by its new key", func() bool {
		row, ok := m.members.Row(m.id())
		key, err := m.keys.Key()
		if err != nil {
			t.Fatal(err)
		}
		hash, err := keys.KeyHash(key.Public())
		return ok && err == nil && row.Key == hash.String()
	})
}

// Who was removed is cut off at once: its connections end, and what it asks for is refused.
func TestRemovedNodeIsCutOff(t *testing.T) {
	realTime(t)
	t.Parallel()
	secure, _ := securely(t)
	c := startJoined(t, 3, secure)
	lead := c.leader()
	out := c.others(lead)[0]
	rest := c.others(out)
	c.mustOp("remove", out.id())
	for _, m := range rest {
		m.eventually("no connection of it is open", func() bool {
			r, _ := m.members.Row(out.id())
			return r.Removed && !m.group.trans.Connected(out.id())
		})
		dial := transport.NodeDial(out.keys, out.cfg.Machine.Dialer(time.Second, 0), nil)
		hc := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
		for path, want := range map[string]int{membership.PeerPath: 403, membership.KeysPath: 403,
			"/api/v1/jobs": 403} {
			res, err := hc.Get("http://" + m.cfg.Listen + path)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != want {
				t.Errorf("%s: %s", path, res.Status)
			}
		}
	}
	out.eventually("it knows", out.members.Removed)
	c.awaitGone(rest, out.id())
}

func (c *cluster) awaitGone(rest []*member, id string) {
	c.t.Helper()
	for _, m := range rest {
		m.eventually(id+" is gone", func() bool { return len(voters(m)) == len(rest) })
	}
}

// The mode is committed with the cluster. A node that is started otherwise says what to do, and changes nothing.
func TestOtherMode(t *testing.T) {
	t.Parallel()
	secure, _ := securely(t)
	refused := func(cfg Config, says string) {
		t.Helper()
		n, err := Open(cfg)
		if err == nil {
			n.Close()
			t.Fatal("it was opened")
		}
		if !strings.Contains(err.Error(), says) {
			t.Error(err)
		}
	}
	plain := start(t, t.TempDir())
	id := plain.group.store.Info().ClusterID
	plain.stop()
	cfg := plain.cfg
	cfg.Keys.On = true
	refused(cfg, "carillon cluster init --data-dir")
	secure(&cfg)
	refused(cfg, "and the data directory to cluster "+id)

	safe := start(t, t.TempDir(), secure)
	safe.stop()
	cfg = safe.cfg
	cfg.Keys = KeysConfig{}
	refused(cfg, "start the node with --secure")

	cfg = testConfig(t, t.TempDir())
	cfg.Bootstrap, cfg.Join, cfg.Keys.On = false, []string{"127.0.0.1:1"}, true
	refused(cfg, "carillon cluster token create")
}

// A plain cluster becomes a secure one with keys that are made for it, after a stop of all its nodes.
func TestPlainClusterBecomesSecure(t *testing.T) {
	t.Parallel()
	c := startJoined(t, 3)
	id := c.leader().group.store.Info().ClusterID
	for _, m := range c.members {
		m.stop()
	}
	a, err := keys.NewAuthority(id, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "keys")
	if err := a.Write(dir, nil); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.members {
		m.cfg.Keys = KeysConfig{On: true, From: dir}
		m.link = &link{}
		m.open(t)
	}
	c.awaitVoters(3)
	c.sameState()
	if got := c.leader().group.store.Info().Security.CA; got != keys.HashOf(a.Cert).String() {
		t.Errorf("the CA is %q", got)
	}
}
