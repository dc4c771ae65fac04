// Package membudget bounds the bytes of requests and answers that a node has in memory, over all connections. A limit
// of each request does not add up to that: a node has many thousand connections.
package membudget

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Limits are the sizes of the pools, in bytes. Zero values take the defaults.
type Limits struct {
	Callers   int64         // bodies of holders of tokens, and on a plain cluster of all; default 128 MiB
	Bulk      int64         // chunks of their bulk creates; default 64 MiB
	Members   int64         // bodies of other nodes and of the admin socket; default 64 MiB
	Strangers int64         // bodies of callers without a token, where one is asked for; default 4 MiB
	Answers   int64         // answers made here, until their callers have taken them; default 32 MiB
	Forwarded int64         // answers of the leader that are kept until they are whole; default 32 MiB
	Wait      time.Duration // how long a body waits for room; default 5 s
}

// Kind is what is known of a caller. Each kind has a pool of its own, so that none waits behind callers of whom less is
// known.
type Kind uint8

// The kinds.
const (
	Caller   Kind = iota // the holder of a token, or anybody on a plain cluster
	Member               // a node, or the admin socket of one
	Stranger             // shows no token on a cluster that asks for one
)

// Who makes a request.
type Who struct {
	Kind  Kind
	Token string // its id; empty: it has no share of its own
}

const (
	// tokenShare is which part of a pool one token may have: who sends slowly keeps only themselves waiting.
	tokenShare = 4
	// MostOfStranger is what is read of a body that comes without a token: nothing is known of its sender yet.
	MostOfStranger = 16 << 10
	// smallOfMember is up to which size messages of members do not wait. By those, members find out who leads and who
	// is alive.
	smallOfMember = 16 << 10
)

// Budget is what a node has for the requests that it works on.
type Budget struct {
	wait                                                  time.Duration
	callers, bulk, members, strangers, answers, forwarded *pool
}

// New makes a budget.
func New(l Limits) *Budget {
	return &Budget{wait: cmp.Or(l.Wait, 5*time.Second), callers: newPool(cmp.Or(l.Callers, 128<<20)),
		bulk: newPool(cmp.Or(l.Bulk, 64<<20)), members: newPool(cmp.Or(l.Members, 64<<20)),
		strangers: newPool(cmp.Or(l.Strangers, 4<<20)), answers: newPool(cmp.Or(l.Answers, 32<<20)),
		forwarded: newPool(cmp.Or(l.Forwarded, 32<<20))}
}

// Use is what is held of a pool.
type Use struct {
	Held, Most int64 // now, and at any time
	Waiting    int   // requests
}

// Uses are those of all pools, by name.
func (b *Budget) Uses() map[string]Use {
	return map[string]Use{"callers": b.callers.use(), "bulk": b.bulk.use(), "members": b.members.use(),
		"strangers": b.strangers.use(), "answers": b.answers.use(), "forwarded": b.forwarded.use()}
}

// account is what one request holds.
type account struct {
	b      *Budget
	who    Who
	nested bool

	mu    sync.Mutex
	all   []*Held
	first [2]*Held // room for all of most requests: a body and an answer
}

type accountKey struct{}

// Begin opens the account of a request, in its context. What it still holds at its end is given back then.
func (b *Budget) Begin(ctx context.Context, who Who) (_ context.Context, end func()) {
	return open(ctx, &account{b: b, who: who})
}

func open(ctx context.Context, a *account) (_ context.Context, end func()) {
	a.all = a.first[:0]
	return context.WithValue(ctx, accountKey{}, a), a.end
}

// Nested is for a request that another one makes, which has taken its answer when it ends. It is counted and never
// waits: the other one would wait for it with its own part in hand, and if all did so, none would get on.
func Nested(ctx context.Context) (_ context.Context, end func()) { return inner(ctx, true) }

// Part is the same for one that waits as any other. The other one must hold nothing of what it may wait for.
func Part(ctx context.Context) (_ context.Context, end func()) { return inner(ctx, false) }

func inner(ctx context.Context, nested bool) (_ context.Context, end func()) {
	outer := of(ctx)
	if outer == nil {
		return ctx, func() {}
	}
	return open(ctx, &account{b: outer.b, who: outer.who, nested: nested})
}

func of(ctx context.Context) *account {
	a, _ := ctx.Value(accountKey{}).(*account)
	return a
}

