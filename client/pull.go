package client

import (
	"context"
	"net/http"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// PullPoll asks for runs of a queue. It is sent once: when its answer is lost, the next poll with the session of the last answer
// that arrived gets what was in it.
func (c *Client) PullPoll(ctx context.Context, queue string, q job.PullPoll) (r job.PullReply, err error) {
	once := *c
	once.attempts = 1
	err = once.do(ctx, request{method: http.MethodPost, path: queuePath(queue) + ":poll", body: q, out: &r, need: "session", noKey: true, waits: time.Duration(q.Wait)})
	return r, err
}

// PullHeartbeat extends the leases of the runs that it names.
func (c *Client) PullHeartbeat(ctx context.Context, queue string, b job.PullBeat) (r job.PullAnswers, err error) {
	once := *c
	once.attempts = 1 // what it says is true now
	err = once.do(ctx, request{method: http.MethodPost, path: queuePath(queue) + ":heartbeat", body: b, out: &r, need: "runs", noKey: true})
	return r, err
}

// PullReport hands in results, as completed or as failed. It may be repeated: what was committed is answered as such.
func (c *Client) PullReport(ctx context.Context, queue string, p job.PullReport) (r job.PullAnswers, err error) {
	rq := request{method: http.MethodPost, path: queuePath(queue) + ":fail", body: p, out: &r, need: "runs", noKey: true}
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
