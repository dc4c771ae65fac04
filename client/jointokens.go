package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/carillon-scheduler/carillon/api/wire"
)

// CreateJoinToken makes a token that nodes join a secure cluster with.
func (c *Client) CreateJoinToken(ctx context.Context, t JoinTokenRequest) (JoinTokenCreated, error) {
	var made JoinTokenCreated
	err := c.do(ctx, request{method: http.MethodPost, path: prefix + "/join-tokens", body: t, out: &made, need: "id"})
	return made, err
}

// JoinTokens are all join tokens, without their texts.
func (c *Client) JoinTokens(ctx context.Context) ([]JoinToken, error) {
	var all wire.JoinTokenList
	err := c.do(ctx, request{method: http.MethodGet, path: prefix + "/join-tokens", out: &all, need: "tokens"})
	return all.Tokens, err
}

// RevokeJoinToken ends a join token. Nodes that joined with it stay.
func (c *Client) RevokeJoinToken(ctx context.Context, id string) (JoinToken, error) {
	var t JoinToken
	err := c.do(ctx, request{method: http.MethodPost, path: prefix + "/join-tokens/" + url.PathEscape(id) + ":revoke",
		out: &t, need: "id"})
	return t, err
}
