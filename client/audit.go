package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Audit reads one page of the records of who changed what, newest first.
func (c *Client) Audit(ctx context.Context, q AuditQuery) (p AuditPage, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: prefix + "/audit", query: auditQuery(q), out: &p,
		need: "records"})
	return p, err
}

// ExportAudit calls fn with every record above q.After, oldest first; q.Limit 0 means all. An export that broke off
// goes on behind the Seqs of the records that it had.
func (c *Client) ExportAudit(ctx context.Context, q AuditQuery, fn func(AuditRecord, json.RawMessage) error) error {
	return c.do(ctx, request{method: http.MethodGet, path: prefix + "/audit:export", query: auditQuery(q), lines: true,
		stream: func(r io.Reader) error { return eachLine(r, fn) }})
}

func auditQuery(q AuditQuery) url.Values {
	v := page(q.Limit, q.Cursor)
	set(v, "action", q.Action)
	set(v, "object", q.Object)
	set(v, "token", q.Token)
	for name, at := range map[string]job.Instant{"since": q.Since, "until": q.Until} {
		if at != 0 {
			v.Set(name, time.UnixMilli(int64(at)).UTC().Format(time.RFC3339Nano))
		}
	}
	set(v, "after", q.After.String())
	return v
}

// eachLine calls fn with every line of an export.
func eachLine[T any](r io.Reader, fn func(T, json.RawMessage) error) error {
	dec := json.NewDecoder(r)
	for {
		var raw json.RawMessage
		if err := dec.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return readError{err}
		}
		var line T
		if err := json.Unmarshal(raw, &line); err != nil {
			return job.Errorf(job.CodeMalformed, "", "a line of the export cannot be read: %v", err)
		}
		if err := fn(line, raw); err != nil {
			return err
		}
	}
}
