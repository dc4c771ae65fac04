package membership

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
)

// This file is how the keys of a secure cluster get to those that vote, and how certificates are renewed.

type keysMessage struct {
	Keys  []byte `json:"keys,omitempty"`
	Nonce []byte `json:"nonce,omitempty"`
	Proof []byte `json:"proof,omitempty"`
	Vote  uint64 `json:"vote,omitempty"` // of the receiver's row, which is to vote, or does
}

// handKeys gives a node that is to vote what it takes to lead, and has it prove that it has it.
func (m *Members) handKeys(ctx context.Context, row store.Node) error {
	if m.o.Keys == nil {
		return nil
	}
	if !m.o.Keys.Whole() {
		return errNoKeys
	}
	if err := m.give(ctx, row, m.o.Keys.Authorities()); err != nil {
		return fmt.Errorf("hand the keys to node %s before it votes: %w", row.ID, err)
	}
	return nil
}

// give hands keys to one data directory of a member that votes or is to vote. It proves that it wrote them down, and
// has certified itself as a voter then.
func (m *Members) give(ctx context.Context, row store.Node, all keys.Authorities) error {
	data, err := all.Encode()
	if err != nil {
		return err
	}
	msg := keysMessage{Keys: data, Nonce: []byte(rand.Text()), Vote: row.Vote}
	var answer keysMessage
	if err := m.internal(ctx, http.MethodPost, row, KeysPath, msg, &answer); err != nil {
		return err
	}
	if !hmac.Equal(answer.Proof, all.Shows(msg.Nonce, row.ID, row.Instance)) {
		return errors.New("it did not prove that it has them")
	}
	return nil
}

// internal asks one data directory of another member.
func (m *Members) internal(ctx context.Context, method string, to store.Node, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	t := httpClient(transport.InstanceDial(m.o.Keys, m.o.Raw(whoTimeout, 0), to.ID, to.Instance, to.Key))
	defer t.CloseIdleConnections()
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	addr := cmp.Or(string(m.where(to.ID)), to.Address)
	rq, err := http.NewRequestWithContext(ctx, method, "http://"+addr+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	rq.Header.Set(forward.HeaderForwarded, m.id())
	rq.Header.Set("Content-Type", "application/json")
	resp, err := t.Do(rq)
	if err != nil {
		return transport.Plainly(err, whoTimeout)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, MaxMessage))
	if err != nil {
		return transport.Plainly(err, whoTimeout)
	}
	if resp.StatusCode >= 300 {
		var p struct {
			Code   job.Code `json:"code"`
			Detail string   `json:"detail"`
		}
		if json.Unmarshal(data, &p) == nil && p.Code != "" {
			return job.Errorf(p.Code, "", "%s", p.Detail)
		}
		return errors.New(resp.Status)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}

// peer is the member behind a request, with its row.
func (m *Members) peer(r *http.Request) (store.Node, error) {
	refused := job.Errorf(job.CodeForbidden, "", "this is only for members with a certificate")
	p, ok := keys.PeerOf(r.Context())
	if m.o.Keys == nil || !ok {
		return store.Node{}, refused
	}
	row, ok := m.Row(p.Node)
	if !ok || row.Removed || row.Instance != p.Instance || row.Key != "" && row.Key != p.Key.String() {
		return store.Node{}, refused
	}
	return row, nil
}

func readInternal(w http.ResponseWriter, r *http.Request, into any) bool {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxMessage))
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		api.WriteError(w, job.Errorf(job.CodeMalformed, "", "%v", err))
	}
	return err == nil
}

func writeInternal(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) //nolint:errcheck // the asker hung up
}

// votes says whether a node has a vote.
func (m *Members) votes(id string) bool {
	s, in := FindServer(m.Configured(), id)
	return in && s.Suffrage == raft.Voter
}

// ServeKeys takes the keys from a leader that is about to let this node vote, or gives them to a voter that lost them.
func (m *Members) ServeKeys(w http.ResponseWriter, r *http.Request) {
	row, err := m.peer(r)
	if p, ok := keys.PeerOf(r.Context()); err != nil && ok && r.Method == http.MethodPost && m.Belongs(p) {
		err = nil // this node's rows may not have come yet; the keys say themselves whether they are the right ones
	}
	switch {
	case err != nil:
		api.WriteError(w, err)
	case r.Method == http.MethodPost:
		m.takeKeys(w, r)
	case !m.votes(row.ID):
		api.WriteError(w, job.Errorf(job.CodeForbidden, "", "node %s has no vote", row.ID))
	default:
		all := m.o.Keys.Authorities()
		if all.Current == nil {
			api.WriteError(w, job.Errorf(job.CodeNotReady, "", "node %s has no keys either", m.id()))
			return
		}
		data, err := all.Encode()
		if err != nil {
			api.WriteError(w, err)
			return
		}
		m.o.Logger.Info("keys handed to a voter that had lost them", "node", row.ID)
		writeInternal(w, keysMessage{Keys: data})
	}
}

