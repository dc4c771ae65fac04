package api

import (
	"cmp"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/ratelimit"
	"github.com/carillon-scheduler/carillon/job"
)

// Limits bound what callers may ask of a node. They are counted by the node that is asked: what it passes on to the
// leader is not counted there again.
type Limits struct {
	// Requests is how many one token may make in a second, and twice as many at once after a rest; 0:
	// DefaultTokenRequests. What workers say is not counted: a run must not be lost because many are busy.
	Requests int
	// BadTokens is how many that are none an address may send at once, and as many a minute; 0: DefaultBadTokens.
	BadTokens int
	// Joins is how often an address may ask to join in a minute, and as often at once; 0: DefaultJoins.
	Joins int
	// Refused is told of each request that was refused, with the reason and whose it was; nil: nothing is. It must not
	// block.
	Refused func(reason Refusal, who string)
	// TokenFrom is told where each request with a valid token came from; nil: nothing is. It must not block.
	TokenFrom func(netip.Addr)
}

// Refusal is why a request was refused.
type Refusal string

// The refusals, as the metrics call them.
const (
	RefusedRequests Refusal = "requests"   // a token made too many in a second
	RefusedOpen     Refusal = "open"       // too many requests of a token were under way
	RefusedPolls    Refusal = "polls"      // too many polls of a token waited
	RefusedStreams  Refusal = "streams"    // too many streams of a token were open
	RefusedJoins    Refusal = "joins"      // too many requests to join, from an address or in all
	RefusedReads    Refusal = "strangers"  // too many other requests without a token, from an address or in all
	RefusedGuesses  Refusal = "bad_tokens" // too many tokens from an address were none
	// The leader says this itself: there were too many workers, of a token or in all.
	RefusedWorkers Refusal = "workers"
	// A node says these itself: too many reads of a token waited for their turn; too many answers waited for their
	// readers.
	RefusedExpensive Refusal = "expensive"
	RefusedUnread    Refusal = "unread"
)

// Refusals are all of them.
var Refusals = []Refusal{RefusedRequests, RefusedOpen, RefusedPolls, RefusedStreams, RefusedJoins,
	RefusedReads, RefusedGuesses, RefusedWorkers, RefusedExpensive, RefusedUnread}

const (
	// DefaultTokenRequests is what a node takes of one token in a second: about half of the creates that a fast disk
	// commits, so that one caller cannot have all of them.
	DefaultTokenRequests = 2000
	// DefaultBadTokens is what a node looks at of one address. A token has 256 bits and is not guessed: this is about
	// the work, and about followers, where an unknown token may wait for news of the leader.
	DefaultBadTokens = 60
	// DefaultJoins is for many nodes behind one address that are started together.
	DefaultJoins = 600
	// strangerReads is what a node answers of one address in a second without a token: probes and the page. Five times
	// as many at once after a rest.
	strangerReads = 200
	// allStrangers is how many times that all addresses together have.
	allStrangers = 10
	// maxSources is how many addresses, and how many tokens, are remembered.
	maxSources = 1 << 14
	// The requests of one token that may be under way. A stream is a backup, an export, a bulk create, an action on
	// many jobs, the metrics or a stream of events.
	maxTokenStreams = 64
	maxTokenPolls   = 2048
	maxTokenOpen    = 1024
)

// openKind is what a request is counted as while it is under way.
type openKind uint8

const (
	plainRequest openKind = iota
	workerCall            // neither counted nor limited
	openPoll
	openStream
	openJoin // of an address: who joins has no token
	openKinds
)

var mostOpen = [openKinds]int{plainRequest: maxTokenOpen, openPoll: maxTokenPolls, openStream: maxTokenStreams,
	openJoin: 16} // followers pass joins on to the leader
var refusedOpen = [openKinds]Refusal{plainRequest: RefusedOpen, openPoll: RefusedPolls, openStream: RefusedStreams,
	openJoin: RefusedJoins}

// kindOf is what a request counts as.
func kindOf(id *Identity, role Role, body bodyKind) openKind {
	switch {
	case body.streams():
		return openStream
	case role != Worker || id.Role != job.RoleWorker:
		return plainRequest
	case body.polls():
		return openPoll
	}
	return workerCall
}

// bounds holds callers to the limits.
type bounds struct {
	limits   Limits
	requests *ratelimit.Limiter[string]     // by token
	guesses  *ratelimit.Limiter[netip.Addr] // by where they come from
	joins    *ratelimit.Crowd[netip.Addr]   // without a token
	reads    *ratelimit.Crowd[netip.Addr]

	mu   sync.Mutex
	open map[string]*[openKinds]int // by token
}

