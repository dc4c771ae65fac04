package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// tokenRoutes are about API tokens.
func tokenRoutes() []route {
	return []route{
		{"POST", "/tokens", Admin, ToLeader, Control, jsonBody, (*call).createToken, nil},
		{"GET", "/tokens", Admin, ToLeader, Control, emptyBody, (*call).listTokens, params("stale")},
		{"POST", "/tokens/{ref}:revoke", Admin, ToLeader, Control, emptyBody, (*call).revokeToken, nil},
		{"POST", "/tokens/{ref}:resume", Admin, ToLeader, Control, emptyBody, (*call).resumeToken, nil},
	}
}

// TokenBackend is what the routes of tokens stand on.
type TokenBackend interface {
	// CreateToken makes a token. The answer has its text, unless it repeats an earlier one: that is kept nowhere.
	CreateToken(ctx context.Context, t wire.TokenRequest, rq Request) (wire.TokenCreated, error)
	Tokens(ctx context.Context, rd Read) ([]wire.Token, error)
	// RevokeToken ends a token, which is named by its id, or by its name if that is in use.
	RevokeToken(ctx context.Context, ref string, rq Request) (wire.Token, error)
	// ResumeToken makes a suspended token valid again; it is named by its id, or by its name.
	ResumeToken(ctx context.Context, ref string, rq Request) (wire.Token, error)
}

// maxTokenList bounds what a worker's token lists.
const maxTokenList = 256

func (c *call) createToken() error {
	var t wire.TokenRequest
	if err := job.DecodeStrict(c.body, &t); err != nil {
		return err
	}
	if err := checkToken(&t); err != nil {
		return err
	}
	if t.Shell {
		if err := MayGrant(c.r.Context(), "shell", "create a token that may"); err != nil {
			return err
		}
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	made, err := c.h.backend.CreateToken(c.ctx, t, rq)
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", prefix+"/tokens/"+made.ID)
	return c.reply(http.StatusCreated, made)
}

func checkToken(t *wire.TokenRequest) error {
	roles := make([]string, len(job.TokenRoles))
	for i, r := range job.TokenRoles {
		roles[i] = string(r)
	}
	worker := t.Role == job.RoleWorker
	switch {
	case t.Name == "":
		return job.Invalid("name", "say what or whom it is for, such as ci", "a token needs a name")
	case !plainName(t.Name):
		return job.Invalid("name", "use up to 100 letters, digits, - _ . @ or spaces", "%q is not a name for a token",
			t.Name)
	case !t.Role.Known():
		return job.Invalid("role", "use "+strings.Join(roles, ", "), "%q is not a role%s", t.Role,
			job.Suggest(string(t.Role), roles))
	case t.Namespace != "" && !job.NamespaceName(t.Namespace):
		return job.CheckNamespace(t.Namespace)
	case t.Shell && t.Role != job.RoleOperator && t.Role != job.RoleAdmin:
		return job.Invalid("shell", "leave it out, or give it the role operator",
			"a token with the role %s cannot write jobs", t.Role)
	case t.TTL < 0:
		return job.Invalid("ttl", "use a duration such as 720h, or leave it out for a token that does not expire",
			"%s is not a valid lifetime", t.TTL)
	case time.Duration(t.TTL) > 0 && time.Duration(t.TTL) < time.Second:
		return job.Invalid("ttl", "use at least 1s", "%s is too short", t.TTL)
	case !worker && (t.Slots != 0 || len(t.Queues)+len(t.Types)+len(t.Tags)+len(t.Secrets) > 0):
		return job.Invalid("role", "give it the role worker, or leave them out",
			"queues, types, tags, slots and secrets are for workers, and the role is %s", t.Role)
	case len(t.Secrets) > maxTokenList:
		return job.Invalid("secrets", `use "*" for all of the namespace`, "%d secrets are more than %d", len(t.Secrets),
			maxTokenList)
	case t.Slots < 0 || t.Slots > job.MaxWorkerSlots:
		return job.Invalid("slots", "leave it out to allow as many as workers may have",
			"%d is not between 0 and %d", t.Slots, job.MaxWorkerSlots)
	case len(t.Queues) > maxTokenList:
		return job.Invalid("queues", "", "%d queues are more than %d", len(t.Queues), maxTokenList)
	case len(t.Tags) > job.MaxTags:
		return job.Invalid("tags", "", "%d tags are more than %d", len(t.Tags), job.MaxTags)
	}
	for i, q := range t.Queues {
		if !job.QueueName(q) {
			return job.Invalid(fmt.Sprintf("queues[%d]", i), "use letters, digits, - _ .",
				"%q is not the name of a queue", q)
		}
	}
	for i, s := range t.Secrets {
		if s != "*" && !job.SecretName(s) {
			return job.Invalid(fmt.Sprintf("secrets[%d]", i), `use the name of a secret, or "*" for all of the namespace`,
				"%q is not the name of a secret", s)
		}
	}
	for i, typ := range t.Types {
		if !slices.Contains(job.Types(), typ) {
			return job.Invalid(fmt.Sprintf("types[%d]", i), "use "+strings.Join(job.Types(), ", "),
				"%q is not a type of job%s", typ, job.Suggest(typ, job.Types()))
		}
	}
	for k, v := range t.Tags {
		if k == "queue" || k == "" || len(k) > job.MaxName || len(v) > job.MaxName {
			return job.Invalid("tags", "use short keys and values; queues has the queues", "%q: %q is not a usable tag",
				k, v)
		}
	}
	return nil
}

// plainName says whether a name can be shown everywhere and be a part of a path.
func plainName(s string) bool {
	return len(s) <= 100 && strings.TrimSpace(s) == s && !strings.ContainsFunc(s, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.@ ", r)
	})
}

