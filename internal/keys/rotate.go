package keys

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
)

// Committed is what the state of a cluster says of its CAs. All certificates are in DER.
type Committed struct {
	CA     Hash        // in use
	Cert   []byte      // its certificate; none: it is the CA that the cluster began with
	Former []Succeeded // newest first
	// Next is the CA that takes its place when every member has confirmed it; none: no rotation is under way.
	Next []byte
	// Cross is Next, signed by CA. Distrust: there is none, and CA no longer vouches for any node.
	Cross    []byte
	Distrust bool
}

// Succeeded is a CA that was replaced.
type Succeeded struct {
	Cert  []byte
	Cross []byte // its successor's certificate, signed by it; none: it is not trusted
	// Aborted says that it never was in use: its rotation was given up. Cross is then its own certificate, signed by
	// the CA that it should have replaced.
	Aborted bool
}

// knows says whether the state has heard of a CA.
func (c *Committed) knows(ca *x509.Certificate) bool {
	return HashOf(ca) == c.CA || bytes.Equal(c.Next, ca.Raw) ||
		slices.ContainsFunc(c.Former, func(f Succeeded) bool { return bytes.Equal(f.Cert, ca.Raw) })
}

// Follow makes the ring go by what was committed: which CAs are trusted and shown, which authority is in use and which
// CA the node's own certificate should be from. It says whether it changed anything, which is on the disk then. A state
// that has not heard of the CA of the node's certificate is from before what is in the files, and catches up, unless it
// is known to be the newest.
func (r *Ring) Follow(c Committed, newest bool) (changed bool, err error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	key, leaf, have, held := r.key, r.leaf, r.cas, r.held
	r.mu.Unlock()
	if leaf == nil || !newest && !c.knows(have[0].cert) {
		return false, nil
	}
	want, next, err := follow(c, have)
	if err != nil {
		return false, err
	}
	wanted := c.CA
	if next != nil {
		wanted = HashOf(next)
	}
	r.mu.Lock()
	r.wanted = wanted
	r.mu.Unlock()
	if !slices.EqualFunc(have, want, func(a, b knownCA) bool {
		return a.cert.Equal(b.cert) && a.trust == b.trust && a.show == b.show
	}) {
		if err := r.write(key, leaf, want); err != nil {
			return false, err
		}
		if err := r.take(key, leaf, want); err != nil {
			return false, err
		}
		changed = true
	}
	if s, moved := held.promoted(c); moved {
		changed = true
		if err := r.keepAll(s); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// follow is what a node has to know of the CAs, the one that signed its certificate first.
func follow(c Committed, have []knownCA) (out []knownCA, next *x509.Certificate, err error) {
	put := func(der []byte, trust, show bool) (cert *x509.Certificate) {
		certs, perr := parseAll([][]byte{der})
		if perr != nil {
			err = errors.Join(err, fmt.Errorf("the certificate of a CA in the state is damaged: %w", perr))
			return nil
		}
		if !slices.ContainsFunc(out, func(k knownCA) bool { return k.cert.Equal(certs[0]) }) {
			out = append(out, knownCA{certs[0], trust, show})
		}
		return certs[0]
	}
	if len(c.Next) > 0 {
		next = put(c.Next, true, true)
		if len(c.Cross) > 0 {
			put(c.Cross, false, true)
		}
	}
	current := c.Cert
	if len(current) == 0 {
		for _, k := range have {
			if HashOf(k.cert) == c.CA {
				current = k.cert.Raw
			}
		}
	}
	own := have[0].cert
	// A node whose certificate is still from a CA that is not trusted any more shows that one, or clients would not
	// know where it comes from.
	moved := next != nil && own.Equal(next)
	linked := !c.Distrust
	if len(current) > 0 {
		put(current, !c.Distrust || mutant.On(mutant.TrustReplaced), linked || !moved)
	}
	for _, f := range c.Former {
		if f.Aborted {
			// A node that has a certificate of it gets another one in a moment; until then clients that know the
			// cluster by the CA in use must not lose it.
			if own.Equal(put(f.Cert, false, false)) && len(f.Cross) > 0 {
				put(f.Cross, false, true)
			}
			continue
		}
		linked = linked && len(f.Cross) > 0
		if linked {
			put(f.Cross, false, true)
		}
		put(f.Cert, false, linked)
	}
	if err != nil {
		return nil, nil, err
	}
	// The one that signed the node's certificate is first.
	first := knownCA{own, false, true}
	if i := slices.IndexFunc(out, func(k knownCA) bool { return k.cert.Equal(own) }); i >= 0 {
		first = out[i]
		first.show = true
		out = slices.Delete(out, i, i+1)
	}
	return append([]knownCA{first}, out...), next, nil
}

// promoted are the authorities when the rotation is finished that made the next one.
func (s Authorities) promoted(c Committed) (Authorities, bool) {
	switch {
	case s.Current == nil || HashOf(s.Current.Cert) == c.CA:
		return s, false
	case s.Next == nil || HashOf(s.Next.Cert) != c.CA:
		return s, false // it gets them from the other voters
	}
	distrusted := slices.ContainsFunc(c.Former, func(f Succeeded) bool {
		return bytes.Equal(f.Cert, s.Current.Cert.Raw) && len(f.Cross) == 0
	})
	out := Authorities{Current: s.Next}
	for i, f := range append([]*Authority{s.Current}, s.Former...) {
		if i < MaxFormer {
			out.Former = append(out.Former, f.retired(distrusted))
		}
	}
	return out, true
}

// Prepare makes the authority that is to follow, on this node alone, and keeps it. One that was prepared before and not
// committed is replaced: others may have it or not.
func (r *Ring) Prepare(next *Authority) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	s := r.Authorities()
	if s.Current == nil {
		return errors.New("this node has no keys")
	}
	s.Next = next
	return r.keepAll(s)
}

// Merge keeps what is new in keys that another voter handed over. Which of them count is said by the state: committed
// is the hash of the CA in use and next that of the one that is to follow, zero if none is.
func (r *Ring) Merge(in Authorities, committed, next Hash) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	s := r.Authorities()
	switch {
	case s.Current == nil:
		s = in
	case HashOf(in.Current.Cert) == HashOf(s.Current.Cert):
		if in.Next != nil && (s.Next == nil || HashOf(s.Next.Cert) != next) {
			s.Next = in.Next
		}
	case HashOf(in.Current.Cert) == committed: // this node was away for more than one rotation, or its file is old
		s = in
	default:
		return nil
	}
	have := r.Authorities()
	if same(have, s) {
		return nil
	}
	return r.keepAll(s)
}