func (m *Members) takeKeys(w http.ResponseWriter, r *http.Request) {
	var msg keysMessage
	if !readInternal(w, r, &msg) {
		return
	}
	all, err := m.keep(msg.Keys)
	if id, _ := m.o.Keys.Identity(); err == nil && id.Voter < msg.Vote {
		m.followCA()
		id.Voter = msg.Vote
		err = m.certify(id)
	}
	if err != nil {
		api.WriteError(w, err)
		return
	}
	writeInternal(w, keysMessage{Proof: all.Shows(msg.Nonce, m.id(), m.o.Instance)})
}

// keep writes down what this node lacks of keys that were handed to it, and answers with those. Only who has the CA's
// key can make keys that fit to the CA; and the ones that are to follow count when the state names them, not before.
func (m *Members) keep(data []byte) (keys.Authorities, error) {
	var none keys.Authorities
	all, err := keys.DecodeAuthorities(data)
	if err != nil {
		return none, job.Errorf(job.CodeMalformed, "", "%v", err)
	}
	c := m.committedCAs()
	ca := keys.HashOf(all.Current.Cert)
	if !m.o.Keys.Knows(ca) && ca != c.CA {
		return none, job.Errorf(job.CodeForbidden, "", "the keys are those of another cluster")
	}
	had := m.o.Keys.Authorities()
	next, _ := keys.ParseHash(m.rotation().CA) //nolint:errcheck // no rotation: no hash
	if err := m.o.Keys.Merge(all, c.CA, next); err != nil {
		return none, job.Errorf(job.CodeUnavailable, "free some space, or repair the data directory",
			"the keys cannot be written: %v", err)
	}
	have := m.o.Keys.Authorities()
	if had.Current == nil {
		m.o.Logger.Info("keys of the cluster received")
	}
	for _, a := range []*keys.Authority{all.Current, all.Next} {
		if a != nil && have.Of(keys.HashOf(a.Cert)) == nil {
			return none, job.Errorf(job.CodeState, "try again", "node %s has other keys", m.id())
		}
	}
	return all, nil
}

// tend looks after this node's keys: a voter that lost those of the cluster, or was away when they were replaced, asks
// the others for them, and a certificate is renewed at half of its time, or when its CA is replaced.
func (m *Members) tend(ctx context.Context) {
	if m.o.Keys == nil {
		return
	}
	moved := m.followCA()
	if !moved && m.rotation().CA == "" && !m.o.Keys.Superseded() && time.Since(m.tended) < m.o.Pace(tendEvery) {
		return
	}
	m.tended = time.Now()
	if !m.o.Keys.Whole() && m.votes(m.id()) {
		m.fetchKeys(ctx)
	}
	row, ok := m.Row(m.id())
	if !ok || row.Removed || row.Instance != m.o.Instance ||
		!m.o.Keys.Due(m.o.Clock.Now()) && m.o.Keys.Covers(hostOf(m.address())) && !m.unmarked(row) {
		return
	}
	if err := m.renew(ctx, row); err != nil && ctx.Err() == nil {
		m.log("certificate not renewed; trying again", "ends", m.o.Keys.NotAfter(), "error", err)
		return
	}
	m.o.Logger.Info("certificate renewed", event.CertificateRenewed, "ends", m.o.Keys.NotAfter())
}

// completeKeys gets a new leader the keys that it lacks, before it hands out anything: a run whose secrets cannot be
// opened ends for good. A leader that gets them from no voter goes on without.
func (m *Members) completeKeys() {
	if m.o.Keys == nil {
		return
	}
	if m.followCA(); m.o.Keys.Whole() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.o.Pace(completeTimeout))
	defer cancel()
	m.fetchKeys(ctx)
}