func (c *call) listTokens() error {
	rd, err := c.read()
	if err != nil {
		return err
	}
	all, err := c.h.backend.Tokens(c.ctx, rd)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, wire.TokenList{Tokens: list(all)})
}

func (c *call) revokeToken() error {
	rq, err := c.request()
	if err != nil {
		return err
	}
	t, err := c.h.backend.RevokeToken(c.ctx, c.ref(), rq)
	if err != nil {
		return err
	}
	if id := IdentityOf(c.r.Context()); id != nil && id.Token == t.ID {
		c.say("you revoked the token that you used: you need another one")
	}
	if t.Role == job.RoleAdmin && t.Namespace == "" && !c.adminsLeft() {
		c.say("no admin token for all namespaces is left: on a node, `carillon " +
			"--addr unix:DATA_DIR/admin.sock token create NAME --role admin` makes one")
	}
	return c.reply(http.StatusOK, t)
}

// adminsLeft says whether any token can still make tokens by the API, as far as it is known.
func (c *call) adminsLeft() bool {
	all, err := c.h.backend.Tokens(c.ctx, Read{Stale: true})
	return err != nil || slices.ContainsFunc(all, func(t wire.Token) bool {
		return t.Role == job.RoleAdmin && t.Namespace == "" && t.Status == "active" && t.CA != "forgotten"
	})
}

func (c *call) resumeToken() error {
	rq, err := c.request()
	if err != nil {
		return err
	}
	t, err := c.h.backend.ResumeToken(c.ctx, c.ref(), rq)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, t)
}

// whoami says who the caller is to this node, and what they may do.
func (c *call) whoami() error {
	var groups []uint32
	if c.h.opts.Groups != nil {
		groups = c.h.opts.Groups()
	}
	id := IdentityOf(c.r.Context())
	if id == nil {
		return c.reply(http.StatusOK, wire.Whoami{Name: "anyone", Role: job.RoleAdmin, Shell: true, Groups: groups})
	}
	who := wire.Whoami{Secure: true, Token: id.Token, Name: id.Name, Role: id.Role, Namespace: id.Namespace,
		Shell: id.Shell, ExpiresAt: id.Expires, Groups: groups, WorkerGrant: id.Worker}
	if id.Node != "" {
		who.Role = "node"
	}
	return c.reply(http.StatusOK, who)
}
