package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/schedule"
)

// Preview computes fire times of an expression that is not saved yet.
func (c *Client) Preview(ctx context.Context, p PreviewRequest) (r PreviewResult, err error) {
	err = c.do(ctx, request{method: http.MethodPost, path: prefix + "/schedule:preview", body: p, out: &r,
		need: "times"})
	return r, err
}

func calendarPath(name string) string { return prefix + "/calendars/" + url.PathEscape(name) }

// Calendars reads all blackout calendars.
func (c *Client) Calendars(ctx context.Context) ([]schedule.Calendar, error) {
	var l CalendarList
	err := c.do(ctx, request{method: http.MethodGet, path: prefix + "/calendars", out: &l, need: "calendars"})
	return l.Calendars, err
}

// GetCalendar reads one blackout calendar.
func (c *Client) GetCalendar(ctx context.Context, name string) (cal schedule.Calendar, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: calendarPath(name), out: &cal, need: "name"})
	return cal, err
}

// PutCalendar creates or replaces a blackout calendar.
func (c *Client) PutCalendar(ctx context.Context, cal schedule.Calendar) (out schedule.Calendar, err error) {
	err = c.do(ctx, request{method: http.MethodPut, path: calendarPath(cal.Name), body: cal, out: &out, need: "name"})
	return out, err
}

// DeleteCalendar removes a blackout calendar.
func (c *Client) DeleteCalendar(ctx context.Context, name string) error {
	return c.do(ctx, request{method: http.MethodDelete, path: calendarPath(name)})
}

// ClockReset lowers the clock mark to the leader's clock after a clock that ran ahead was put right.
func (c *Client) ClockReset(ctx context.Context) error {
	return c.do(ctx, request{method: http.MethodPost, path: prefix + "/cluster:clock-reset"})
}

// Scrub has the leaders of all groups compare the states of the replicas at once. ScrubStatus says how far that is.
func (c *Client) Scrub(ctx context.Context) (s ScrubStatus, err error) {
	return s, c.do(ctx, request{method: http.MethodPost, path: prefix + "/cluster:scrub", out: &s, need: "groups"})
}

// ScrubStatus is how far the passes are that were asked for last, and what was found.
func (c *Client) ScrubStatus(ctx context.Context) (s ScrubStatus, err error) {
	return s, c.do(ctx, request{method: http.MethodGet, path: prefix + "/cluster:scrub", out: &s, need: "groups"})
}

// Status reads what the node knows of itself and its cluster.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/status", out: &s, need: "node"})
	return s, err
}

// OpenAPI reads the description of the API.
func (c *Client) OpenAPI(ctx context.Context) ([]byte, error) {
	return c.fetch(ctx, prefix+"/openapi.json", nil)
}

// JobSchema reads the JSON Schema of job files.
func (c *Client) JobSchema(ctx context.Context) ([]byte, error) {
	return c.fetch(ctx, prefix+"/schemas/job.json", nil)
}

// Metrics reads the node's metrics in Prometheus' text format.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) { return c.fetch(ctx, "/metrics", nil) }

// JobMetrics reads those of single jobs whose names begin with a prefix, at most 1,000.
func (c *Client) JobMetrics(ctx context.Context, namePrefix string) (data []byte, err error) {
	v := url.Values{}
	set(v, "prefix", namePrefix)
	return c.fetch(ctx, "/metrics/jobs", v)
}

func (c *Client) fetch(ctx context.Context, path string, query url.Values) (data []byte, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: path, query: query, stream: func(r io.Reader) error {
		var err error
		if data, err = io.ReadAll(r); err != nil {
			return readError{err}
		}
		return nil
	}})
	return data, err
}

// Live says whether the node's process is well. It is asked once: a probe that retries hides what it looks for.
func (c *Client) Live(ctx context.Context) error { return c.probe(ctx, "/healthz") }

// Ready says whether the node should get traffic.
func (c *Client) Ready(ctx context.Context) error { return c.probe(ctx, "/readyz") }

func (c *Client) probe(ctx context.Context, path string) error {
	one := *c
	one.attempts = 1
	return one.do(ctx, request{method: http.MethodGet, path: path})
}

// Node reads what the node at the address says of itself.
func (c *Client) Node(ctx context.Context) (n NodeInfo, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/node", out: &n})
	return n, err
}

