package fsm

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// MaxTokens bounds how many tokens there are: all of them are kept in memory.
const MaxTokens = 10_000

// CreateToken makes an API token. Whose it is and what it lets in is in its row; when it was created is set in apply.
type CreateToken struct {
	Head    `codec:"h"`
	Request Request     `codec:"q"`
	Token   store.Token `codec:"t"`
}

func (c *CreateToken) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *CreateToken) do(a *applier) (Outcome, error) { return a.createToken(c.Token) }

// createToken answers with the id of the token in Text.
func (a *applier) createToken(t store.Token) (Outcome, error) {
	if why := wrongToken(&t); why != "" {
		return Outcome{Code: CodeRefused, Text: why}, nil
	}
	all := a.b.Tokens()
	for _, o := range all {
		if o.ID == t.ID {
			return Outcome{Code: CodeRefused, Text: "the id " + t.ID + " is taken"}, nil
		}
		if o.Name == t.Name && o.Usable(a.now) {
			return Outcome{Code: CodeDuplicate, Text: o.ID}, nil
		}
	}
	if len(all) >= MaxTokens {
		// Those that are no longer valid are only kept to be looked at.
		oldest := -1
		for i, o := range all {
			if !o.Usable(a.now) && (oldest < 0 || tokenEnd(o) < tokenEnd(all[oldest])) {
				oldest = i
			}
		}
		if oldest < 0 {
			return Outcome{Code: CodeRefused, Text: fmt.Sprintf("there are %d tokens already: revoke some", MaxTokens)},
				nil
		}
		if err := a.b.DropToken(all[oldest].ID); err != nil {
			return Outcome{}, err
		}
	}
	t.CreatedAt, t.RevokedAt, t.RevokedBy, t.Suspended = a.now, 0, "", false
	return Outcome{Code: CodeOK, Text: t.ID, Count: 1}, a.b.PutToken(t)
}

// tokenEnd is when a token that is not usable ceased to be.
func tokenEnd(t *store.Token) int64 {
	if t.RevokedAt != 0 {
		return t.RevokedAt
	}
	return t.ExpiresAt
}

const maxGrant = 256 // of queues, types and tags of a worker's token

// wrongToken says why a row cannot be stored; "" if it can.
func wrongToken(t *store.Token) string {
	g := &t.Worker
	granted := len(g.Queues)+len(g.Types)+len(g.Tags)+len(g.Secrets) > 0 || g.Slots != 0
	switch {
	case !keys.TokenID(t.ID) || len(t.Sum) != len(keys.Sum{}):
		return "a token needs an id and the SHA-256 of its secret"
	case t.Name == "" || len(t.Name) > job.MaxName || strings.ContainsFunc(t.Name, unicode.IsControl):
		return "a token needs a name of reasonable length"
	case !job.TokenRole(t.Role).Known():
		return fmt.Sprintf("there is no role %q", t.Role)
	case len(t.Namespace) > job.MaxName || len(t.CreatedBy) > job.MaxName:
		return "a name is too long"
	case t.ExpiresAt < 0:
		return "its expiry time is out of range"
	case granted && job.TokenRole(t.Role) != job.RoleWorker:
		return "queues, types, tags, slots and secrets are for tokens of workers"
	case len(g.Queues) > maxGrant || len(g.Types) > maxGrant || len(g.Tags) > maxGrant ||
		len(g.Secrets) > maxGrant || g.Slots < 0:
		return "what it grants to workers is out of range"
	}
	for _, list := range [][]string{g.Queues, g.Types} {
		for _, s := range list {
			if s == "" || len(s) > job.MaxName {
				return "the name of a queue or type is empty or too long"
			}
		}
	}
	for _, s := range g.Secrets {
		if s != "*" && !job.SecretName(s) {
			return fmt.Sprintf("%q is not the name of a secret", s)
		}
	}
	for k, v := range g.Tags {
		if k == "" || len(k)+len(v) > 2*job.MaxName {
			return "a tag is empty or too long"
		}
	}
	return ""
}

// ResumeToken makes a suspended token valid again. One that was revoked stays so.
type ResumeToken struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
	ID      string  `codec:"i"`
}

func (c *ResumeToken) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *ResumeToken) object(a *applier) (object, error) { return a.tokenObject(c.ID) }

func (c *ResumeToken) do(a *applier) (Outcome, error) {
	t, ok := a.b.Token(c.ID)
	switch {
	case !ok:
		return Outcome{Code: CodeNotFound}, nil
	case t.RevokedAt != 0:
		return Outcome{Code: CodeRefused, Text: "the token was revoked for good: create another one"}, nil
	case !t.Suspended:
		return Outcome{Code: CodeOK, Text: t.ID}, nil
	}
	for _, o := range a.b.Tokens() {
		if o.ID != t.ID && o.Name == t.Name && o.Usable(a.now) {
			return Outcome{Code: CodeDuplicate, Text: o.ID}, nil
		}
	}
	t.Suspended = false
	return Outcome{Code: CodeOK, Text: t.ID, Count: 1}, a.b.PutToken(t)
}

// RevokeToken ends a token. Its row stays, for those who look for who it was.
type RevokeToken struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
	ID      string  `codec:"i"`
	By      string  `codec:"b,omitempty"`
}

func (c *RevokeToken) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *RevokeToken) do(a *applier) (Outcome, error) {
	t, ok := a.b.Token(c.ID)
	switch {
	case !ok:
		return Outcome{Code: CodeNotFound}, nil
	case t.RevokedAt != 0:
		return Outcome{Code: CodeOK, Text: t.ID}, nil
	case len(c.By) > job.MaxName:
		return Outcome{Code: CodeRefused, Text: "a name is too long"}, nil
	}
	t.RevokedAt, t.RevokedBy = max(a.now, 1), c.By
	return Outcome{Code: CodeOK, Text: t.ID, Count: 1}, a.b.PutToken(t)
}
