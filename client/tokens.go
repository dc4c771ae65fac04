package client

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

// WithToken has every request carry an API token, as its text. A token of a cluster with TLS names its CA: addresses
// without a scheme are called over TLS then, and only a node of that cluster gets to see the token. One that is damaged
// is reported by the first request.
func WithToken(text string) Option {
	return func(c *Client) {
		t, err := keys.ParseToken(keys.APIToken, text)
		if err != nil {
			c.baseErr = err
			return
		}
		WithHeader("Authorization", "Bearer "+t.Text())(c)
		c.tls = pinned(t)
	}
}

// WithError has every request fail, for a client whose credential cannot be read.
func WithError(err error) Option { return func(c *Client) { c.baseErr = err } }

// pinned is how a holder of a token talks to its cluster; nil: without TLS.
func pinned(t keys.Token) *tls.Config {
	if t.CA == (keys.Hash{}) {
		return nil
	}
	return keys.ClientConfig(t.CA)
}

// readable refuses an address to which the token of a cluster with TLS would go for everybody in between to read.
func readable(base string) error {
	if _, socket := socketPath(strings.TrimPrefix(base, "http://")); socket || !strings.HasPrefix(base, "http://") {
		return nil
	}
	return job.Invalid("addr", "use https://, or leave the scheme out",
		"%s is a URL without TLS, and the token belongs to a cluster with TLS", base)
}

// WithLeaderToken has a worker's calls carry an API token with the role worker; see WithToken.
func WithLeaderToken(text string) LeaderOption {
	return func(l *Leader) {
		t, err := keys.ParseToken(keys.APIToken, text)
		if err != nil {
			l.addrsErr = err
			return
		}
		l.token = t.Text()
		if cfg := pinned(t); cfg != nil {
			WithTLS(cfg)(l)
		}
	}
}

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

// ResumeToken makes a suspended API token valid again, by its id or name.
func (c *Client) ResumeToken(ctx context.Context, ref string) (Token, error) {
	var t Token
	err := c.do(ctx, request{method: http.MethodPost, path: prefix + "/tokens/" + url.PathEscape(ref) + ":resume",
		out: &t, need: "id"})
	return t, err
}

// grantPause is between two questions for what a token grants.
const grantPause = time.Second

// Granted is Whoami for a worker that is about to start. A cluster that does not answer is waited for, as it is when
// the worker registers; waiting is told why, once.
func (c *Client) Granted(ctx context.Context, waiting func(error)) (Whoami, error) {
	said := false
	for refusals := 0; ; {
		who, err := c.Whoami(ctx)
		pause := grantPause
		switch job.CodeOf(err) {
		case job.CodeUnavailable, job.CodeNoLeader, job.CodeNotReady, job.CodeOutcomeUnknown, job.CodeTooManyRequests:
			if !said {
				waiting(err)
			}
			said = true
		case job.CodeUnauthenticated: // one that was just made may not be known everywhere
			if refusals++; refusals >= worker.MaxRefusals {
				return who, err
			}
			pause = grantPause / 3
		default:
			return who, err
		}
		if !wait.For(ctx, pause) {
			return who, ctx.Err()
		}
	}
}
