package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

// This file is how a secure cluster replaces its CA and its cluster key while it works.
//
// The leader makes the new ones and gives them to a majority of the voters before anything is committed: whichever node
// leads afterwards has them, or gets them from a voter that has. The log then tells every member the new CA's
// certificate. Each gets itself a certificate from it, and is confirmed by the leader when it shows that; when all are,
// the state has the new CA. Nothing is done that the next leader, or a member that was off, could not go on with.
//
// A member is known by the key that it joined with, whichever CA its certificate is from. So none is locked out,
// however long it was off.

// committedCAs are the CAs as the state has them.
func (m *Members) committedCAs() keys.Committed {
	s := m.o.Store.Info().Security
	c := keys.Committed{Cert: s.Cert}
	c.CA, _ = keys.ParseHash(s.CA) //nolint:errcheck // checked when it was committed; none: zero
	for _, f := range s.Former {
		c.Former = append(c.Former, keys.Succeeded{Cert: f.Cert, Cross: f.Cross, Aborted: f.Aborted})
	}
	if r := s.Rotation; r != nil {
		c.Next, c.Cross, c.Distrust = r.Cert, r.Cross, r.Distrust
	}
	return c
}

// rotation is the one that is under way; zero: none is.
func (m *Members) rotation() store.Rotation {
	if r := m.o.Store.Info().Security.Rotation; r != nil {
		return *r
	}
	return store.Rotation{}
}

// followCA makes this node's keys go by what was committed.
func (m *Members) followCA() (moved bool) {
	if m.o.Keys == nil || m.o.Store.Info().Security.CA == "" {
		return false
	}
	newest := false
	if r := m.raft.Load(); r != nil {
		_, leader := r.LeaderWithID()
		commit := r.CommitIndex()
		newest = leader != "" && commit > 0 && m.o.Store.Counters().Index >= commit
	}
	c := m.committedCAs()
	moved, err := m.o.Keys.Follow(c, newest)
	if err == nil && m.o.Keys.Knows(c.CA) {
		err = m.noteCA(c.CA.String())
	}
	if err != nil {
		m.log("keys not written; trying again", "error", err)
	}
	if moved {
		m.o.Logger.Info("trust in CAs changed", "ca", m.o.Store.Info().Security.CA, "rotation", m.rotation().CA)
		m.http.CloseIdleConnections()
		m.o.Recheck()
	}
	return moved
}

// noteCA keeps in the data directory which CA its keys must know.
func (m *Members) noteCA(ca string) error {
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	h := m.identity
	m.mu.Unlock()
	if h.CA == ca || h.CA == "" {
		return nil
	}
	h.CA = ca
	if err := m.o.Save(h); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.identity.CA = ca
	return nil
}

// recognise says whether a member joined with a key.
func (m *Members) recognise(id keys.Identity, key keys.Hash) bool {
	r, ok := m.Row(id.Node)
	return ok && !r.Removed && r.Instance == id.Instance && r.Key != "" && r.Key == key.String()
}

// vouched refuses a peer that only a CA vouches for which is no longer trusted, and one that has not the key that its
// data directory joined with: who has a stolen CA's key can make certificates, but not the keys of members.
func (m *Members) vouched(p keys.Peer) error {
	if m.o.Keys == nil || p.Identity == (keys.Identity{}) {
		return nil
	}
	r, ok := m.Row(p.Node)
	switch {
	case ok && r.Instance == p.Instance && r.Key != "" && r.Key != p.Key.String():
		return fmt.Errorf("node %s uses another key than the one that its data directory joined with: put its keys "+
			"back, or remove the node, empty its data directory and let it rejoin", p.Node)
	case m.o.Keys.Trusts(p.CA) || m.recognise(p.Identity, p.Key):
		return nil
	}
	return fmt.Errorf("the certificate of node %s is from a CA that is no longer trusted: remove the node, empty "+
		"its data directory and let it rejoin", p.Node)
}

// ownCAs are the CA that this node's certificate is from, and those whose keys it has.
func (m *Members) ownCAs() (ca string, holds []string) {
	if m.o.Keys == nil {
		return "", nil
	}
	all := m.o.Keys.Authorities()
	for _, a := range []*keys.Authority{all.Current, all.Next} {
		if a != nil {
			holds = append(holds, keys.HashOf(a.Cert).String())
		}
	}
	return m.o.Keys.CAHash().String(), holds
}

