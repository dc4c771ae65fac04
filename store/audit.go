package store

import (
	"fmt"
	"strings"

	bolt "go.etcd.io/bbolt"
)

// Audit is a record of who changed what. It names things and has nothing of what is in them: no payload, no secret, no
// value of a field.
type Audit struct {
	At int64 // ms; the stamp of the command

	Token   string // the id of the caller's token; empty: none was asked for, or the connection said who it was
	Name    string // of the token, or such as "admin socket of n1"
	Address string // where the request came from, without a port; empty: not over the network

	Action string // kind of the object, a dot and what was done to it: job.create
	AuditObject
	Outcome string // empty: it was done. Otherwise why not
	Request string // the key of the request

	// Of what is about many things at once: how many were changed, were so already, and were refused.
	Done, Unchanged, Refused int
}

// AuditObject is what something was done to.
type AuditObject struct {
	ID        string
	Object    string // its name, if it has one
	Namespace string // empty: it is in none, or in several
}

// Kind is what the object is.
func (a *Audit) Kind() string {
	kind, _, _ := strings.Cut(a.Action, ".")
	return kind
}

// auditRing is one of the rings that records are kept in. However much is written to one, it pushes nothing out of the
// others.
type auditRing uint8

const (
	ordinaryRing auditRing = iota
	guardedRing            // of what gives access
	secretRing             // of secrets, which a namespace's own people may change as often as they like
	auditRings
)

// guarded are the kinds of objects whose records are not in the ordinary ring, so that however many jobs are edited, it
// can still be seen who gave whom access.
var guarded = map[string]auditRing{"token": guardedRing, "join-token": guardedRing, "member": guardedRing,
	"cluster": guardedRing, "backup": guardedRing, "secret": secretRing}

func (a *Audit) ring() auditRing { return guarded[a.Kind()] }

// Guarded says that a record is not in the ordinary ring.
func (a *Audit) Guarded() bool { return a.ring() != ordinaryRing }

var auditBuckets = [auditRings][]byte{bucketAudit, bucketGuarded, bucketSecretLog}

// audits is how many records each ring has.
func (c *Counters) audits() [auditRings]*uint64 {
	return [...]*uint64{&c.Audits, &c.GuardedAudits, &c.SecretAudits}
}

func (a *Audit) encodeTo(w *writer) {
	w.ivar(a.At)
	for _, s := range a.texts() {
		w.str(*s)
	}
	for _, n := range a.numbers() {
		w.uvar(uint64(max(*n, 0)))
	}
}

func (a *Audit) texts() [9]*string {
	return [...]*string{&a.Token, &a.Name, &a.Address, &a.Action, &a.ID, &a.Object, &a.Namespace, &a.Outcome,
		&a.Request}
}

func (a *Audit) numbers() [3]*int { return [...]*int{&a.Done, &a.Unchanged, &a.Refused} }

func (a *Audit) size() int {
	n := 64
	for _, s := range a.texts() {
		n += len(*s) + 3
	}
	return n
}

func decodeAudit(b []byte) (a Audit, err error) {
	r := reader{b: b}
	a.At = r.ivar()
	for _, s := range a.texts() {
		*s = r.str()
	}
	for _, n := range a.numbers() {
		*n = int(r.uvar())
	}
	return a, r.end()
}

// AuditBounds are how many records each ring keeps.
type AuditBounds struct{ Ordinary, Guarded, Secrets uint64 }

// AppendAudit gives a record the next number and puts it into its ring; the oldest of that ring makes room.
func (b *Batch) AppendAudit(a *Audit, keep AuditBounds) error {
	at := a.ring()
	name, count := auditBuckets[at], b.C.audits()[at]
	most := [auditRings]uint64{keep.Ordinary, keep.Guarded, keep.Secrets}[at]
	b.C.AuditSeq++
	ring := b.tx.Bucket(name)
	ring.FillPercent = 0.95 // keys only ever come at the end
	w := b.room(a.size())
	a.encodeTo(&w)
	if err := ring.Put(u64(b.C.AuditSeq), b.taken(&w)); err != nil {
		return err
	}
	for *count++; *count > most; *count-- {
		k, _ := ring.Cursor().First()
		if k == nil {
			return fmt.Errorf("%w: %s counts %d records and has none", ErrCorrupt, name, *count)
		}
		if err := ring.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// EachAudit calls fn for the records of all rings with a number above after, oldest first, until it says false.
func (v *View) EachAudit(after uint64, fn func(seq uint64, a Audit) bool) error {
	return mergeAudits(v.tx, fn, func(c *bolt.Cursor) (k, val []byte) { return c.Seek(u64(after + 1)) },
		(*bolt.Cursor).Next, func(x, y uint64) bool { return x < y })
}

// EachAuditBack calls fn for the records of all rings with a number below before (0: all), newest first, until it says
// false.
func (v *View) EachAuditBack(before uint64, fn func(seq uint64, a Audit) bool) error {
	return mergeAudits(v.tx, fn, func(c *bolt.Cursor) (k, val []byte) { return lastBelow(c, before) },
		(*bolt.Cursor).Prev, func(x, y uint64) bool { return x > y })
}

// mergeAudits goes over all rings at once, in the order of their numbers.
func mergeAudits(tx *bolt.Tx, fn func(uint64, Audit) bool, begin, step func(*bolt.Cursor) (k, v []byte),
	before func(x, y uint64) bool) error {
	type ring struct {
		c    *bolt.Cursor
		k, v []byte
	}
	var rings [auditRings]ring
	for i, name := range auditBuckets {
		r := &rings[i]
		r.c = tx.Bucket(name).Cursor()
		r.k, r.v = begin(r.c)
	}
	for {
		r := &rings[0]
		for i := range rings[1:] {
			if o := &rings[i+1]; r.k == nil || o.k != nil && before(parseU64(o.k), parseU64(r.k)) {
				r = o
			}
		}
		if r.k == nil {
			return nil
		}
		a, err := decodeAudit(r.v)
		if err != nil || !fn(parseU64(r.k), a) {
			return err
		}
		r.k, r.v = step(r.c)
	}
}

// audits holds the rings against the counters, and against each other: among them no number is missing that is newer
// than the oldest of each.
func (c *checker) audits() error {
	var newest, since, there uint64
	counts := c.count.audits()
	for at, name := range auditBuckets {
		n := uint64(0)
		err := c.each(name, "audit record", func(seq uint64, v []byte) {
			if n++; n == 1 {
				since = max(since, seq)
			}
			newest = max(newest, seq)
			a, err := decodeAudit(v)
			switch {
			case err != nil:
				c.bad("audit record %d cannot be read", seq)
			case a.ring() != auditRing(at):
				c.bad("audit record %d (%s) is in the wrong ring", seq, a.Action)
			}
		})
		if err != nil {
			return err
		}
		if n != *counts[at] {
			c.bad("there are %d records in %s, and the counters say %d", n, name, *counts[at])
		}
	}
	if newest != c.count.AuditSeq {
		c.bad("the newest audit record is %d, and the counters say %d", newest, c.count.AuditSeq)
		return nil
	}
	if newest == 0 {
		return nil
	}
	for _, name := range auditBuckets {
		cur := c.tx.Bucket(name).Cursor()
		for k, _ := cur.Seek(u64(since)); k != nil; k, _ = cur.Next() {
			there++
		}
	}
	if there != newest-since+1 {
		c.bad("between audit records %d and %d there are %d", since, newest, there)
	}
	return nil
}
