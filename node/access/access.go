// Package access knows who the tokens of a cluster belong to, as this node's own state says, and ends what a token
// holds open when it is no longer valid.
package access

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Options are what tokens are judged by.
type Options struct {
	Store *store.Store
	Now   func() int64           // ms
	Leads func() bool            // this node has what was committed
	Votes func(node string) bool // the node is a voter

	Refused func(r *http.Request, err error) // is told of requests that are not let through; may be nil
}

const (
	// newsWait is how long a follower waits for a token that it does not know: the leader may have made it a moment
	// ago.
	newsWait = time.Second
	// maxWaiting is how many requests wait for that at a time. Strangers can invent tokens.
	maxWaiting = 32
	// maxUnknown is how many ids are remembered that need not be waited for again.
	maxUnknown = 1024
	// look is how often it is looked whether a token has expired that holds something open.
	look = 250 * time.Millisecond
)

// Tokens implements api.Auth.
type Tokens struct {
	o       Options
	waiting chan struct{}

	mu      sync.Mutex
	held    map[string]map[*hold]struct{} // by id
	changed chan struct{}                 // closed and replaced when rows changed
	unknown map[string]struct{}           // ids that were waited for in vain since then
}

type hold struct{ end func(error) }

var _ api.Auth = (*Tokens)(nil)

// Refused implements api.Auth.
func (t *Tokens) Refused(r *http.Request, err error) {
	if t.o.Refused != nil {
		t.o.Refused(r, err)
	}
}

// New makes the tokens of a node.
func New(o Options) *Tokens {
	t := &Tokens{o: o, waiting: make(chan struct{}, maxWaiting), held: map[string]map[*hold]struct{}{},
		changed: make(chan struct{}), unknown: map[string]struct{}{}}
	o.Store.Listen(func(c *store.Changes) {
		if c.Tokens || c.Reset {
			t.mu.Lock()
			defer t.mu.Unlock()
			close(t.changed)
			t.changed = make(chan struct{})
			clear(t.unknown)
		}
	})
	return t
}

// Votes implements api.Auth.
func (t *Tokens) Votes(node string) bool { return t.o.Votes(node) }

// Authenticate implements api.Auth. Only who has the secret is told what became of a token.
func (t *Tokens) Authenticate(ctx context.Context, tok keys.Token, patient bool) (api.Identity, error) {
	row, ok := t.o.Store.Token(tok.ID)
	if !ok && patient {
		row, ok = t.find(ctx, tok.ID)
	}
	if !ok || len(row.Sum) != len(keys.Sum{}) || !keys.Sum(row.Sum).Equal(tok.Sum()) {
		return api.Identity{}, job.Errorf(job.CodeUnauthenticated,
			"use a token of this cluster; `carillon token list` lists them",
			"this cluster does not know the token %s", tok.ID)
	}
	if err := t.ended(row); err != nil {
		return api.Identity{Token: row.ID}, err
	}
	return api.Identity{Token: row.ID, Name: row.Name, Role: job.TokenRole(row.Role), Namespace: row.Namespace,
		Shell: row.Shell, Expires: job.Instant(row.ExpiresAt),
		Worker: wire.WorkerGrant{Queues: row.Worker.Queues, Types: row.Worker.Types, Tags: row.Worker.Tags,
			Slots: row.Worker.Slots, Secrets: row.Worker.Secrets}}, nil
}

// find waits a moment for the row of a token on a node that follows.
func (t *Tokens) find(ctx context.Context, id string) (*store.Token, bool) {
	if row, ok := t.o.Store.Token(id); ok || t.o.Leads() || t.inVain(id) {
		return row, ok
	}
	select {
	case t.waiting <- struct{}{}:
		defer func() { <-t.waiting }()
	default:
		return nil, false
	}
	limit := time.NewTimer(newsWait)
	defer limit.Stop()
	for {
		news := t.news() // before the look: nothing falls between
		if row, ok := t.o.Store.Token(id); ok {
			return row, true
		}
		select {
		case <-news:
		case <-limit.C:
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.changed == news && len(t.unknown) < maxUnknown {
				t.unknown[id] = struct{}{}
			}
			return nil, false
		case <-ctx.Done():
			return nil, false
		}
	}
}

// inVain says that a token was waited for, and that nothing has changed since.
func (t *Tokens) inVain(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.unknown[id]
	return ok
}

func (t *Tokens) news() chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// ended is why a token is not valid; nil if it is.
func (t *Tokens) ended(row *store.Token) error {
	const another = "use another token; an admin makes one with `carillon token create`"
	now := t.o.Now()
	switch {
	case row.Usable(now):
		return nil
	case row.RevokedAt != 0:
		return job.Errorf(job.CodeUnauthenticated, another, "the token %s (%s) was revoked at %s", row.ID, row.Name,
			job.Instant(row.RevokedAt))
	case row.Suspended:
		return job.Errorf(job.CodeUnauthenticated,
			"use another token, or let an admin run `carillon token resume "+row.ID+
				"` (on a node's machine also with --addr unix:DATA_DIR/admin.sock)",
			"the token %s (%s) is suspended: it comes from a restored backup, or others may have had the keys of the "+
				"cluster", row.ID, row.Name)
	}
	return job.Errorf(job.CodeUnauthenticated, another, "the token %s (%s) expired at %s", row.ID, row.Name,
		job.Instant(row.ExpiresAt))
}

// Hold implements api.Auth.
func (t *Tokens) Hold(id string, end func(error)) (stop func()) {
	h := &hold{end: end}
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.held[id]
	if all == nil {
		all = map[*hold]struct{}{}
		t.held[id] = all
	}
	all[h] = struct{}{}
	// It may have been revoked between the look and this.
	if row, ok := t.o.Store.Token(id); ok {
		if err := t.ended(row); err != nil {
			t.endLocked(id, err)
		}
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.held[id], h)
		if len(t.held[id]) == 0 {
			delete(t.held, id)
		}
	}
}

func (t *Tokens) endLocked(id string, err error) {
	all := t.held[id]
	delete(t.held, id)
	for h := range all {
		h.end(err)
	}
}

// Run ends what tokens hold open that were revoked or have expired, until ctx ends.
func (t *Tokens) Run(ctx context.Context) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		news := t.news()
		t.sweep()
		select {
		case <-ctx.Done():
			return
		case <-news:
		case <-tick.C:
		}
	}
}

func (t *Tokens) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id := range t.held {
		row, ok := t.o.Store.Token(id)
		if !ok { // made room for another, or gone with the state that it was in
			row = &store.Token{ID: id, Name: "unknown", RevokedAt: t.o.Now()}
		}
		if err := t.ended(row); err != nil {
			t.endLocked(id, err)
		}
	}
}
