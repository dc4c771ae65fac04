package transport

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/ratelimit"
)

// HandshakeLimits bound how many TLS handshakes strangers get in a second. A handshake costs the processor of the node
// a fraction of a millisecond and its client next to nothing: who makes thousands a second would have the processors
// that runs are waiting for. What is above the rates waits, within the timeout of a handshake.
type HandshakeLimits struct {
	// Each is for one address and All for all of them together, a second; 0: by the processors that there are. Burst
	// is how many of each come at once after a rest: the workers of a cluster that was away come back together.
	Each, All, Burst int

	// Member says whether an address is that of a member, which does not wait; nil: none is known.
	Member func(netip.Addr) bool
}

// handshakeRate and handshakeBurst are the rates for each processor: all strangers together get about a tenth of it.
const (
	handshakeRate  = 300
	handshakeBurst = 2000
	// eachPart is what one address gets of the rate of all.
	eachPart = 4
	// shownFor is for how long an address is remembered from which a valid token came, and maxShown how many are.
	shownFor = time.Hour
	maxShown = 1 << 13
	// maxNodeAddresses is how many addresses of nodes are remembered.
	maxNodeAddresses = 256
	// handshakeRetry is how long a handshake waits, at least, before it is looked at again.
	handshakeRetry = 20 * time.Millisecond
)

// rates are those of one address, and of all together.
type rates struct {
	each *ratelimit.Limiter[netip.Prefix]
	all  *ratelimit.Limiter[struct{}]
}

func newRates(l HandshakeLimits) *rates {
	return &rates{each: ratelimit.New[netip.Prefix](float64(l.Each), max(l.Burst/eachPart, 1), 1<<14),
		all: ratelimit.New[struct{}](float64(l.All), l.Burst, 1)}
}

// handshakes holds strangers to the limits, and apart from them, so that no flood of strangers takes their turns, those
// whose address has lately shown a valid token.
type handshakes struct {
	member           func(netip.Addr) bool
	strangers, known *rates

	mu    sync.Mutex
	nodes map[netip.Addr]struct{}    // from which nodes of the cluster came: it may not be where they listen
	shown map[netip.Prefix]time.Time // from which a valid token came, and when
}

func newHandshakes(l HandshakeLimits) *handshakes {
	p := runtime.GOMAXPROCS(0)
	if l.All == 0 {
		l.All = handshakeRate * p
	}
	if l.Each == 0 {
		l.Each = max(l.All/eachPart, 1)
	}
	if l.Burst == 0 {
		l.Burst = handshakeBurst * p
	}
	return &handshakes{member: l.Member, strangers: newRates(l), known: newRates(l),
		nodes: map[netip.Addr]struct{}{}, shown: map[netip.Prefix]time.Time{}}
}

// wait waits for the turn of a handshake. It says false if that does not come before the end, or before its connection
// is gone: what waits on would be counted nowhere, and take a turn for nothing.
func (h *handshakes) wait(remote net.Addr, end time.Time, gone <-chan struct{}) bool {
	addr, source := sourceOf(remote)
	if !source.IsValid() || h.exempt(addr) {
		return true
	}
	for mine := (*rates)(nil); ; {
		r := h.ratesOf(source) // of one that waits, another from its address may show a token
		var pause time.Duration
		if mine != r {
			if pause = r.each.Take(source); pause == 0 {
				mine = r
			}
		}
		if mine == r {
			if pause = r.all.Take(struct{}{}); pause == 0 {
				return true
			}
		}
		pause = max(pause, handshakeRetry)
		pause += rand.N(pause) // those who wait are not to come back together
		if time.Until(end) < pause {
			return false
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-gone:
			timer.Stop()
			return false
		}
	}
}

func (h *handshakes) ratesOf(source netip.Prefix) *rates {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at, ok := h.shown[source]; ok && time.Since(at) < shownFor {
		return h.known
	}
	return h.strangers
}

func (h *handshakes) exempt(addr netip.Addr) bool {
	h.mu.Lock()
	_, known := h.nodes[addr]
	h.mu.Unlock()
	return known || h.member != nil && h.member(addr)
}

// node notes an address from which a node of the cluster came.
func (h *handshakes) node(remote net.Addr) {
	addr, source := sourceOf(remote)
	if !source.IsValid() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.nodes) >= maxNodeAddresses {
		clear(h.nodes) // the next ones come within the rates
	}
	h.nodes[addr] = struct{}{}
}

// token notes an address from which a valid token came. When there are too many, of some the one goes that was silent
// for the longest.
func (h *handshakes) token(addr netip.Addr) {
	source := ratelimit.Source(addr)
	if !source.IsValid() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.shown[source]; !known && len(h.shown) >= maxShown {
		var oldest netip.Prefix
		looks := 16
		for p, at := range h.shown {
			if !oldest.IsValid() || at.Before(h.shown[oldest]) {
				oldest = p
			}
			if looks--; looks == 0 {
				break
			}
		}
		delete(h.shown, oldest)
	}
	h.shown[source] = time.Now()
}