// PrepareRotation makes a new CA and cluster key, and gives them to a majority of the voters. They count for nothing
// before they are committed. replaces is the rotation under way that they replace, because its keys are lost or it does
// not distrust the old CA as this one has to. Otherwise one that is under way is not begun again: it is the answer.
func (m *Members) PrepareRotation(ctx context.Context, distrust bool) (r store.Rotation, replaces string, err error) {
	e, err := m.o.Tracker.Leading()
	if err != nil {
		return r, "", err
	}
	if m.o.Keys == nil {
		return r, "", job.Errorf(job.CodeState, "make it secure first; see \"From plain to secure\" in docs/secure.md",
			"the cluster is plain, and has no CA")
	}
	if err := m.lock(ctx); err != nil {
		return r, "", err
	}
	defer m.unlock()
	m.followCA()
	if now := m.rotation(); now.CA != "" {
		if !m.o.Keys.Whole() {
			m.fetchKeys(ctx)
		}
		// Whom the old CA is taken from may have the keys of a rotation that trusts it.
		if m.o.Keys.Whole() && (now.Distrust || !distrust) {
			return now, "", nil
		}
		replaces, distrust = now.CA, distrust || now.Distrust
	}
	old := m.o.Keys.Authority()
	if old == nil {
		return r, "", errNoKeys
	}
	// Voters remember few former cluster keys: none may be forgotten that a secret is sealed with.
	if err := m.reseal(ctx, e); err != nil {
		return r, "", err
	}
	cluster := m.Cluster().ID
	next, err := keys.NewAuthority(cluster, m.o.Clock.Now())
	if err != nil {
		return r, "", err
	}
	r = store.Rotation{CA: keys.HashOf(next.Cert).String(), Cert: next.Cert.Raw, Old: old.Cert.Raw, Distrust: distrust}
	if !distrust {
		if r.Cross, err = old.Cross(next.Cert); err != nil {
			return r, "", err
		}
	}
	if err := m.o.Keys.Prepare(next); err != nil {
		return r, "", job.Errorf(job.CodeUnavailable, "free some space, or repair the data directory",
			"the new keys cannot be written: %v", err)
	}
	if err := m.o.Step.At("rotation prepared"); err != nil {
		return r, "", err
	}
	if err := m.spread(ctx, distrust); err != nil {
		return r, "", err
	}
	return r, replaces, m.o.Step.At("rotation spread")
}

// spread gives the keys of this node to the other voters, a majority at least.
func (m *Members) spread(ctx context.Context, distrust bool) error {
	all := m.o.Keys.Authorities()
	voters, have := 0, 0
	var missing []string
	for _, s := range m.Configured() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		id := replica.Node(s.ID)
		if id == m.id() {
			have++
			continue
		}
		row, ok := m.Row(id)
		err := errors.New("it has no row yet")
		switch {
		case ok && !row.Removed && row.Key == "" && distrust:
			err = errors.New("the key that it joined with is not known yet")
		case ok && !row.Removed:
			err = m.give(ctx, row, all)
		}
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s (%v)", id, err))
			continue
		}
		have++
	}
	if have <= voters/2 {
		return job.Errorf(job.CodeUnavailable, "bring them back, and try again",
			"the new keys must reach a majority of the voters before they count; they have not reached %s",
			strings.Join(missing, ", "))
	}
	return nil
}

// settleRotation makes a step towards the end of the rotation that is under way. Every step may be repeated, by this
// leader or the next.
func (m *Members) settleRotation(ctx context.Context, e *forward.Epoch) error {
	if m.o.Keys == nil {
		return nil
	}
	m.followCA()
	if m.o.Keys.Whole() { // otherwise it asks the others first
		if err := m.reseal(ctx, e); err != nil {
			return fmt.Errorf("secrets are not sealed with the new cluster key yet: %w", err)
		}
	}
	r := m.rotation()
	if r.CA == "" {
		return nil
	}
	rows, err := m.Rows()
	if err != nil {
		return err
	}
	if !m.o.Keys.Whole() {
		return errors.New("this leader does not have the new keys, and asks the other voters for them")
	}
	all := m.o.Keys.Authorities()
	for _, row := range rows {
		if r.Has(row.ID, row.Instance) {
			continue
		}
		ca, holds, known := m.shows(row)
		if !known {
			continue
		}
		if m.votes(row.ID) && !slices.Contains(holds, r.CA) {
			if err := m.give(ctx, row, all); err != nil {
				m.log("new keys not handed over; trying again", "node", row.ID, "error", err)
			}
			continue
		}
		if ca != r.CA {
			continue // it gets itself a certificate
		}
		if err := m.o.Step.At("rotation confirm " + row.ID); err != nil {
			return err
		}
		o, err := m.propose(ctx, e, &fsm.ConfirmCA{Head: m.head(e), CA: r.CA, ID: row.ID, Instance: row.Instance})
		if err != nil {
			return err
		}
		if o.Code == fsm.CodeOK {
			m.o.Logger.Info("member has a certificate of the new CA", "node", row.ID, "ca", r.CA)
		}
	}
	if m.followCA(); m.rotation().CA == "" && m.o.Store.Info().Security.CA == r.CA {
		m.o.Logger.Info("CA replaced", "ca", r.CA)
	}
	return nil
}