// fetchKeys asks the other voters for the keys that this one lost.
func (m *Members) fetchKeys(ctx context.Context) {
	err := errors.New("no other voter")
	for _, s := range m.Configured() {
		row, ok := m.Row(replica.Node(s.ID))
		if !ok || row.ID == m.id() || s.Suffrage != raft.Voter {
			continue
		}
		var msg keysMessage
		if err = m.internal(ctx, http.MethodGet, row, KeysPath, keysMessage{}, &msg); err == nil {
			if _, err = m.keep(msg.Keys); err == nil {
				if m.followCA(); m.o.Keys.Whole() {
					return
				}
				err = fmt.Errorf("node %s does not have all of them either", row.ID)
			}
		}
	}
	if ctx.Err() == nil {
		m.log("this voter has lost the keys of the cluster, and no other voter can provide them: put "+keys.ClusterFile+
			" back into its "+keys.Dir+" directory", "error", err)
	}
}

// unmarked says that this node may vote, and has no certificate yet that says so although it could sign one.
func (m *Members) unmarked(row store.Node) bool {
	id, _ := m.o.Keys.Identity()
	return !row.Standby && id.Voter < row.Vote && m.o.Keys.Whole()
}

// certify has this node sign its own certificate. One that says it is a voter's is not replaced by one that says so for
// an earlier entry.
func (m *Members) certify(id keys.Identity) error {
	m.certifying.Lock()
	defer m.certifying.Unlock()
	have, _ := m.o.Keys.Identity()
	id.Voter = max(id.Voter, have.Voter)
	if err := m.o.Keys.Certify(id, hostOf(m.address()), m.o.Clock.Now()); err != nil {
		return err
	}
	if id.Voter > have.Voter {
		m.o.Recheck() // connections that are open have shown the one before
	}
	return nil
}

// renew gets this node a new certificate: a voter signs its own, and no other node says in one that it votes.
func (m *Members) renew(ctx context.Context, row store.Node) error {
	cluster := m.Cluster().ID
	switch {
	case m.o.Keys.Whole():
		id := keys.Identity{Cluster: cluster, Node: row.ID, Instance: row.Instance, Joined: row.Index}
		if !row.Standby {
			id.Voter = row.Vote
		}
		return m.certify(id)
	case m.votes(m.id()):
		return errors.New("this voter signs its own certificate, and waits for the keys of the cluster")
	}
	key, err := m.o.Keys.Key()
	if err != nil {
		return err
	}
	csr, err := keys.NewRequest(key)
	if err != nil {
		return err
	}
	_, leader := m.raft.Load().LeaderWithID()
	to, ok := m.Row(replica.Node(leader))
	if !ok {
		return forward.ErrNoLeader()
	}
	var r wire.JoinReply
	if err := m.internal(ctx, http.MethodPost, to, CertificatePath, wire.JoinRequest{CSR: csr}, &r); err != nil {
		return err
	}
	return m.enrolled(r)
}

// ServeCertificate renews the certificate of a member.
func (m *Members) ServeCertificate(w http.ResponseWriter, r *http.Request) {
	row, err := m.peer(r)
	if err != nil {
		api.WriteError(w, err)
		return
	}
	var rq wire.JoinRequest
	if !readInternal(w, r, &rq) {
		return
	}
	pub, err := keys.ParseRequest(rq.CSR)
	if err != nil {
		api.WriteError(w, job.Invalid("csr", "", "%v", err))
		return
	}
	key, err := keys.KeyHash(pub)
	if err != nil || row.Key != "" && row.Key != key.String() {
		api.WriteError(w, job.Errorf(job.CodeForbidden, "", "node %s joined with another key", row.ID))
		return
	}
	cluster := m.Cluster().ID
	reply, err := m.certified(&admission{pub: pub, key: key, host: hostOf(row.Address),
		id: keys.Identity{Cluster: cluster, Node: row.ID, Instance: row.Instance}}, row)
	if err != nil {
		api.WriteError(w, err)
		return
	}
	writeInternal(w, reply)
}

// selfRequest is what a leader that stepped down for it asks of the next one.
type selfRequest struct {
	Verb string `json:"verb"`
}

// ServeSelf does to a member what it asks for itself. It is recorded as asked for by that node: who asked the node is
// only its word.
func (m *Members) ServeSelf(w http.ResponseWriter, r *http.Request) {
	row, err := m.peer(r)
	if err != nil {
		api.WriteError(w, err)
		return
	}
	var rq selfRequest
	if !readInternal(w, r, &rq) {
		return
	}
	ctx := api.WithCaller(r.Context(), api.Caller{Name: "node " + row.ID, Address: hostOf(r.RemoteAddr)})
	switch rq.Verb {
	case verbRemove:
		_, err = m.Remove(ctx, row.ID)
	case verbDemote:
		err = m.Demote(ctx, row.ID)
	default:
		err = job.Errorf(job.CodeMalformed, "", "there is no verb %q", rq.Verb)
	}
	if err != nil {
		api.WriteError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