func newBounds(l Limits) *bounds {
	l.Requests, l.BadTokens = cmp.Or(l.Requests, DefaultTokenRequests), cmp.Or(l.BadTokens, DefaultBadTokens)
	l.Joins = cmp.Or(l.Joins, DefaultJoins)
	return &bounds{limits: l, open: map[string]*[openKinds]int{},
		joins:    ratelimit.NewCrowd[netip.Addr](float64(l.Joins)/60, l.Joins, maxSources, allStrangers),
		reads:    ratelimit.NewCrowd[netip.Addr](strangerReads, 5*strangerReads, maxSources, allStrangers),
		requests: ratelimit.New[string](float64(l.Requests), 2*l.Requests, maxSources),
		guesses:  ratelimit.New[netip.Addr](float64(l.BadTokens)/60, l.BadTokens, maxSources)}
}

// stranger counts a request of who shows no token until it leaves, or refuses it. What a node passes on has no source
// here: it was counted there.
func (b *bounds) stranger(from netip.Addr, joins bool) (leave func(), err error) {
	if !from.IsValid() {
		return func() {}, nil
	}
	of, why := b.reads, RefusedReads
	if joins {
		of, why = b.joins, RefusedJoins
	}
	if wait := of.Take(from); wait > 0 {
		return nil, b.refuse(why, from.String(), wait, "wait for as long as Retry-After says",
			"too many requests without a token, from %s or in total", from)
	}
	if !joins {
		return func() {}, nil
	}
	return b.enter(&Identity{Token: from.String(), Name: from.String()}, openJoin)
}

// tooMany is a refusal for a time.
type tooMany struct {
	error
	wait time.Duration
}

func (e *tooMany) Unwrap() error { return e.error }

// seconds is the wait as Retry-After has it.
func (e *tooMany) seconds() string {
	return strconv.FormatInt(int64((e.wait+time.Second-1)/time.Second), 10)
}

func (b *bounds) refuse(why Refusal, who string, wait time.Duration, remedy, format string, args ...any) error {
	if b.limits.Refused != nil {
		b.limits.Refused(why, who)
	}
	return &tooMany{job.Errorf(job.CodeTooManyRequests, remedy, format, args...), max(wait, time.Second)}
}

// enter counts a request of a token until it leaves, or refuses it.
func (b *bounds) enter(id *Identity, kind openKind) (leave func(), err error) {
	const another = "wait for some to end, or use another token for some of them"
	if kind == workerCall {
		return func() {}, nil
	}
	if kind == plainRequest || kind == openStream {
		if wait := b.requests.Take(id.Token); wait > 0 {
			return nil, b.refuse(RefusedRequests, id.Name, wait,
				"wait for as long as Retry-After says; create many jobs with one :bulk request, use another token "+
					"for some requests, or raise --max-requests-per-token",
				"the token %s may send %d requests a second to a node", id.Name, b.limits.Requests)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	open := b.open[id.Token]
	if open == nil {
		open = &[openKinds]int{}
	}
	if n := open[kind]; n >= mostOpen[kind] {
		return nil, b.refuse(refusedOpen[kind], id.Name, 0, another,
			"%d requests of %s (%s) are in progress at this "+
				"node, and no more are allowed", n, id.Name, refusedOpen[kind])
	}
	open[kind]++
	b.open[id.Token] = open
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if open[kind]--; *open == ([openKinds]int{}) && b.open[id.Token] == open {
			delete(b.open, id.Token)
		}
	}, nil
}

// guess lets a request say whose it is. Where too many tokens came from that were none, one that is not known is not
// looked into any further; one that is valid is never refused for others at its address.
func (b *bounds) guess(from netip.Addr, look func(patient bool) (Identity, error)) (Identity, error) {
	if !from.IsValid() {
		return look(true)
	}
	wait := b.guesses.Wait(from)
	id, err := look(wait == 0)
	if err == nil && b.limits.TokenFrom != nil {
		b.limits.TokenFrom(from)
	}
	if err == nil || id.Token != "" { // the secret was right: nothing was guessed
		return id, err
	}
	if wait == 0 {
		wait = b.guesses.Take(from)
	}
	if wait == 0 {
		return id, err
	}
	return id, b.refuse(RefusedGuesses, from.String(), wait, "use a valid token; `carillon token list` lists them",
		"too many requests from %s had a token that this cluster does not know", from)
}

// sourceOf is where a request comes from; not valid: it came by the admin socket, or a node passed it on.
func sourceOf(r *http.Request, node string) netip.Addr {
	if node != "" {
		return netip.Addr{}
	}
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ratelimit.Source(at.Addr()).Addr()
}
