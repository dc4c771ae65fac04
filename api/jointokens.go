package api

import (
	"context"
	"net/http"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// joinTokenRoutes are about the tokens that nodes join a secure cluster with.
func joinTokenRoutes() []route {
	return []route{
		{"POST", "/join-tokens", Admin, ToLeader, Control, jsonMaybe, (*call).createJoinToken, nil},
		{"GET", "/join-tokens", Admin, ToLeader, Control, emptyBody, (*call).listJoinTokens, params("stale")},
		{"POST", "/join-tokens/{ref}:revoke", Admin, ToLeader, Control, emptyBody, (*call).revokeJoinToken, nil},
	}
}

// JoinTokenBackend is what the routes of join tokens stand on.
type JoinTokenBackend interface {
	// CreateJoinToken makes a join token. A repetition is answered with the same text.
	CreateJoinToken(ctx context.Context, t wire.JoinTokenRequest, rq Request) (wire.JoinTokenCreated, error)
	JoinTokens(ctx context.Context, rd Read) ([]wire.JoinToken, error)
	RevokeJoinToken(ctx context.Context, id string, rq Request) (wire.JoinToken, error)
}

const (
	maxJoinTTL  = 365 * 24 * time.Hour
	maxJoinUses = 1000
)

// mayLetIn refuses a caller who has less than a node: any of them carries out shell jobs and is given secrets.
func mayLetIn(ctx context.Context) error {
	return MayGrant(ctx, "", "let nodes into the cluster, which carry out shell jobs and get secrets")
}

func (c *call) createJoinToken() error {
	if err := mayLetIn(c.r.Context()); err != nil {
		return err
	}
	t := wire.JoinTokenRequest{TTL: job.Duration(time.Hour), Uses: 1}
	if len(c.body) > 0 {
		if err := job.DecodeStrict(c.body, &t); err != nil {
			return err
		}
	}
	switch d := time.Duration(t.TTL); {
	case d < time.Second || d > maxJoinTTL:
		return job.Invalid("ttl", "use 1s to 8760h; an hour is usually enough", "%s is out of range", t.TTL)
	case t.Uses < 1 || t.Uses > maxJoinUses:
		return job.Invalid("uses", "use the number of nodes that will join", "%d is not between 1 and %d", t.Uses,
			maxJoinUses)
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	made, err := c.h.backend.CreateJoinToken(c.ctx, t, rq)
	if err != nil {
		return err
	}
	return c.reply(http.StatusCreated, made)
}

func (c *call) listJoinTokens() error {
	rd, err := c.read()
	if err != nil {
		return err
	}
	all, err := c.h.backend.JoinTokens(c.ctx, rd)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, wire.JoinTokenList{Tokens: list(all)})
}

func (c *call) revokeJoinToken() error {
	rq, err := c.request()
	if err != nil {
		return err
	}
	t, err := c.h.backend.RevokeJoinToken(c.ctx, c.ref(), rq)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, t)
}
