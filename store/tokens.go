package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

// Token is an API token's row: who it lets in, and to what. Of the secret there is only its SHA-256.
type Token struct {
	ID   string `json:"id" codec:"i"`
	Name string `json:"name" codec:"n"`
	Sum  []byte `json:"sum" codec:"s"`
	Role string `json:"role" codec:"r"`
	// CA is the hash of the CA in its text: its holder knows the cluster by that one.
	CA string `json:"ca,omitempty" codec:"ca,omitempty"`
	// Namespace is the one that the token is for; empty: all.
	Namespace string      `json:"namespace,omitempty" codec:"ns,omitempty"`
	Shell     bool        `json:"shell,omitempty" codec:"sh,omitempty"` // it may create and edit shell jobs
	Worker    WorkerGrant `json:"worker,omitzero" codec:"w,omitempty"`

	CreatedAt int64  `json:"created_at" codec:"c"` // ms
	CreatedBy string `json:"created_by,omitempty" codec:"cb,omitempty"`
	ExpiresAt int64  `json:"expires_at,omitempty" codec:"e,omitempty"` // ms; 0: never
	RevokedAt int64  `json:"revoked_at,omitempty" codec:"x,omitempty"` // ms; 0: it is not
	RevokedBy string `json:"revoked_by,omitempty" codec:"xb,omitempty"`
	// Suspended says that the token counts for nothing until an admin resumes it: it came with a backup and may have
	// been revoked since, or was there when others may have had the keys of the cluster.
	Suspended bool `json:"suspended,omitempty" codec:"su,omitempty"`
}

// WorkerGrant bounds what a worker may do that registers with a token. What is empty is not bounded.
type WorkerGrant struct {
	Queues []string          `json:"queues,omitempty" codec:"q,omitempty"`
	Types  []string          `json:"types,omitempty" codec:"t,omitempty"`
	Tags   map[string]string `json:"tags,omitempty" codec:"g,omitempty"` // that its workers have, whatever they say
	Slots  int               `json:"slots,omitempty" codec:"s,omitempty"`
	// Secrets that its workers may be handed, "*" for all of the namespace. Empty is none.
	Secrets []string `json:"secrets,omitempty" codec:"x,omitempty"`
}

// Usable says whether the token lets anybody in at a time.
func (t *Token) Usable(now int64) bool {
	return t.RevokedAt == 0 && !t.Suspended && (t.ExpiresAt == 0 || now < t.ExpiresAt)
}

// tokenIndex has the rows of all tokens by id. It is not changed once it is published: every request looks into it, and
// none may wait for a commit.
type tokenIndex map[string]*Token

func readTokens(tx *bolt.Tx) (tokenIndex, error) {
	x := tokenIndex{}
	err := tx.Bucket(bucketTokens).ForEach(func(k, v []byte) error {
		t, err := decodeToken(v)
		if err == nil && t.ID != string(k) {
			err = fmt.Errorf("%w: the token %q is about %q", ErrCorrupt, k, t.ID)
		}
		x[string(k)] = &t
		return err
	})
	return x, err
}

func decodeToken(v []byte) (t Token, err error) {
	if err := json.Unmarshal(v, &t); err != nil {
		return t, fmt.Errorf("%w: token: %w", ErrCorrupt, err)
	}
	return t, nil
}

// Token is a token's row as of the newest commit. It does not wait for anything; the row must not be changed.
func (s *Store) Token(id string) (*Token, bool) {
	t, ok := (*s.tokens.Load())[id]
	return t, ok
}

// Tokens are all rows as of the newest commit, by time of creation. They must not be changed.
func (s *Store) Tokens() []*Token { return (*s.tokens.Load()).sorted() }

func (x tokenIndex) sorted() []*Token {
	return slices.SortedFunc(maps.Values(x), func(a, b *Token) int {
		switch {
		case a.CreatedAt != b.CreatedAt && a.CreatedAt < b.CreatedAt, a.CreatedAt == b.CreatedAt && a.ID < b.ID:
			return -1
		}
		return 1
	})
}

// Tokens are all rows as the batch has them so far, by time of creation. They must not be changed.
func (b *Batch) Tokens() []*Token { return b.seeTokens().sorted() }

// Token is a row as the batch has it so far.
func (b *Batch) Token(id string) (Token, bool) {
	t, ok := b.seeTokens()[id]
	if !ok {
		return Token{}, false
	}
	return *t, true
}

func (b *Batch) seeTokens() tokenIndex {
	if b.tokens != nil {
		return b.tokens
	}
	return b.idx.tokens
}

// stageTokens are the rows, to be changed.
func (b *Batch) stageTokens() tokenIndex {
	if b.tokens == nil {
		b.tokens = maps.Clone(b.idx.tokens)
	}
	b.changes.Tokens = true
	return b.tokens
}

// PutToken writes a token's row.
func (b *Batch) PutToken(t Token) error {
	v, err := json.Marshal(t)
	if err != nil {
		return err
	}
	b.stageTokens()[t.ID] = &t
	return b.tx.Bucket(bucketTokens).Put([]byte(t.ID), v)
}

// DropToken removes a token's row.
func (b *Batch) DropToken(id string) error {
	delete(b.stageTokens(), id)
	return b.tx.Bucket(bucketTokens).Delete([]byte(id))
}

// SuspendTokens suspends all tokens that are not revoked, except the one with an id, and says how many.
func (b *Batch) SuspendTokens(except string) (n int, err error) {
	for _, t := range b.Tokens() {
		if t.RevokedAt != 0 || t.Suspended || t.ID == except {
			continue
		}
		s := *t
		s.Suspended = true
		if err := b.PutToken(s); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// publishTokens is part of Commit.
func (b *Batch) publishTokens() {
	if b.tokens != nil {
		b.idx.tokens = b.tokens
		b.s.showTokens()
	}
}

// showTokens lets requests see the rows of the index. It is called with the lock held.
func (s *Store) showTokens() {
	x := s.idx.tokens
	s.tokens.Store(&x)
}

// checkTokens looks at the rows of the tokens, and holds the index against them.
func (c *checker) checkTokens(have *index) {
	for id, t := range c.idx.tokens {
		if !keys.TokenID(id) || len(t.Sum) != len(keys.Sum{}) || t.Role == "" {
			c.bad("the row of token %q makes no sense", id)
		}
		if h := have.tokens[id]; h == nil || h.RevokedAt != t.RevokedAt || h.Suspended != t.Suspended ||
			string(h.Sum) != string(t.Sum) {
			c.bad("the index has the token %q otherwise than the file", id)
		}
	}
	if len(have.tokens) != len(c.idx.tokens) {
		c.bad("the index has %d tokens, the file %d", len(have.tokens), len(c.idx.tokens))
	}
}
