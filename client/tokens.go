package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/carillon-scheduler/carillon/api/wire"
)

// Whoami is who this client is to the node, and what it may do.
func (c *Client) Whoami(ctx context.Context) (Whoami, error) {
	var w Whoami
	err := c.do(ctx, request{method: http.MethodGet, path: prefix + "/whoami", out: &w, need: "role"})
	return w, err
}

// CreateToken makes an API token. Its text is in this answer only; a repetition of the request is answered without.
func (c *Client) CreateToken(ctx context.Context, t TokenRequest) (TokenCreated, error) {
	var made TokenCreated
	err := c.do(ctx, request{method: http.MethodPost, path: prefix + "/tokens", body: t, out: &made, need: "id"})
	return made, err
}

// Tokens are all API tokens, without their texts.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	var all wire.TokenList
	err := c.do(ctx, request{method: http.MethodGet, path: prefix + "/tokens", out: &all, need: "tokens"})
	return all.Tokens, err
}

// RevokeToken ends an API token, by its id or name, and what it holds open.
func (c *Client) RevokeToken(ctx context.Context, ref string) (Token, error) {
	var t Token
	err := c.do(ctx, request{method: http.MethodPost, path: prefix + "/tokens/" + url.PathEscape(ref) + ":revoke",
		out: &t, need: "id"})
	return t, err
}
