package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/mergepatch"
	"github.com/carillon-scheduler/carillon/job"
)

// queueRoutes are about queues.
func queueRoutes() []route {
	return []route{
		{"GET", "/queues", Viewer, ToLeader, AcrossJobs, emptyBody, (*call).listQueues, params("limit cursor stale")},
		{"GET", "/queues/{queue}", Viewer, ToLeader, ByQueue, emptyBody, (*call).getQueue, params("stale")},
		{"PUT", "/queues/{queue}", Operator, ToLeader, ByQueue, jsonBody, (*call).putQueue, nil},
		{"PATCH", "/queues/{queue}", Operator, ToLeader, ByQueue, patchBody, (*call).patchQueue, nil},
		{"DELETE", "/queues/{queue}", Operator, ToLeader, ByQueue, emptyBody, (*call).deleteQueue, nil},
		{"POST", "/queues/{queue}:pause", Operator, ToLeader, ByQueue, emptyBody, (*call).pauseQueue, nil},
		{"POST", "/queues/{queue}:resume", Operator, ToLeader, ByQueue, emptyBody, (*call).resumeQueue, nil},
	}
}

// QueueBackend is what the routes of queues stand on.
type QueueBackend interface {
	// Queues are those that are declared or that jobs use, by namespace and name.
	Queues(ctx context.Context, q wire.QueueQuery, rd Read) (wire.QueueList, error)
	GetQueue(ctx context.Context, name string, rd Read) (wire.Queue, error)
	// PutQueue changes what is not nil, and declares the queue if it is not; with mustExist only if jobs use it.
	// version 0 means any.
	PutQueue(ctx context.Context, name string, c wire.QueueChange, version uint64, mustExist bool,
		rq Request) (wire.Queue, error)
	DeleteQueue(ctx context.Context, name string, version uint64, rq Request) error
}

func (c *call) queueName() (string, error) {
	name := c.r.PathValue("queue")
	if !job.QueueName(name) {
		return "", job.Invalid("queue", "use up to 100 letters, digits, - _ . beginning with a letter or digit",
			"%q is not a queue name", name)
	}
	return name, nil
}

func (c *call) replyQueue(q wire.Queue) error {
	if q.Version != 0 {
		c.w.Header().Set("ETag", `"`+strconv.FormatUint(q.Version, 10)+`"`)
	}
	return c.reply(http.StatusOK, q)
}

func (c *call) listQueues() error {
	var q wire.QueueQuery
	var rd Read
	var err error
	if q.Limit, q.Cursor, rd, err = c.pageOf(maxPage); err != nil {
		return err
	}
	page, err := c.h.backend.Queues(c.ctx, q, rd)
	if err != nil {
		return err
	}
	page.Queues = list(page.Queues)
	return c.replyPage(&page.NextCursor, &page)
}

func (c *call) getQueue() error {
	name, err := c.queueName()
	if err != nil {
		return err
	}
	rd, err := c.read()
	if err != nil {
		return err
	}
	q, err := c.h.backend.GetQueue(c.ctx, name, rd)
	if err != nil {
		return err
	}
	return c.replyQueue(q)
}

// putQueue takes what getQueue gave, as putJob does: of what Carillon itself says only the version counts.
func (c *call) putQueue() error {
	var q wire.Queue
	if err := job.DecodeStrict(c.body, &q); err != nil {
		return err
	}
	if name := c.r.PathValue("queue"); q.Name != "" && q.Name != name {
		return job.Invalid("name", "leave it out, or use the same name",
			"the body names %q and the path %q", q.Name, name)
	}
	space, err := c.into(q.Namespace)
	if err != nil {
		return err
	}
	c.space.Namespace = space
	return c.changeQueue(wire.QueueChange{Concurrency: &q.Concurrency, Paused: &q.Paused}, q.Version, false)
}

// patchQueue changes what the body names. There is nothing to merge: each of the two fields is a value of its own, so
// two patches that pass each other both count.
func (c *call) patchQueue() error {
	var raw map[string]json.RawMessage
	if err := job.DecodeStrict(c.body, &raw); err != nil {
		return err
	}
	var body struct {
		wire.QueueChange
		Version uint64 `json:"version,omitempty"`
	}
	if err := job.DecodeStrict(c.body, &body); err != nil {
		return err
	}
	if mergepatch.IsNull(raw["concurrency"]) { // of a merge patch: the default
		body.Concurrency = new(int)
	}
	if mergepatch.IsNull(raw["paused"]) {
		body.Paused = new(bool)
	}
	if raw == nil || body.Concurrency == nil && body.Paused == nil {
		return job.Errorf(job.CodeMalformed, "send concurrency, paused or both", "the patch changes nothing")
	}
	return c.changeQueue(body.QueueChange, body.Version, true)
}

func (c *call) pauseQueue() error  { return c.setPaused(true) }
func (c *call) resumeQueue() error { return c.setPaused(false) }

func (c *call) setPaused(yes bool) error {
	return c.changeQueue(wire.QueueChange{Paused: &yes}, 0, true)
}

// changeQueue makes a change; mustExist keeps a typing error from making a queue.
func (c *call) changeQueue(change wire.QueueChange, inBody uint64, mustExist bool) error {
	name, err := c.queueName()
	if err != nil {
		return err
	}
	if n := change.Concurrency; n != nil && (*n < 0 || *n > job.MaxQueueConcurrency) {
		return job.Invalid("concurrency", "0 means no limit", "%d is not between 0 and %d", *n, job.MaxQueueConcurrency)
	}
	version, err := c.matchVersion(inBody)
	if err != nil {
		return err
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	q, err := c.h.backend.PutQueue(c.ctx, name, change, version, mustExist, rq)
	if err != nil {
		return err
	}
	return c.replyQueue(q)
}

func (c *call) deleteQueue() error {
	name, err := c.queueName()
	if err != nil {
		return err
	}
	version, err := c.matchVersion(0)
	if err != nil {
		return err
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	return c.done(c.h.backend.DeleteQueue(c.ctx, name, version, rq))
}
