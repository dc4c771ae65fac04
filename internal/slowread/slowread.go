// Package slowread bounds the answers that their readers do not take. A client that reads nothing keeps the goroutine
// of its request waiting, with what that has in memory. Net/http has one limit for the time of a whole answer, which
// streams cannot live with.
package slowread

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/ratelimit"
)

// Limits are how much of it there may be. Zero values take the defaults.
type Limits struct {
	Each int           // answers that wait for their readers at one address; default 256
	All  int           // in all; default 2,048
	Time time.Duration // how long a reader has for each piece of 64 KiB; default 30 s
}

// Bound holds readers to the limits.
type Bound struct {
	o Options

	mu   sync.Mutex
	all  int
	from map[netip.Prefix]int
}

// Options say who is bounded.
type Options struct {
	Limits
	Member  func(netip.Addr) bool // members are not counted; nil: there are none
	Refused func(from netip.Addr) // is told of each answer that was broken off; nil: nothing is. It must not block
}

// New makes a Bound.
func New(o Options) *Bound {
	o.Each, o.All, o.Time = cmp.Or(o.Each, 256), cmp.Or(o.All, 2048), cmp.Or(o.Time, 30*time.Second)
	return &Bound{o: o, from: map[netip.Prefix]int{}}
}

// Waiting is how many answers wait for their readers now.
func (b *Bound) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all
}

// errCrowded ends an answer: too many of its reader wait already.
var errCrowded = errors.New("slowread: too many answers wait for their readers")

// enter counts an answer until it leaves. Who has no address is not counted: that is a socket of this machine.
func (b *Bound) enter(from netip.Addr, source netip.Prefix) bool {
	if !source.IsValid() {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if (b.all >= b.o.All || b.from[source] >= b.o.Each) && (b.o.Member == nil || !b.o.Member(from)) {
		return false
	}
	b.all++
	b.from[source]++
	return true
}

func (b *Bound) leave(source netip.Prefix) {
	if !source.IsValid() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	if b.from[source]--; b.from[source] == 0 {
		delete(b.from, source)
	}
}

// Handler bounds the answers of another one. What is around it must not write: it would not be counted.
func (b *Bound) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &writer{ResponseWriter: rw, rc: *http.NewResponseController(rw), b: b}
		if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
			w.addr = at.Addr().Unmap().WithZone("")
			w.source = ratelimit.Source(w.addr)
		}
		next.ServeHTTP(w, r)
		w.end()
	})
}

// writer counts an answer while a piece of it waits for its reader, and gives the reader a time for that.
type writer struct {
	http.ResponseWriter
	rc     http.ResponseController
	b      *Bound
	addr   netip.Addr
	source netip.Prefix
	wrote  int
	broken error // it was refused

	mu      sync.Mutex
	own     time.Time // the time that the handler set, or who ends it from outside
	patient bool      // there is no other
}

// Patient gives the reader of an answer all the time it wants: a node that puts several answers together takes them one
// after the other. They are counted as others are.
func Patient(answer http.ResponseWriter) {
	for {
		switch w := answer.(type) {
		case *writer:
			w.mu.Lock()
			defer w.mu.Unlock()
			w.patient = true
			return
		case interface{ Unwrap() http.ResponseWriter }:
			answer = w.Unwrap()
		default:
			return
		}
	}
}

const (
	// piece is what a reader has a time of its own for: a slow one gets on, one that does not read is let go.
	piece = 64 << 10
	// buffered is what net/http takes without waiting for the reader.
	buffered = 2 << 10
)

// Write writes piece by piece.
func (w *writer) Write(p []byte) (n int, err error) {
	if w.wrote += len(p); w.wrote <= buffered {
		return w.ResponseWriter.Write(p)
	}
	err = w.wait(func() (err error) {
		for more := true; more && err == nil; more = n < len(p) {
			w.hurry()
			var k int
			k, err = w.ResponseWriter.Write(p[n:min(n+piece, len(p))])
			n += k
		}
		return err
	})
	return n, err
}

// FlushError is for http.ResponseController.
func (w *writer) FlushError() error {
	return w.wait(func() error {
		w.hurry()
		return w.rc.Flush()
	})
}

// Unwrap lets http.ResponseController reach the connection.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// SetWriteDeadline is for http.ResponseController. The sooner of it and the reader's time counts.
func (w *writer) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own = t
	return w.rc.SetWriteDeadline(t)
}

// hurry gives the reader the time for one piece.
func (w *writer) hurry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := time.Now().Add(w.b.o.Time)
	if w.patient || !w.own.IsZero() && w.own.Before(t) {
		t = w.own
	}
	_ = w.rc.SetWriteDeadline(t) //nolint:errcheck // unsupported is fine
}

// rest takes that time back, or it would stay on the connection for the next request.
func (w *writer) rest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.rc.SetWriteDeadline(w.own) //nolint:errcheck // unsupported is fine
}

// wait does what may wait for the reader. An answer that was broken off is not gone on with.
func (w *writer) wait(do func() error) error {
	if w.broken != nil {
		return w.broken
	}
	if !w.b.enter(w.addr, w.source) {
		if w.broken = errCrowded; w.b.o.Refused != nil {
			w.b.o.Refused(w.addr)
		}
		return w.broken
	}
	defer w.b.leave(w.source)
	defer w.rest()
	return do()
}

// end is called when the handler has returned. Net/http writes the rest of the answer within the time of a piece, and
// takes that back. It is not counted: a reader can have one answer a connection, and those are bounded.
func (w *writer) end() {
	w.hurry()
	if w.broken != nil {
		panic(http.ErrAbortHandler) // it closes the connection: half an answer must not look like a whole one
	}
}
