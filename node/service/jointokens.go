package service

import (
	"bytes"
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// CreateJoinToken implements api.Backend. The secret follows from the cluster key and the id, so that a repetition has
// the same answer although it is stored nowhere.
func (b *Service) CreateJoinToken(ctx context.Context, t wire.JoinTokenRequest,
	rq api.Request) (wire.JoinTokenCreated, error) {
	var none wire.JoinTokenCreated
	if b.o.JoinTokens == nil {
		return none, job.Errorf(job.CodeState, "give the new node only --join",
			"this cluster is not secure: nodes join it without a token")
	}
	now := b.o.JoinTokens(keys.NewToken(keys.JoinToken, keys.Hash{}).ID)
	if len(now) == 0 {
		return none, job.Errorf(job.CodeUnavailable, "try again in a moment",
			"the leader has lost the keys of the cluster and asks the other voters for them")
	}
	made := now[0]
	sum := made.Sum()
	row := store.JoinToken{ID: made.ID, Sum: sum[:], Uses: t.Uses, Voter: t.Voter, CreatedBy: callerOf(ctx)}
	o, err := b.change(ctx, rq, func(at attempt) (fsm.Command, error) {
		row.ExpiresAt = at.now + time.Duration(t.TTL).Milliseconds()
		return &fsm.CreateJoinToken{Head: at.head, Request: at.req, Token: row}, nil
	})
	if err == nil {
		err = outcomeError(o, "")
	}
	if err != nil {
		return none, err
	}
	stored, ok := b.o.Store.Info().Security.Join(o.Text)
	if !ok {
		return none, job.Errorf(job.CodeNotFound, "use a new key to create another",
			"this request created the join token %s, which no longer exists", o.Text)
	}
	if !o.Replay {
		b.o.Logger.Info("join token created", "token", row.ID, "uses", row.Uses, "voter", row.Voter, "by",
			row.CreatedBy)
	}
	out := wire.JoinTokenCreated{JoinToken: joinToken(stored, b.now())}
	for _, t := range b.o.JoinTokens(stored.ID) { // the cluster key may have been replaced since
		if sum := t.Sum(); bytes.Equal(sum[:], stored.Sum) {
			out.Text = t.Text()
		}
	}
	return out, nil
}

// JoinTokens implements api.Backend.
func (b *Service) JoinTokens(ctx context.Context, rd api.Read) ([]wire.JoinToken, error) {
	if err := b.fresh(ctx, rd); err != nil {
		return nil, err
	}
	var out []wire.JoinToken
	for _, t := range b.o.Store.Info().Security.Joins {
		out = append(out, joinToken(t, b.now()))
	}
	return out, nil
}

// RevokeJoinToken implements api.Backend.
func (b *Service) RevokeJoinToken(ctx context.Context, id string, rq api.Request) (wire.JoinToken, error) {
	o, err := b.change(ctx, rq, func(at attempt) (fsm.Command, error) {
		return &fsm.RevokeJoinToken{Head: at.head, Request: at.req, ID: id}, nil
	})
	switch {
	case err != nil:
		return wire.JoinToken{}, err
	case o.Code == fsm.CodeNotFound:
		return wire.JoinToken{}, job.Errorf(job.CodeNotFound, "`carillon cluster token list` lists them",
			"there is no join token %q", id)
	}
	if err := outcomeError(o, id); err != nil {
		return wire.JoinToken{}, err
	}
	if o.Count > 0 && !o.Replay {
		b.o.Logger.Info("join token revoked", "token", id, "by", callerOf(ctx))
	}
	t, _ := b.o.Store.Info().Security.Join(id)
	return joinToken(t, b.now()), nil
}

// joinToken is the row of a join token as it is listed.
func joinToken(t store.JoinToken, now int64) wire.JoinToken {
	status := "active"
	switch {
	case t.RevokedAt != 0:
		status = "revoked"
	case t.Used >= t.Uses:
		status = "used up"
	case now >= t.ExpiresAt:
		status = "expired"
	}
	return wire.JoinToken{ID: t.ID, Status: status, Uses: t.Uses, Used: t.Used, Voter: t.Voter,
		CreatedAt: job.Instant(t.CreatedAt), CreatedBy: t.CreatedBy, ExpiresAt: job.Instant(t.ExpiresAt),
		RevokedAt: job.Instant(t.RevokedAt)}
}
