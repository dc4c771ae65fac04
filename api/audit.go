package api

import (
	"bytes"
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// auditRoutes are about who changed what.
func auditRoutes() []route {
	return []route{
		{"GET", "/audit", Admin, ToLeader, AcrossAll, emptyBody, (*call).listAudit,
			params("action object token since until after limit cursor stale")},
		{"GET", "/audit:export", Admin, Once, AcrossAll, streamBody, (*call).exportAudit,
			params("action object token since until after limit stale")},
	}
}

// AuditBackend is what the routes of the audit stand on.
type AuditBackend interface {
	// Audit lists records, newest first.
	Audit(ctx context.Context, q wire.AuditQuery, rd Read) (wire.AuditPage, error)
	// ExportAudit are up to q.Limit records above q.After, oldest first; fewer are the last ones.
	ExportAudit(ctx context.Context, q wire.AuditQuery, rd Read) ([]wire.AuditRecord, error)
	// NoteBackup records that a node is about to give out all of its state, or its keys. It is asked of the leader.
	NoteBackup(ctx context.Context, n wire.BackupNote, rq Request) error
}

// auditQuery reads the filters.
func (c *call) auditQuery() (q wire.AuditQuery, err error) {
	for _, f := range []struct {
		name string
		to   *string
	}{{"action", &q.Action}, {"object", &q.Object}, {"token", &q.Token}} {
		if *f.to, err = c.one(f.name); err != nil {
			return q, err
		}
	}
	for _, f := range []struct {
		name string
		to   *job.Instant
	}{{"since", &q.Since}, {"until", &q.Until}} {
		text, err := c.one(f.name)
		if err != nil {
			return q, err
		}
		if text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return q, job.Invalid(f.name, "use a time such as 2026-11-16T03:00:00Z", "%q is not a time", text)
		}
		*f.to = job.Instant(t.UnixMilli())
	}
	if q.Since != 0 && q.Until != 0 && q.Until < q.Since {
		return q, job.Invalid("until", "give a later time, or leave it out", "it is before since")
	}
	q.After, err = c.after()
	return q, err
}

func (c *call) listAudit() error {
	q, err := c.auditQuery()
	if err != nil {
		return err
	}
	var rd Read
	if q.Limit, q.Cursor, rd, err = c.page(); err != nil {
		return err
	}
	page, err := c.h.backend.Audit(c.ctx, q, rd)
	if err != nil {
		return err
	}
	page.Records = list(page.Records)
	return c.replyPage(&page.NextCursor, &page)
}

// exportAudit streams the records, oldest first. The seq of the last line is the `after` of the next export.
func (c *call) exportAudit() error {
	rd, err := c.read()
	if err != nil {
		return err
	}
	q, err := c.auditQuery()
	if err != nil {
		return err
	}
	left, err := c.limit(1<<62, 1<<62)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	return c.stream(left, func(n int) (int, []byte, error) {
		q.Limit = n
		ctx, cancel := context.WithTimeout(c.ctx, c.h.opts.RequestTimeout)
		defer cancel()
		records, err := c.h.backend.ExportAudit(ctx, q, rd)
		buf.Reset()
		for i := range records {
			if err := encode(&buf, &records[i]); err != nil {
				return 0, nil, err
			}
			q.After = wire.Seqs{records[i].Seq}
		}
		return len(records), buf.Bytes(), err
	})
}

// noteBackup is what a node asks of the leader before it gives out its state.
func (c *call) noteBackup() error {
	var rq wire.BackupNote
	if err := job.DecodeStrict(c.body, &rq); err != nil {
		return err
	}
	if rq.NodeID == "" {
		return job.Invalid("node_id", "name the node that is going to answer GET "+prefix+"/backup", "which node?")
	}
	ident, err := c.request()
	if err != nil {
		return err
	}
	return c.done(c.h.backend.NoteBackup(c.ctx, rq, ident))
}
