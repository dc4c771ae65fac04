package store

import "slices"

// Security is what a secure cluster knows of its keys. They themselves are in files of the voters.
type Security struct {
	// CA is the hash of the CA that signs the certificates of nodes, as tokens have it; empty: the cluster is plain.
	CA string `json:"ca,omitempty"`
	// Joins are the join tokens, oldest first. There are few: each is valid for an hour.
	Joins []JoinToken `json:"joins,omitempty"`
}

// JoinToken is a token that lets nodes join. Its secret is derived from the cluster key; here is only its SHA-256.
type JoinToken struct {
	ID        string `json:"id" codec:"i"`
	Sum       []byte `json:"sum" codec:"s"`
	CreatedAt int64  `json:"created_at" codec:"c"` // ms
	CreatedBy string `json:"created_by,omitempty" codec:"b,omitempty"`
	ExpiresAt int64  `json:"expires_at" codec:"e"`     // ms
	Uses      int    `json:"uses" codec:"u"`           // how many nodes may join with it
	Used      int    `json:"used" codec:"n,omitempty"` // how many have
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
