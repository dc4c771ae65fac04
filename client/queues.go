package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/carillon-scheduler/carillon/job"
)

// Queue is a queue that is declared or that jobs use.
type Queue struct {
	Name        string      `json:"name"`
	Declared    bool        `json:"declared"`    // false: only jobs name it; no limit, not paused
	Concurrency int         `json:"concurrency"` // how many of its runs may be with workers at once; 0: no limit
	Paused      bool        `json:"paused"`
	Jobs        int         `json:"jobs"`
	Running     int         `json:"running"` // claimed and without a result, on all workers
	Backlog     int64       `json:"backlog"` // due and not claimed
	BacklogMore bool        `json:"backlog_more,omitempty"`
	OldestDueAt job.Instant `json:"oldest_due_at,omitzero"`
	Workers     []string    `json:"workers"`               // that take it; null if the node that answers does not lead
	WaitReason  string      `json:"wait_reason,omitempty"` // why its backlog is not claimed
	Version     uint64      `json:"version,omitempty"`
	UpdatedAt   job.Instant `json:"updated_at,omitzero"`
}

// QueueList is all queues, by name.
type QueueList struct {
	Queues []Queue `json:"queues"`
}

// QueueChange is what to change of a queue; nil leaves it as it is.
type QueueChange struct {
	Concurrency *int  `json:"concurrency,omitempty"`
	Paused      *bool `json:"paused,omitempty"`
}

func queuePath(name string) string { return prefix + "/queues/" + url.PathEscape(name) }

// Queues reads all queues.
func (c *Client) Queues(ctx context.Context) ([]Queue, error) {
	var l QueueList
	err := c.do(ctx, request{method: http.MethodGet, path: prefix + "/queues", out: &l, need: "queues"})
	return l.Queues, err
}

// GetQueue reads one queue.
func (c *Client) GetQueue(ctx context.Context, name string) (q Queue, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: queuePath(name), out: &q, need: "name"})
	return q, err
}

// PutQueue declares a queue; what is nil gets its default. Version 0 means whatever is there.
func (c *Client) PutQueue(ctx context.Context, name string, change QueueChange, version uint64) (q Queue, err error) {
	err = c.do(ctx, request{method: http.MethodPut, path: queuePath(name), body: change, match: version, out: &q, need: "name"})
	return q, err
}

// PatchQueue changes what is not nil. Version 0 means whatever is there.
func (c *Client) PatchQueue(ctx context.Context, name string, change QueueChange, version uint64) (q Queue, err error) {
	err = c.do(ctx, request{method: http.MethodPatch, path: queuePath(name), body: change, media: "application/merge-patch+json", match: version, out: &q, need: "name"})
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
