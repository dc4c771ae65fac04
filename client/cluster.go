package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"

	"github.com/carillon-scheduler/carillon/job"
)

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
