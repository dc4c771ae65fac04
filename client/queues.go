package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

func queuePath(name string) string { return prefix + "/queues/" + url.PathEscape(name) }

// Queues reads all queues, page by page.
func (c *Client) Queues(ctx context.Context) (all []Queue, err error) {
	q := url.Values{}
	for {
		var l QueueList
		err := c.do(ctx, request{method: http.MethodGet, path: prefix + "/queues", query: q, out: &l, need: "queues"})
		if err != nil {
			return nil, err
		}
		all = append(all, l.Queues...)
		if l.NextCursor == "" {
			return all, nil
		}
		q.Set("cursor", l.NextCursor)
	}
}

// GetQueue reads one queue.
func (c *Client) GetQueue(ctx context.Context, name string) (q Queue, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: queuePath(name), out: &q, need: "name"})
	return q, err
}

// PutQueue declares a queue; what is nil gets its default. Version 0 means whatever is there.
func (c *Client) PutQueue(ctx context.Context, name string, change QueueChange, version uint64) (q Queue, err error) {
	err = c.do(ctx, request{method: http.MethodPut, path: queuePath(name), body: change, match: version, out: &q,
		need: "name"})
	return q, err
}

// PatchQueue changes what is not nil. Version 0 means whatever is there.
func (c *Client) PatchQueue(ctx context.Context, name string, change QueueChange, version uint64) (q Queue, err error) {
	err = c.do(ctx, request{method: http.MethodPatch, path: queuePath(name), body: change,
		media: "application/merge-patch+json", match: version, out: &q, need: "name"})
	return q, err
}

// PauseQueue stops claims of the queue's runs until it is resumed.
func (c *Client) PauseQueue(ctx context.Context, name string) (q Queue, err error) {
	err = c.do(ctx, request{method: http.MethodPost, path: queuePath(name) + ":pause", out: &q, need: "name"})
	return q, err
}

// ResumeQueue undoes a pause.
func (c *Client) ResumeQueue(ctx context.Context, name string) (q Queue, err error) {
	err = c.do(ctx, request{method: http.MethodPost, path: queuePath(name) + ":resume", out: &q, need: "name"})
	return q, err
}

// DeleteQueue forgets a queue's limit and pause. Jobs that name it go on. Version 0 means whatever is there.
func (c *Client) DeleteQueue(ctx context.Context, name string, version uint64) error {
	return c.do(ctx, request{method: http.MethodDelete, path: queuePath(name), match: version})
}

// PullPoll asks for runs of a queue. It is sent once: when its answer is lost, the next poll with the session of the
// last answer that arrived gets what was in it.
func (c *Client) PullPoll(ctx context.Context, queue string, q job.PullPoll) (r job.PullReply, err error) {
	once := *c
	once.attempts = 1
	err = once.do(ctx, request{method: http.MethodPost, path: queuePath(queue) + ":poll", body: q, out: &r,
		need: "session", noKey: true, waits: time.Duration(q.Wait)})
	return r, err
}

// PullHeartbeat extends the leases of the runs that it names.
func (c *Client) PullHeartbeat(ctx context.Context, queue string, b job.PullBeat) (r job.PullAnswers, err error) {
	once := *c
	once.attempts = 1 // what it says is true now
	err = once.do(ctx, request{method: http.MethodPost, path: queuePath(queue) + ":heartbeat", body: b, out: &r,
		need: "runs", noKey: true})
	return r, err
}

// PullReport hands in results, as completed or as failed. It may be repeated: what was committed is answered as such.
func (c *Client) PullReport(ctx context.Context, queue string, p job.PullReport) (r job.PullAnswers, err error) {
	rq := request{method: http.MethodPost, path: queuePath(queue) + ":fail", body: p, out: &r, need: "runs",
		noKey: true}
	if !p.Failed {
		type success struct {
			job.PullRef
			Output string `json:"output,omitempty"`
		}
		runs := make([]success, len(p.Runs))
		for i, it := range p.Runs {
			runs[i] = success{it.PullRef, it.Output}
		}
		rq.path = queuePath(queue) + ":complete"
		rq.body = map[string]any{"worker": p.Worker, "session": p.Session, "runs": runs}
	}
	err = c.do(ctx, rq)
	return r, err
}