// maxReseals is more than the batches of all secrets that there may be: what does not end by then never does.
const maxReseals = 2 * fsm.MaxSecrets

// reseal has secrets that were sealed with a replaced cluster key sealed with the one that counts, a batch at a time. A
// value that was set or deleted meanwhile is left alone by the state machine, and is looked at again.
func (m *Members) reseal(ctx context.Context, e *forward.Epoch) error {
	total := 0
	for range maxReseals {
		items, err := m.o.Outdated()
		if err != nil {
			return err
		}
		if len(items) == 0 {
			if total > 0 {
				m.o.Logger.Info("secrets sealed with the new cluster key", "count", total)
			}
			return nil
		}
		if err := m.o.Step.At("secrets resealed"); err != nil {
			return err
		}
		head := m.head(e)
		head.By = &fsm.Caller{Name: "leader " + m.id()}
		if _, err := m.propose(ctx, e, &fsm.ResealSecrets{Head: head, Items: items}); err != nil {
			return err
		}
		total += len(items)
	}
	return errors.New("there are more than there can be")
}

// shows is what a member said last of its certificate and keys.
func (m *Members) shows(row store.Node) (ca string, holds []string, known bool) {
	if row.ID == m.id() {
		ca, holds = m.ownCAs()
		return ca, holds, true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[row.ID]
	if p == nil || p.problem != "" || p.seen.at.IsZero() || p.seen.InstanceID != row.Instance {
		return "", nil, false
	}
	return p.seen.CA, p.seen.Holds, true
}

// Rotation is what the state says of the CA, and who has not confirmed the rotation under way.
func (m *Members) Rotation() wire.Rotation {
	s := m.o.Store.Info().Security
	out := wire.Rotation{CA: s.CA}
	r := s.Rotation
	if r == nil {
		return out
	}
	out.Next, out.DistrustOld = r.CA, r.Distrust
	out.StartedAt, out.StartedBy = job.Instant(r.StartedAt), r.StartedBy
	for _, c := range r.Confirmed {
		out.Confirmed = append(out.Confirmed, c.Node)
	}
	rows, err := m.Rows()
	if err != nil {
		return out
	}
	for _, row := range rows {
		if !r.Has(row.ID, row.Instance) {
			out.Missing = append(out.Missing, row.ID)
		}
	}
	slices.Sort(out.Missing)
	return out
}

// Rotating is the rotation that is under way, nil if none is.
func (m *Members) Rotating() *wire.Rotation {
	if r := m.Rotation(); r.Next != "" {
		return &r
	}
	return nil
}

// KeyTroubles say that the keys of the cluster are lost, or whom a rotation waits for.
func (m *Members) KeyTroubles(s *wire.Status) (out []wire.Trouble) {
	if m.o.Keys != nil && !m.o.Keys.Whole() {
		out = append(out, wire.Trouble{Code: wire.TroubleKeys, Node: m.id(),
			Text: "the leader " + m.id() + " has lost the keys of the cluster, and no other voter can provide them: " +
				"no node can join, no certificate can be renewed, and no secret can be read",
			Remedy: "put " + keys.Dir + "/" + keys.ClusterFile + " back on one voter and restart it; `carillon " +
				"cluster init --from-backup` extracts it from a backup with keys"})
	}
	if s.Rotation == nil {
		return out
	}
	for _, mb := range s.Members {
		if mb.State != "unreachable" || !slices.Contains(s.Rotation.Missing, mb.ID) {
			continue
		}
		remedy := "start it, remove it with `carillon cluster remove " + mb.ID +
			"`, or give up the rotation with `carillon cluster rotate-ca --abort`"
		if s.Rotation.DistrustOld {
			remedy = "start it, or remove it with `carillon cluster remove " + mb.ID + "`"
		}
		out = append(out, wire.Trouble{Code: wire.TroubleRotation, Node: mb.ID, Since: s.Rotation.StartedAt,
			Text: "the rotation of the CA waits for node " + mb.ID, Remedy: remedy})
	}
	return out
}
