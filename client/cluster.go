package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/carillon-scheduler/carillon/job"
)

// JoinRequest is how a node asks to become a member, or says that it is one and has changed.
type JoinRequest struct {
	NodeID     string            `json:"node_id"`
	InstanceID string            `json:"instance_id"` // of its data directory
	Address    string            `json:"address"`     // host:port that it advertises
	Version    string            `json:"version,omitempty"`
	Level      int               `json:"level"` // the feature level that it supports
	Slots      int               `json:"slots,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	ClusterID  string            `json:"cluster_id,omitempty"` // the cluster that its directory belongs to, if it does
	Epoch      uint64            `json:"epoch,omitempty"`
	Member     bool              `json:"member,omitempty"` // it has state of the cluster: refused if it is no longer a member
}

// JoinReply says which cluster took the node in.
type JoinReply struct {
	ClusterID string `json:"cluster_id"`
	Epoch     uint64 `json:"epoch"`
	Index     uint64 `json:"index"` // the log entry that made it a member, or moved it
	Leader    string `json:"leader"`
}

// NodeRequest names a member.
type NodeRequest struct {
	NodeID string `json:"node_id,omitempty"`
	Force  bool   `json:"force,omitempty"` // of a transfer: also to a node whose clock is wrong or not known
}

// NodeInfo is what one node says of itself alone, leader or not.
type NodeInfo struct {
	NodeID     string      `json:"node_id"`
	InstanceID string      `json:"instance_id"`
	ClusterID  string      `json:"cluster_id"`
	Epoch      uint64      `json:"epoch"`
	Address    string      `json:"address"`
	Version    string      `json:"version"`
	Level      int         `json:"level"`
	State      string      `json:"state"`
	Leader     string      `json:"leader"`
	Term       uint64      `json:"term"`
	Applied    uint64      `json:"applied_index"` // everything up to this log entry is in its state
	Now        job.Instant `json:"now"`
	Removed    bool        `json:"removed,omitempty"` // it is no longer a member
}

// Node reads what the node at the address says of itself.
func (c *Client) Node(ctx context.Context) (n NodeInfo, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/node", out: &n})
	return n, err
}

// Join asks for membership once. A node that does not lead names the one that does in leader.
func (c *Client) Join(ctx context.Context, rq JoinRequest) (r JoinReply, leader string, err error) {
	if c.baseErr != nil {
		return r, "", c.baseErr
	}
	body, err := json.Marshal(rq)
	if err != nil {
		return r, "", err
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, c.nodes.at(0)+prefix+"/cluster:join", bytes.NewReader(body))
	if err != nil {
		return r, "", job.Errorf(job.CodeMalformed, "", "cannot make the request: %v", err)
	}
	hr.Header.Set("User-Agent", c.agent)
	hr.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(hr)
	if err != nil {
		return r, "", job.Errorf(job.CodeUnavailable, "is it running, and is the address right?", "cannot reach %s: %s", c.nodes.at(0), cause(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		return r, resp.Header.Get(LeaderHeader), readProblem(resp)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil || r.ClusterID == "" {
		return r, "", job.Errorf(job.CodeUnavailable, "is this the address of a carillon node?", "%s gave an answer that cannot be read: %v", c.nodes.at(0), err)
	}
	return r, "", nil
}

func (c *Client) member(ctx context.Context, verb, id string) error {
	return c.do(ctx, request{method: http.MethodPost, path: prefix + "/cluster:" + verb, body: NodeRequest{NodeID: id}, bare: true})
}

// RemoveNode takes a member out of the cluster for good: its data directory cannot come back.
func (c *Client) RemoveNode(ctx context.Context, id string) error { return c.member(ctx, "remove", id) }

// PromoteNode lets a member vote.
func (c *Client) PromoteNode(ctx context.Context, id string) error {
	return c.member(ctx, "promote", id)
}

// DemoteNode takes a member's vote away; it goes on to follow and to work.
func (c *Client) DemoteNode(ctx context.Context, id string) error { return c.member(ctx, "demote", id) }

// TransferLeadership hands the leadership to a member, or with "" to one that is fit. A member whose clock is wrong, or not known, is
// refused: it would hold.
func (c *Client) TransferLeadership(ctx context.Context, id string) error {
	return c.member(ctx, "transfer", id)
}

// ForceTransfer is TransferLeadership without regard to the clocks.
func (c *Client) ForceTransfer(ctx context.Context, id string) error {
	return c.do(ctx, request{method: http.MethodPost, path: prefix + "/cluster:transfer", body: NodeRequest{NodeID: id, Force: true}})
}
