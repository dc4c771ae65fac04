package membership

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/transport"
)

// This file is how members say what they are: where they are, which version, which feature level. The leader believes
// it of the connection that it comes by, so no node passes it on: one that does not lead says who does, and the member
// dials that itself.

// errNoMember is the leader's word that this data directory belongs to no member any more.
var errNoMember = errors.New("this node is no longer a member of the cluster")

// announced is the answer. That a node is no member is said by it and not by a status, which a node that does not know
// the path has too.
type announced struct {
	Removed bool `json:"removed,omitempty"`
}

// announce says to the leader what this node is.
func (m *Members) announce(ctx context.Context) error {
	rq := m.Request()
	if m.o.Tracker.Epoch() != nil {
		ctx, cancel := context.WithTimeout(ctx, joinTimeout)
		defer cancel()
		_, err := m.admit(ctx, rq, nil, m.ownKey(), true)
		return err
	}
	var todo []string
	add := func(a string) {
		if a != "" && a != m.address() && !slices.Contains(todo, a) {
			todo = append(todo, a)
		}
	}
	add(m.o.Tracker.Addr())
	rows, err := m.Rows()
	if err != nil {
		return err
	}
	for id, r := range rows {
		add(m.Override(id))
		add(r.Address)
	}
	for _, a := range m.o.Join {
		add(a)
	}
	if f := m.Identity().Formation; f != nil {
		for _, r := range f.Members {
			add(r.Address)
		}
	}
	body, err := json.Marshal(rq)
	if err != nil {
		return err
	}
	return m.search(ctx, todo, func(ctx context.Context, addr string) (leader string, err error) {
		return m.tell(ctx, addr, body)
	})
}

// tell says it to one node, which may know a better one.
func (m *Members) tell(ctx context.Context, addr string, body []byte) (leader string, _ error) {
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+AnnouncePath, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	hr.Header.Set(forward.HeaderForwarded, m.id())
	hr.Header.Set("Content-Type", "application/json")
	resp, err := m.http.Do(hr)
	if err != nil {
		return "", transport.Plainly(err, whoTimeout)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, MaxMessage))
	if err != nil {
		return "", transport.Plainly(err, whoTimeout)
	}
	if resp.StatusCode >= 300 {
		var p wire.Problem
		if json.Unmarshal(data, &p) != nil || p.Code == "" {
			return "", errors.New(resp.Status)
		}
		return resp.Header.Get(wire.LeaderHeader), &p.Error
	}
	var a announced
	if err := json.Unmarshal(data, &a); err != nil {
		return "", err
	}
	if a.Removed {
		return "", errNoMember
	}
	return "", nil
}

// ServeAnnounce hears what a member says of itself. On a secure cluster the member is the one whose certificate the
// connection shows.
func (m *Members) ServeAnnounce(w http.ResponseWriter, r *http.Request) {
	if _, err := m.o.Tracker.Leading(); err != nil {
		if a := m.o.Tracker.Addr(); a != "" {
			w.Header().Set(wire.LeaderHeader, a)
		}
		api.WriteError(w, err)
		return
	}
	var rq wire.JoinRequest
	if !readInternal(w, r, &rq) {
		return
	}
	key := ""
	if m.o.Keys != nil {
		p, ok := keys.PeerOf(r.Context())
		if !ok || p.Node != rq.NodeID || p.Instance != rq.InstanceID {
			api.WriteError(w, job.Errorf(job.CodeForbidden, "start it with --secure and the keys that it joined with",
				"node %s did not show the certificate that it joined with", rq.NodeID))
			return
		}
		key = p.Key.String()
	}
	ctx, cancel := context.WithTimeout(r.Context(), joinTimeout)
	defer cancel()
	ctx = api.WithCaller(ctx, api.Caller{Name: "node " + rq.NodeID, Address: api.AddressOf(r)})
	switch _, err := m.admit(ctx, rq, nil, key, true); {
	case errors.Is(err, errNoMember):
		writeInternal(w, announced{Removed: true})
	case err != nil:
		api.WriteError(w, err)
	default:
		writeInternal(w, announced{})
	}
}
