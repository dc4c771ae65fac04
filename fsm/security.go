package fsm

import (
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// MaxJoinTokens bounds how many valid join tokens there are.
	MaxJoinTokens = 100
	// MaxJoinUses bounds how many nodes one lets in.
	MaxJoinUses = 1000
)

// MakeSecure makes a cluster a secure one, for good. The first leader with keys proposes it.
type MakeSecure struct {
	Head `codec:"h"`
	CA   string          `codec:"c"`
	Join store.JoinToken `codec:"j"` // that was made with the keys; no id: none
}

func (c *MakeSecure) apply(a *applier) error {
	info := a.b.Info()
	h, err := keys.ParseHash(c.CA)
	switch {
	case info.ClusterID == "":
		return a.refused("the cluster has no id yet")
	case err != nil || h == (keys.Hash{}):
		return a.refused("the hash of the CA is damaged")
	case info.Security.CA == c.CA:
		a.outcome(Outcome{Code: CodeOK})
		return nil
	case info.Security.CA != "":
		return a.refused("the cluster has another CA: give this node the keys of the others, or empty its data " +
			"directory and let it rejoin")
	}
	info.Security.CA = c.CA
	a.b.SetInfo(info)
	if c.Join.ID != "" {
		if o := a.createJoin(c.Join); o.Code != CodeOK {
			a.outcome(o)
			return nil
		}
	}
	a.outcome(Outcome{Code: CodeOK, Count: 1})
	return nil
}

func (a *applier) refused(text string) error {
	a.outcome(Outcome{Code: CodeRefused, Text: text})
	return nil
}

// CreateJoinToken makes a join token. When it was created is set in apply.
type CreateJoinToken struct {
	Head    `codec:"h"`
	Request Request         `codec:"q"`
	Token   store.JoinToken `codec:"t"`
}

func (c *CreateJoinToken) apply(a *applier) error {
	return a.once(c.Request, func(a *applier) (Outcome, error) { return a.createJoin(c.Token), nil })
}

// createJoin answers with the id of the token in Text.
func (a *applier) createJoin(t store.JoinToken) Outcome {
	info := a.b.Info()
	refuse := func(format string, args ...any) Outcome {
		return Outcome{Code: CodeRefused, Text: fmt.Sprintf(format, args...)}
	}
	if _, taken := info.Security.Join(t.ID); taken {
		return refuse("the id %s is taken", t.ID)
	}
	switch {
	case info.Security.CA == "":
		return refuse("the cluster is not secure: nodes join it without a token")
	case !keys.TokenID(t.ID) || len(t.Sum) != len(keys.Sum{}):
		return refuse("a token needs an id and the SHA-256 of its secret")
	case t.Uses < 1 || t.Uses > MaxJoinUses:
		return refuse("a join token is for 1 to %d nodes", MaxJoinUses)
	case t.ExpiresAt <= a.now:
		return refuse("its expiry time has passed")
	case len(t.CreatedBy) > job.MaxName:
		return refuse("a name is too long")
	}
	t.CreatedAt, t.Used, t.RevokedAt = a.now, 0, 0
	s := info.Security
	if len(s.Joins) >= MaxJoinTokens { // those that are not valid are only kept to be looked at
		s.Joins = slices.DeleteFunc(slices.Clone(s.Joins), func(o store.JoinToken) bool { return o.Ended(a.now) != "" })
		if len(s.Joins) >= MaxJoinTokens {
			return refuse("there are %d join tokens already: revoke some", MaxJoinTokens)
		}
	}
	info.Security = s.Put(t)
	a.b.SetInfo(info)
	return Outcome{Code: CodeOK, Text: t.ID, Count: 1}
}

// RevokeJoinToken ends a join token. Nodes that joined with it stay.
type RevokeJoinToken struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
	ID      string  `codec:"i"`
}

func (c *RevokeJoinToken) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *RevokeJoinToken) do(a *applier) (Outcome, error) {
	info := a.b.Info()
	t, ok := info.Security.Join(c.ID)
	switch {
	case !ok:
		return Outcome{Code: CodeNotFound}, nil
	case t.RevokedAt != 0:
		return Outcome{Code: CodeOK, Text: t.ID}, nil
	}
	t.RevokedAt = max(a.now, 1)
	info.Security = info.Security.Put(t)
	a.b.SetInfo(info)
	return Outcome{Code: CodeOK, Text: t.ID, Count: 1}, nil
}

// useJoin counts a use of a join token, or says why it does not let a node in that votes or is on standby. That is
// decided where the row is written: of two nodes that come with the last use, one is let in.
func (a *applier) useJoin(id string, standby bool) string {
	info := a.b.Info()
	t, ok := info.Security.Join(id)
	if !ok {
		return "this cluster has no join token " + id
	}
	if why := t.Ended(a.now); why != "" {
		return "the join token " + id + " " + why
	}
	if !t.Voter && !standby {
		return "the join token " + id + " gives no vote"
	}
	t.Used++
	info.Security = info.Security.Put(t)
	a.b.SetInfo(info)
	return ""
}
