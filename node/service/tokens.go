package service

import (
	"context"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

// callerOf names who asks, for the rows of what they change.
func callerOf(ctx context.Context) string {
	if id := api.IdentityOf(ctx); id != nil {
		return id.Name
	}
	return ""
}

// CreateToken implements api.Backend. The leader makes the secret; what goes into the log is its hash.
func (b *Service) CreateToken(ctx context.Context, t wire.TokenRequest, rq api.Request) (wire.TokenCreated, error) {
	if !b.o.Secure {
		return wire.TokenCreated{}, job.Errorf(job.CodeState, "start the nodes with --secure",
			"this cluster uses no tokens")
	}
	made := keys.NewToken(keys.APIToken, b.caHash())
	sum := made.Sum()
	row := store.Token{ID: made.ID, Name: t.Name, Sum: sum[:], Role: string(t.Role), CA: made.CA.String(),
		Namespace: t.Namespace, Shell: t.Shell, CreatedBy: callerOf(ctx), Worker: store.WorkerGrant(t.WorkerGrant)}
	o, err := b.change(ctx, rq, func(a attempt) (fsm.Command, error) {
		if t.TTL > 0 {
			row.ExpiresAt = a.now + time.Duration(t.TTL).Milliseconds()
		}
		return &fsm.CreateToken{Head: a.head, Request: a.req, Token: row}, nil
	})
	if err != nil {
		return wire.TokenCreated{}, err
	}
	if o.Code == fsm.CodeDuplicate {
		return wire.TokenCreated{}, &job.Error{Code: job.CodeDuplicateName, Field: "name",
			Message: "the token " + o.Text + " has that name already",
			Remedy:  "choose another name, or revoke that token first"}
	}
	if err := outcomeError(o, t.Name); err != nil {
		return wire.TokenCreated{}, err
	}
	stored, ok := b.o.Store.Token(o.Text)
	if !ok {
		return wire.TokenCreated{}, job.Errorf(job.CodeNotFound, "use a new key to create another",
			"this request created the token %s, which no longer exists", o.Text)
	}
	out := wire.TokenCreated{Token: b.token(stored)}
	if o.Text == made.ID {
		out.Text = made.Text()
		b.o.Logger.Info("token created", "token", row.ID, "name", row.Name, "role", row.Role, "by", row.CreatedBy)
	}
	return out, nil
}

func (b *Service) caHash() keys.Hash {
	if b.o.CAHash == nil {
		return keys.Hash{}
	}
	return b.o.CAHash()
}

// token is a row as it is listed.
func (b *Service) token(t *store.Token) wire.Token {
	status := "active"
	switch {
	case t.RevokedAt != 0:
		status = "revoked"
	case t.Suspended:
		status = "suspended"
	case !t.Usable(b.now()):
		status = "expired"
	}
	return wire.Token{ID: t.ID, Name: t.Name, Role: job.TokenRole(t.Role), Namespace: t.Namespace, Shell: t.Shell,
		Status: status, CA: b.o.Store.Info().Security.Standing(t.CA),
		CreatedAt: job.Instant(t.CreatedAt), CreatedBy: t.CreatedBy,
		ExpiresAt: job.Instant(t.ExpiresAt), RevokedAt: job.Instant(t.RevokedAt), RevokedBy: t.RevokedBy,
		WorkerGrant: wire.WorkerGrant(t.Worker)}
}

// Tokens implements api.Backend.
func (b *Service) Tokens(ctx context.Context, rd api.Read) ([]wire.Token, error) {
	if err := b.fresh(ctx, rd); err != nil {
		return nil, err
	}
	var out []wire.Token
	for _, t := range b.o.Store.Tokens() {
		out = append(out, b.token(t))
	}
	return out, nil
}

// RevokeToken implements api.Backend.
func (b *Service) RevokeToken(ctx context.Context, ref string, rq api.Request) (wire.Token, error) {
	by := callerOf(ctx)
	o, err := b.change(ctx, rq, func(a attempt) (fsm.Command, error) {
		id := b.tokenID(ref, func(t *store.Token) bool { return t.Usable(a.now) })
		return &fsm.RevokeToken{Head: a.head, Request: a.req, ID: id, By: by}, nil
	})
	t, err := b.changedToken(ctx, o, err, ref, "token revoked")
	if err == nil {
		b.heard(ctx, "the token may be used there")
	}
	return t, err
}

// ResumeToken implements api.Backend.
func (b *Service) ResumeToken(ctx context.Context, ref string, rq api.Request) (wire.Token, error) {
	o, err := b.change(ctx, rq, func(a attempt) (fsm.Command, error) {
		id := b.tokenID(ref, func(t *store.Token) bool { return t.Suspended && t.RevokedAt == 0 })
		if t, ok := b.o.Store.Token(id); ok && t.Shell {
			if err := api.MayGrant(ctx, "shell", "resume a token that may"); err != nil {
				return nil, err
			}
		}
		return &fsm.ResumeToken{Head: a.head, Request: a.req, ID: id}, nil
	})
	if err == nil && o.Code == fsm.CodeDuplicate {
		err = &job.Error{Code: job.CodeDuplicateName, Field: "name", Remedy: "revoke that token first",
			Message: "the token " + o.Text + " has the same name and is in use"}
	}
	t, err := b.changedToken(ctx, o, err, ref, "token resumed")
	if err == nil {
		b.heard(ctx, "the token is refused there")
	}
	return t, err
}

// tokenID is the id of the token that is named by its id or its name. Several may have had the name: of those the one
// that is meant, if there is one, and else the newest.
func (b *Service) tokenID(ref string, meant func(*store.Token) bool) string {
	id, found := ref, false
	if _, ok := b.o.Store.Token(ref); ok {
		return id
	}
	for _, t := range b.o.Store.Tokens() {
		if t.Name == ref && (!found || meant(t)) {
			id, found = t.ID, found || meant(t)
		}
	}
	return id
}

// changedToken is a token after something was done to it.
func (b *Service) changedToken(ctx context.Context, o fsm.Outcome, err error, ref, event string) (wire.Token, error) {
	if err == nil && o.Code == fsm.CodeNotFound {
		err = job.Errorf(job.CodeNotFound, "`carillon token list` lists them", "there is no token %q", ref)
	} else if err == nil {
		err = outcomeError(o, ref)
	}
	if err != nil {
		return wire.Token{}, err
	}
	t, ok := b.o.Store.Token(o.Text)
	if !ok { // it made room since
		return wire.Token{ID: o.Text, Name: ref, Status: "revoked"}, nil
	}
	if o.Count > 0 && !o.Replay {
		b.o.Logger.Info(event, "token", t.ID, "name", t.Name, "by", callerOf(ctx))
	}
	return b.token(t), nil
}

// confirm asks the leader whether the caller is still who this node takes them for. A follower that is cut off does
// not hear that a token was revoked; what it would answer itself must then not be all that the cluster knows.
func (b *Service) confirm(ctx context.Context) error {
	id := api.IdentityOf(ctx)
	if id == nil || id.Token == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, forward.LeaderWait)
	defer cancel()
	p, other := b.o.Tracker.Elsewhere()
	if !other {
		return b.verify(ctx)
	}
	who, err := client.New(p.Addr, client.WithHTTPClient(b.o.Client()), client.WithAttempts(1),
		client.WithHeader("Authorization", api.CredentialOf(ctx)),
		client.WithHeader(wire.ForwardedHeader, b.o.NodeID)).Whoami(ctx)
	switch {
	case err == nil && who.Token == id.Token && who.Role == id.Role && strings.EqualFold(who.Namespace, id.Namespace):
		return nil
	case err == nil:
		return job.Errorf(job.CodeForbidden, "", "leader and node have different records of the token %s", id.Token)
	case job.CodeOf(err) == job.CodeUnauthenticated || job.CodeOf(err) == job.CodeForbidden:
		return err
	}
	return job.Errorf(job.CodeNoLeader, "try again, ask another node, or use the admin socket",
		"the leader could not be asked whether the token %s is still valid: %v", id.Token, err)
}
