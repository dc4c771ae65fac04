package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/transport"
)

// This file is what node/formation needs of the membership of a node that was started with --cluster.

// Former gets a node into the cluster of its list, and watches what the addresses of that belong to.
type Former interface {
	Run(ctx context.Context) error
	Look(ctx context.Context)
	Watch(ctx context.Context)
}

// Form is called before the node runs, if it was started with --cluster.
func (m *Members) Form(f Former) { m.o.Former = f }

// said is a text with what to do about it.
type said struct{ text, remedy string }

// Introduce is the row that this node should have.
func (m *Members) Introduce() store.Node { return m.self() }

// Ask asks nodes of a cluster to take this one in.
func (m *Members) Ask(ctx context.Context, addrs []string) error { return m.ask(ctx, addrs) }

// Identity is what the data directory says about the cluster.
func (m *Members) Identity() datadir.ClusterIdentity {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.identity
}

// SaveIdentity changes it. then, if it is not nil, is called when that is on the disk, and before another node may hear
// of it.
func (m *Members) SaveIdentity(change func(*datadir.ClusterIdentity), then func() error) error {
	m.saving.Lock()
	defer m.saving.Unlock()
	h := m.Identity()
	change(&h)
	err := m.o.Save(h)
	if err == nil && then != nil {
		err = then()
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.identity = h
	return nil
}

// Waits says why this node is not part of a cluster yet.
func (m *Members) Waits(text, remedy string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits = said{text, remedy}
}

// Mentions says what is wrong with the addresses of --cluster; "": nothing.
func (m *Members) Mentions(text, remedy string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mentions = said{text, remedy}
}

// Mentioned is what Mentions was told.
func (m *Members) Mentioned() (text, remedy string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mentions.text, m.mentions.remedy
}

// StandStill ends this node's part in its cluster until it is started again.
func (m *Members) StandStill(why *job.Error) {
	m.o.Standing.StandStill(datadir.Stopped{Reason: datadir.StoppedOtherCluster, Text: why.Message, Remedy: why.Remedy,
		At: job.Instant(m.now())})
}

// Get asks another node for a path.
func (m *Members) Get(ctx context.Context, addr, path string, out any) error {
	rq, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return err
	}
	rq.Header.Set(forward.HeaderForwarded, m.id())
	resp, err := m.http.Transport.RoundTrip(rq)
	if err != nil {
		return transport.Plainly(err, whoTimeout)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return transport.Plainly(err, whoTimeout)
	case resp.StatusCode >= 300:
		return errors.New("it answers " + resp.Status)
	}
	return json.Unmarshal(data, out)
}

// putFounders writes the rows of the nodes that the cluster was founded with, before it does anything else: raft has
// them as voters, and a row says which data directory has the vote.
func (m *Members) putFounders(prop forward.Proposer, term uint64) error {
	f := m.Identity().Formation
	if f == nil || m.Cluster().Epoch != 0 {
		return nil
	}
	for _, row := range f.Members {
		if _, known := m.Row(row.ID); known || row.ID == m.id() {
			continue
		}
		reply, err := prop.Propose(&fsm.PutNode{Head: m.headBeforeStamp(term), Node: row}).Wait()
		if err == nil && reply.Items[0].Code != fsm.CodeOK {
			err = errors.New(reply.Items[0].Text)
		}
		if err != nil {
			return fmt.Errorf("write the row of node %s: %w", row.ID, err)
		}
	}
	return nil
}

// checkFounder refuses a node without a row that is not the one that the cluster was founded with.
func (m *Members) checkFounder(h transport.Hello) error {
	if m.o.Of != nil {
		return m.o.Of.Control.checkFounder(h)
	}
	f := m.Identity().Formation
	if f == nil {
		return nil
	}
	for _, row := range f.Members {
		if row.ID == h.NodeID && row.Instance != h.InstanceID {
			return fmt.Errorf("node %s has another data directory than when the cluster was formed: empty its data "+
				"directory, and start it again", h.NodeID)
		}
	}
	return nil
}

// unformed is why a node with --cluster is not part of one; nil: that has another reason.
func (m *Members) unformed() error {
	m.mu.Lock()
	w := m.waits
	m.mu.Unlock()
	if w.text == "" {
		return nil
	}
	return job.Errorf(job.CodeNotReady, w.remedy, "this node is not part of a cluster yet: %s", w.text)
}
