package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/carillon-scheduler/carillon/api/wire"
)

func secretPath(name string) string { return prefix + "/secrets/" + url.PathEscape(name) }

// PutSecret makes a secret, or gives it a new value.
func (c *Client) PutSecret(ctx context.Context, name string, s SecretRequest) (set Secret, err error) {
	err = c.do(ctx, request{method: http.MethodPut, path: secretPath(name), body: s, out: &set, need: "name"})
	return set, err
}

// Secrets are all secrets, without their values.
func (c *Client) Secrets(ctx context.Context) ([]Secret, error) {
	var all wire.SecretList
	err := c.do(ctx, request{method: http.MethodGet, path: prefix + "/secrets", out: &all, need: "secrets"})
	return all.Secrets, err
}

// GetSecret reads what is known of a secret, without its value.
func (c *Client) GetSecret(ctx context.Context, name string) (s Secret, err error) {
	err = c.do(ctx, request{method: http.MethodGet, path: secretPath(name), out: &s, need: "name"})
	return s, err
}

// DeleteSecret removes a secret; one that jobs refer to only with force.
func (c *Client) DeleteSecret(ctx context.Context, name string, force bool) error {
	q := url.Values{}
	if force {
		q.Set("force", "true")
	}
	return c.do(ctx, request{method: http.MethodDelete, path: secretPath(name), query: q})
}