// LogHash reads the hash over the log of a group up to an entry, as the node at the address has it.
func (c *Client) LogHash(ctx context.Context, group uint32, index uint64) (h LogHash, err error) {
	q := url.Values{"group": {strconv.FormatUint(uint64(group), 10)}, "index": {strconv.FormatUint(index, 10)}}
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/node/log-hash", query: q, out: &h})
	return h, err
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
	hr, err := http.NewRequestWithContext(ctx, http.MethodPost, c.nodes.at(0)+prefix+"/cluster:join",
		bytes.NewReader(body))
	if err != nil {
		return r, "", job.Errorf(job.CodeMalformed, "", "cannot make the request: %v", err)
	}
	hr.Header.Set("User-Agent", c.agent)
	hr.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(hr)
	if errors.As(err, new(keys.OtherCAError)) {
		return r, "", job.Errorf(job.CodeForbidden, "name a node of the cluster that the join token belongs to, or "+
			"create a join token in this one: "+
			"`carillon cluster token create`", "%s: %v", c.nodes.at(0), keys.OtherCAError{})
	}
	if err != nil {
		return r, "", job.Errorf(job.CodeUnavailable, "is it running, and is the address right?",
			"cannot reach %s: %s", c.nodes.at(0), cause(err))
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
		return r, "", job.Errorf(job.CodeUnavailable, "is this the address of a carillon node?",
			"%s gave an answer that cannot be read: %v", c.nodes.at(0), err)
	}
	return r, "", nil
}

func (c *Client) member(ctx context.Context, verb, id string) error {
	return c.do(ctx, request{method: http.MethodPost, path: prefix + "/cluster:" + verb, body: NodeRequest{NodeID: id},
		bare: true})
}

// RemoveNode takes a member out of the cluster for good: its data directory cannot come back. If it has replicas of
// groups, other nodes are given them first, which is waited for until ctx ends and goes on after that.
func (c *Client) RemoveNode(ctx context.Context, id string) error {
	for {
		r, err := c.BeginRemoval(ctx, id)
		if err != nil || r.Removed {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(removalPause):
		}
	}
}

// removalPause is between two looks at how far a removal is.
const removalPause = 500 * time.Millisecond

// BeginRemoval is RemoveNode that waits for nothing. Repeated, it says how far the removal is.
func (c *Client) BeginRemoval(ctx context.Context, id string) (r Removal, err error) {
	err = c.do(ctx, request{method: http.MethodPost, path: prefix + "/cluster:remove", body: NodeRequest{NodeID: id},
		bare: true, out: &r})
	r.NodeID, r.Removed = id, err == nil && len(r.Groups) == 0
	return r, err
}

// MoveGroup has a group have its replicas on other nodes. Repeated, it says how far that is.
func (c *Client) MoveGroup(ctx context.Context, rq MoveGroupRequest) (r GroupMove, err error) {
	return r, c.do(ctx, request{method: http.MethodPost, path: prefix + "/cluster:move-group", body: rq, out: &r,
		need: "group"})
}

// DevKill kills a node of `carillon dev --nodes 3`. Every other cluster answers that there is no such thing.
func (c *Client) DevKill(ctx context.Context, rq DevKillRequest) error {
	return c.do(ctx, request{method: http.MethodPost, path: prefix + "/dev:kill", body: rq, bare: true})
}

// PromoteNode lets a member vote.
func (c *Client) PromoteNode(ctx context.Context, id string) error {
	return c.member(ctx, "promote", id)
}

// DemoteNode takes a member's vote away; it goes on to follow and to work.
func (c *Client) DemoteNode(ctx context.Context, id string) error { return c.member(ctx, "demote", id) }

// TransferLeadership hands the leadership to a member, or with "" to one that is fit. A member whose clock is wrong, or
// not known, is refused: it would hold.
func (c *Client) TransferLeadership(ctx context.Context, id string) error {
	return c.member(ctx, "transfer", id)
}

// ForceTransfer is TransferLeadership without regard to the clocks.
func (c *Client) ForceTransfer(ctx context.Context, id string) error {
	return c.do(ctx, request{method: http.MethodPost, path: prefix + "/cluster:transfer",
		body: NodeRequest{NodeID: id, Force: true}})
}

// GrowGroups has the cluster have so many groups of jobs. It is done some time later: Status shows it until then.
func (c *Client) GrowGroups(ctx context.Context, groups int) (g Growth, err error) {
	return g, c.do(ctx, request{method: http.MethodPost, path: prefix + "/cluster:grow-groups",
		body: GrowRequest{Groups: groups}, out: &g, need: "want"})
}

// RotateCA begins to replace the CA and the cluster key of a secure cluster, or gives that up. It is finished when no
// member is missing: Status shows it until then.
func (c *Client) RotateCA(ctx context.Context, rq RotateRequest) (r Rotation, err error) {
	return r, c.do(ctx, request{method: http.MethodPost, path: prefix + "/cluster:rotate-ca", body: rq,
		out: &r, need: "ca"})
}
