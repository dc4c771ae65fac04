package service

import (
	"cmp"
	"context"
	"crypto/rand"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// viewAudits is how many records one view looks at: commits wait for views.
	viewAudits = 1024
	// auditsLimit is how many records one request looks at: a filter that matches few gets a short page with a cursor.
	auditsLimit = 32 * viewAudits
)

// seesAudit says whether a record is of what a request is about. What is in no namespace is about the cluster: it is
// shown to those who may see all of them, unless they name one.
func seesAudit(sc api.Space, namespace string) bool {
	if namespace == "" {
		return sc.Anywhere() || sc.Namespace == job.AllNamespaces
	}
	return sc.Lists(namespace)
}

// checkAudit refuses a filter that could never match.
func checkAudit(q *wire.AuditQuery) error {
	if q.Action == "" {
		return nil
	}
	actions := fsm.Actions()
	for _, a := range actions {
		if kind, _, _ := strings.Cut(a, "."); q.Action == a || q.Action == kind {
			return nil
		}
	}
	return job.Invalid("action", "use one of "+strings.Join(actions, ", ")+", or what is before the dot",
		"%q is not an action%s", q.Action, job.Suggest(q.Action, actions))
}

func selectsAudit(q *wire.AuditQuery, seq uint64, a *store.Audit, sc api.Space) bool {
	return seq > q.After.Own() && seesAudit(sc, a.Namespace) &&
		(q.Action == "" || q.Action == a.Action || q.Action == a.Kind()) &&
		(q.Object == "" || q.Object == a.ID || q.Object == a.Object) &&
		(q.Token == "" || q.Token == a.Token || q.Token == a.Name) &&
		(q.Since == 0 || a.At >= int64(q.Since)) && (q.Until == 0 || a.At < int64(q.Until))
}

// auditRecord is a record as the API shows it.
func auditRecord(seq uint64, a *store.Audit) wire.AuditRecord {
	return wire.AuditRecord{Seq: seq, At: job.Instant(a.At), Token: a.Token, Name: a.Name, Address: a.Address,
		Action: a.Action, Kind: a.Kind(), ID: a.ID, Object: a.Object, Namespace: a.Namespace,
		Outcome: cmp.Or(a.Outcome, "ok"), Request: a.Request, Done: a.Done, Unchanged: a.Unchanged,
		Refused: a.Refused}
}

// Audit implements api.Backend.
func (b *Service) Audit(ctx context.Context, q wire.AuditQuery, rd api.Read) (wire.AuditPage, error) {
	page := wire.AuditPage{Records: []wire.AuditRecord{}}
	if err := checkAudit(&q); err != nil {
		return page, err
	}
	var below uint64
	if q.Cursor != "" {
		var err error
		if below, err = strconv.ParseUint(q.Cursor, 10, 64); err != nil || below == 0 {
			return page, view.BadCursor()
		}
	}
	if err := b.fresh(ctx, rd); err != nil {
		return page, err
	}
	for looked := 0; looked < auditsLimit && len(page.Records) < q.Limit; looked += viewAudits {
		if err := ctx.Err(); err != nil {
			return page, err
		}
		end, n := true, 0
		err := b.view(func(r *view.Reader) error {
			return r.EachAuditBack(below, func(seq uint64, a store.Audit) bool {
				if n == viewAudits || len(page.Records) == q.Limit {
					end = false
					return false
				}
				n++
				below = seq
				if selectsAudit(&q, seq, &a, rd.Space) {
					page.Records = append(page.Records, auditRecord(seq, &a))
				}
				return seq > q.After.Own()
			})
		})
		if err != nil || end {
			return page, err
		}
	}
	page.NextCursor = strconv.FormatUint(below, 10)
	return page, nil
}

// ExportAudit implements api.Backend.
func (b *Service) ExportAudit(ctx context.Context, q wire.AuditQuery, rd api.Read) ([]wire.AuditRecord, error) {
	if err := checkAudit(&q); err != nil {
		return nil, err
	}
	if err := b.fresh(ctx, rd); err != nil {
		return nil, err
	}
	var out []wire.AuditRecord
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		end, n := true, 0
		err := b.view(func(r *view.Reader) error {
			return r.EachAudit(q.After.Own(), func(seq uint64, a store.Audit) bool {
				if n == viewAudits || len(out) == q.Limit {
					end = false
					return false
				}
				n++
				if selectsAudit(&q, seq, &a, rd.Space) {
					out = append(out, auditRecord(seq, &a))
				}
				q.After = wire.Seqs{seq}
				return true
			})
		})
		if err != nil || end || len(out) == q.Limit {
			return out, err
		}
	}
}

// NoteBackup implements api.Backend.
func (b *Service) NoteBackup(ctx context.Context, n wire.BackupNote, rq api.Request) error {
	if _, ok := membership.FindServer(b.o.Members.Configured(), n.NodeID); !ok {
		return job.Errorf(job.CodeNotFound, "`carillon cluster members` lists them", "the cluster has no node %q",
			n.NodeID)
	}
	action := "backup.create"
	if n.Keys {
		action = "backup.keys"
	}
	_, err := b.changeNamed(ctx, rq, "", func(a attempt) (fsm.Command, error) {
		if a.head.By != nil {
			a.head.By.Request = rq.Key
		}
		return &fsm.Note{Head: a.head, Request: a.req, Action: action, ID: n.NodeID}, nil
	})
	return err
}

// recordBackup has it recorded that this node gives out all that it knows, before it does. On a secure cluster no
// backup is given out that is not recorded, except by the admin socket: who can open that can read the files beside it,
// and has to get at a backup when no leader is left.
func (b *Service) recordBackup(ctx context.Context) error {
	by, ok := api.CallerOf(ctx)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, forward.LeaderWait)
	defer cancel()
	err := b.noteBackup(ctx, by)
	if err == nil || job.CodeOf(err) == job.CodeUnauthenticated || job.CodeOf(err) == job.CodeForbidden {
		return err
	}
	if b.o.Secure && !api.IsLocal(ctx) {
		return job.Errorf(job.CodeNoLeader, "try again, ask another node, or use the admin socket",
			"the audit record of the backup could not be written, so no backup is taken: %v", err)
	}
	b.o.Logger.Warn("backup not recorded", "address", by.Address, "name", by.Name, "error", err)
	return nil
}

func (b *Service) noteBackup(ctx context.Context, by api.Caller) error {
	p, other := b.o.Tracker.Elsewhere()
	if !other {
		return b.NoteBackup(ctx, wire.BackupNote{NodeID: b.o.NodeID}, api.Request{Key: rand.Text(), Owner: by.Token})
	}
	opts := []client.Option{client.WithHTTPClient(b.o.Client()), client.WithAttempts(1)}
	for name, value := range by.Headers(b.o.NodeID) {
		opts = append(opts, client.WithHeader(name, value))
	}
	if cred := api.CredentialOf(ctx); cred != "" {
		opts = append(opts, client.WithHeader("Authorization", cred))
	}
	return client.New(p.Addr, opts...).NoteBackup(ctx, wire.BackupNote{NodeID: b.o.NodeID})
}
