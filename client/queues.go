package client

import (
	"context"
	"net/http"
	"net/url"
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