func same(a, b Authorities) bool {
	eq := func(x, y *Authority) bool { return x == y || x != nil && y != nil && x.Cert.Equal(y.Cert) }
	return eq(a.Current, b.Current) && eq(a.Next, b.Next) && slices.EqualFunc(a.Former, b.Former, eq)
}

// Signer is the authority that signs certificates now: while a rotation is under way the next one. Nil: this node does
// not have it.
func (r *Ring) Signer() *Authority {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wanted == (Hash{}) {
		return r.held.Current
	}
	if a := r.held.Of(r.wanted); a != nil && a.key != nil {
		return a
	}
	return nil
}

// Whole says whether this node has the authority that signs certificates now.
func (r *Ring) Whole() bool { return r.Signer() != nil }

// Sealer is the authority to seal with: the one in use, and the next one as soon as a rotation is under way that
// distrusts that. One that may be given up seals nothing. Nil: this node does not have it.
func (r *Ring) Sealer() *Authority {
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := r.trustedLocked(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// Opener is the authority that opens what was sealed with the cluster key of an id, a former one perhaps; nil: this
// node does not have it.
func (r *Ring) Opener(id string) *Authority {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held.Opener(id)
}

// Issued is a certificate with what goes with it for a node that knows nothing yet.
func (r *Ring) Issued(leaf []byte, by *Authority) Issued {
	r.mu.Lock()
	defer r.mu.Unlock()
	is := Issued{Leaf: leaf, CA: by.Cert.Raw}
	for _, k := range r.cas {
		switch {
		case k.cert.Equal(by.Cert):
		case k.trust:
			is.Trusted = append(is.Trusted, k.cert.Raw)
			is.Chain = append(is.Chain, k.cert.Raw)
		case k.show:
			is.Chain = append(is.Chain, k.cert.Raw)
		}
	}
	return is
}

// Secrets derives a secret of 32 bytes for one use from each cluster key that is trusted, the one to use first. They
// are shared: callers do not write to them.
func (r *Ring) Secrets(use string) (out [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.trustedLocked() {
		k := derivedKey{a, use}
		secret, known := r.derived[k]
		if !known {
			if r.derived == nil || len(r.derived) >= maxDerived {
				r.derived = map[derivedKey][]byte{}
			}
			secret = a.Derive(use)
			r.derived[k] = secret
		}
		out = append(out, secret)
	}
	return out
}

// JoinTokens are the join token of an id as each cluster key that is trusted makes it.
func (r *Ring) JoinTokens(id string) (out []Token) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.trustedLocked() {
		out = append(out, a.JoinToken(id))
	}
	return out
}

// trustedLocked are the authorities whose cluster keys are known to voters only, the one in use first.
func (r *Ring) trustedLocked() (out []*Authority) {
	s := r.held
	current := s.Current
	if current != nil && !isTrusted(r.cas, HashOf(current.Cert)) && r.leaf != nil {
		current = nil // a rotation is under way that distrusts it
	}
	if s.Next != nil && HashOf(s.Next.Cert) != r.wanted {
		s.Next = nil // not committed
	}
	all := append([]*Authority{current, s.Next}, s.Former...)
	return slices.DeleteFunc(all, func(a *Authority) bool {
		return a == nil || a.distrusted || current == nil && a != s.Next
	})
}