func (a *account) end() {
	a.mu.Lock()
	all := a.all
	a.all = nil
	a.mu.Unlock()
	for _, held := range all {
		held.Keep(0)
	}
}

func (a *account) hold(p *pool, n int64) *Held {
	held := &Held{p: p, n: n, of: a}
	switch {
	case p == a.b.forwarded && a.who.Kind == Stranger:
		held.who = "strangers" // they have one share together; ids of tokens have another form
	case a.who.Kind == Caller:
		held.who = a.who.Token
	}
	return held
}

func (a *account) add(held *Held) *Held {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, held)
	return held
}

// body waits for room for a body. A size that is not known is negative: then it is most.
func (a *account) body(ctx context.Context, size, most int64) (*Held, error) {
	if size < 0 {
		size = most
	}
	if a == nil || size == 0 {
		return nil, nil
	}
	p := a.b.callers
	switch a.who.Kind {
	case Stranger:
		p, size = a.b.strangers, min(size, MostOfStranger)
	case Member:
		p = a.b.members
	}
	return a.take(ctx, a.b.wait, p, size)
}

// Chunk waits until ctx ends for room for a chunk of a bulk create. Without an account there is no bound.
func Chunk(ctx context.Context, size int64) (*Held, error) {
	a := of(ctx)
	if a == nil {
		return nil, nil
	}
	p := a.b.bulk
	switch a.who.Kind {
	case Stranger:
		p = a.b.strangers
	case Member:
		p = a.b.members
	}
	return a.take(ctx, 0, p, size)
}

// take waits for room until ctx ends, and no longer than wait if that is not 0.
func (a *account) take(ctx context.Context, wait time.Duration, p *pool, size int64) (*Held, error) {
	held := a.hold(p, size)
	if a.nested || a.who.Kind == Member && size <= smallOfMember {
		held.forced = true
		p.force(held)
		return a.add(held), nil
	}
	held.n = min(size, p.most(held)) // one that is larger gets in when there is nothing else
	if p.acquire(ctx, wait, held) {
		return a.add(held), nil
	}
	if e, ok := context.Cause(ctx).(*job.Error); ok { //nolint:errorlint // it is a cause, and of this type or none
		return nil, e // the token was revoked
	}
	if p == a.b.answers {
		return nil, Unread("; nothing was done")
	}
	return nil, job.Errorf(job.CodeUnavailable, "try again in a moment, with fewer or smaller requests at once",
		"the requests in this node's memory are too large together; nothing was done")
}

// Unread is what a caller is told for whose answer there is no room. also is what else it should know.
func Unread(also string) *job.Error {
	return job.Errorf(job.CodeUnavailable, "read them, and try again in a moment",
		"this node has too many answers in memory that were not read yet%s", also)
}

// What is held of an answer before it is made. Most are smaller.
const (
	RoomOfRead   = 64 << 10 // of one that may be a list
	RoomOfChange = 8 << 10  // of one that takes its time, to be committed for example, and says little then
)

// Answer waits for room for an answer that is to be made here, and holds it until the request has ended, which is when
// its caller has taken it. Fit tells how large it has become.
func Answer(ctx context.Context, room int64) (*Held, error) {
	a := of(ctx)
	if a == nil || a.who.Kind != Caller {
		return nil, nil
	}
	return a.take(ctx, a.b.wait, a.b.answers, room)
}

// Forwarded is a part of the budget for an answer of another node, and grows without waiting.
func Forwarded(ctx context.Context) *Held {
	a := of(ctx)
	if a == nil {
		return nil
	}
	return a.add(a.hold(a.b.forwarded, 0))
}

// Held is a part of the budget. A nil one is without a bound.
type Held struct {
	p      *pool
	who    string
	n      int64 // guarded by the pool
	forced bool  // it does not wait, and grows in any case
	of     *account
}

// Fit makes it n bytes, if there is room for what that is more than before.
func (h *Held) Fit(n int64) bool { return h == nil || h.p.fit(h, n) }

// Grow takes more if there is room.
func (h *Held) Grow(n int64) bool { return h == nil || h.p.grow(h, n) }

// Keep gives back all but n bytes.
func (h *Held) Keep(n int64) {
	if h != nil {
		h.p.keep(h, n)
	}
}

// Release gives all back. It may be called again.
func (h *Held) Release() {
	if h == nil {
		return
	}
	h.Keep(0)
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	h.of.all = slices.DeleteFunc(h.of.all, func(x *Held) bool { return x == h })
}
