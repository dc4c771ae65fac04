package store

import (
	"slices"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

// Security is what a secure cluster knows of its keys. They themselves are in files of the voters.
type Security struct {
	// CA is the hash of the CA that signs the certificates of nodes, as tokens have it; empty: the cluster is plain.
	CA string `json:"ca,omitempty"`
	// Cert is the certificate of that CA, in DER; none: the cluster began with it.
	Cert []byte `json:"cert,omitempty"`
	// Former are the CAs that were replaced, newest first.
	Former []FormerCA `json:"former,omitempty"`
	// Rotation is under way; nil: none is.
	Rotation *Rotation `json:"rotation,omitempty"`
	// Joins are the join tokens, oldest first. There are few: each is valid for an hour.
	Joins []JoinToken `json:"joins,omitempty"`
}

// FormerCA is a CA that was replaced, or whose rotation was given up.
type FormerCA struct {
	CA    string `json:"ca"`
	Cert  []byte `json:"cert"`
	Cross []byte `json:"cross,omitempty"` // its successor's certificate, signed by it; none: it is not trusted
	// Aborted says that it never was in use. Cross is then its own certificate, signed by the CA in use.
	Aborted bool `json:"aborted,omitempty"`
}

// Rotation is a CA that takes the place of the one in use, when every member has confirmed it.
type Rotation struct {
	CA    string `json:"ca" codec:"a"`
	Cert  []byte `json:"cert" codec:"c"`
	Old   []byte `json:"old" codec:"o"`                       // the certificate of the CA that it replaces
	Cross []byte `json:"cross,omitempty" codec:"x,omitempty"` // Cert, signed by the CA that it replaces
	// Distrust says that the CA that is replaced no longer vouches for any node: its key may be known to others.
	Distrust  bool        `json:"distrust,omitempty" codec:"d,omitempty"`
	StartedAt int64       `json:"started_at" codec:"s"` // ms
	StartedBy string      `json:"started_by,omitempty" codec:"b,omitempty"`
	Confirmed []Confirmed `json:"confirmed,omitempty" codec:"f,omitempty"`
}

// Confirmed is a member that shows a certificate of the new CA, and has the new keys if it votes.
type Confirmed struct {
	Node     string `json:"node" codec:"n"`
	Instance string `json:"instance" codec:"i"`
}

// Has says whether a member has confirmed.
func (r *Rotation) Has(node, instance string) bool {
	return slices.Contains(r.Confirmed, Confirmed{node, instance})
}

// JoinToken is a token that lets nodes join. Its secret is derived from the cluster key; here is only its SHA-256.
type JoinToken struct {
	ID        string `json:"id" codec:"i"`
	Sum       []byte `json:"sum" codec:"s"`
	CreatedAt int64  `json:"created_at" codec:"c"` // ms
	CreatedBy string `json:"created_by,omitempty" codec:"b,omitempty"`
	ExpiresAt int64  `json:"expires_at" codec:"e"`                // ms
	Uses      int    `json:"uses" codec:"u"`                      // how many nodes may join with it
	Used      int    `json:"used" codec:"n,omitempty"`            // how many have
	Voter     bool   `json:"voter,omitempty" codec:"v,omitempty"` // they get a vote, and with it the cluster's keys
	RevokedAt int64  `json:"revoked_at,omitempty" codec:"r,omitempty"`
}

// Ended says why the token is not valid at a time; "" if it is.
func (t *JoinToken) Ended(now int64) string {
	switch {
	case t.RevokedAt != 0:
		return "was revoked"
	case now >= t.ExpiresAt:
		return "has expired"
	case t.Used >= t.Uses:
		return "is used up"
	}
	return ""
}

// Knows says whether a CA is, was or is about to be that of the cluster.
func (s Security) Knows(ca string) bool {
	return ca == s.CA || s.Rotation != nil && s.Rotation.CA == ca ||
		slices.ContainsFunc(s.Former, func(f FormerCA) bool { return f.CA == ca })
}

// What a CA is to who knows the cluster by it.
const (
	CACurrent   = "current"   // it is in use
	CAFormer    = "former"    // it was replaced, and vouches for those that followed
	CALeaving   = "leaving"   // as former, until the next rotation ends, or the one that is under way
	CAForgotten = "forgotten" // nodes do not show it any more, or never did: who knows the cluster by it cannot get in
)

// Standing is what a CA is to who knows the cluster by it; "" if it has none.
func (s Security) Standing(ca string) string {
	h, err := keys.ParseHash(ca)
	distrust := s.Rotation != nil && s.Rotation.Distrust
	switch {
	case s.CA == "" || err != nil || h == (keys.Hash{}):
		return ""
	case s.Rotation != nil && s.Rotation.CA == ca, s.CA == ca && !distrust:
		return CACurrent
	case s.CA == ca:
		return CALeaving
	case distrust:
		return CAForgotten
	}
	replaced := 0
	for _, f := range s.Former {
		switch {
		case f.Aborted:
			continue
		case len(f.Cross) == 0: // not trusted, and so none before it
			return CAForgotten
		case f.CA != ca:
			replaced++
			continue
		case replaced >= keys.MaxFormer-1:
			return CALeaving
		}
		return CAFormer
	}
	return CAForgotten
}

// Join is the join token with an id.
func (s Security) Join(id string) (JoinToken, bool) {
	i := slices.IndexFunc(s.Joins, func(t JoinToken) bool { return t.ID == id })
	if i < 0 {
		return JoinToken{}, false
	}
	return s.Joins[i], true
}

// Put is the security with a join token replaced or added. What readers hold stays as it is.
func (s Security) Put(t JoinToken) Security {
	s.Joins = slices.Clone(s.Joins)
	if i := slices.IndexFunc(s.Joins, func(o JoinToken) bool { return o.ID == t.ID }); i >= 0 {
		s.Joins[i] = t
	} else {
		s.Joins = append(s.Joins, t)
	}
	return s
}
