package store

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tidwall/btree"
	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/job"
)

// Names of new jobs come in no order, so each would rewrite a page of the names bucket of its own: of all that a create
// writes, that cost the most. A name is in its job's definition anyway. So new names stay in memory, in order, and move
// to the bucket in sweeps: stretch by stretch, in which a page takes up many names at once. What is not in the bucket
// is read from the definitions when the file is opened.

// sweepAt is how many names are kept in memory before a sweep moves them to the bucket; sweepRate how many are moved
// for each that is new meanwhile.
const (
	sweepAt   = 1 << 19
	sweepRate = 4
)

// sweep says which names, by their keys, are in the bucket: those of jobs up to settled, and those of jobs up to under
// whose names are not after at.
type sweep struct {
	settled, under job.ID
	at             string
}

// has says whether a job's name is in the bucket. It depends on nothing else, so each name has one place.
func (s *sweep) has(name string, id job.ID) bool {
	return id <= s.settled || id <= s.under && name <= s.at
}

func (s *sweep) encode() []byte {
	var w writer
	w.u64(uint64(s.settled))
	w.u64(uint64(s.under))
	w.b = append(w.b, s.at...)
	return w.b
}

func readSweep(tx *bolt.Tx) (sweep, error) {
	v := tx.Bucket(bucketMeta).Get(keySweep)
	if len(v) < 16 {
		return sweep{}, ErrCorrupt
	}
	return sweep{job.ID(parseU64(v)), job.ID(parseU64(v[8:])), string(v[16:])}, nil
}

// nameIndex is the part of the index that is about names.
type nameIndex struct {
	sweep  sweep
	recent btree.Map[string, job.ID] // names that are not in the bucket
	limit  int                       // of recent, before it is swept
}

// readNames finds the names that are not in the bucket.
func (x *index) readNames(tx *bolt.Tx, limit int) error {
	n := &x.names
	n.limit = cmp.Or(limit, sweepAt)
	var err error
	if n.sweep, err = readSweep(tx); err != nil {
		return err
	}
	c := tx.Bucket(bucketJobs).Cursor()
	for k, v := c.Seek(u64(uint64(n.sweep.settled) + 1)); k != nil; k, v = c.Next() {
		if len(k) != 8 {
			return fmt.Errorf("%w: a definition has a key of %d bytes", ErrCorrupt, len(k))
		}
		d, err := DecodeDefinition(v)
		if err != nil { // another replica knows its name; here another job could take it
			return fmt.Errorf("%w: %s: its definition cannot be read", ErrCorrupt, job.ID(parseU64(k)))
		}
		if d.Spec.Name == "" {
			continue
		}
		id, key := job.ID(parseU64(k)), scoped(d.Spec.Namespace, d.Spec.Name)
		if n.sweep.has(key, id) {
			continue
		}
		if other, taken := n.recent.Set(key, id); taken {
			return fmt.Errorf("%w: %s and %s are both named %q in the namespace %q", ErrCorrupt, other, id,
				d.Spec.Name, d.Spec.Namespace)
		}
	}
	return nil
}

// scoped is the key of what has a name in a namespace: a job, a queue or a calendar. The usual namespace is left out,
// because ten million names are kept; neither part has a zero byte in it.
func scoped(namespace, name string) string {
	if namespace == job.DefaultNamespace {
		namespace = ""
	}
	return namespace + "\x00" + name
}

// unscoped takes such a key apart again.
func unscoped(key string) (namespace, name string) {
	namespace, name, _ = strings.Cut(key, "\x00")
	return cmp.Or(namespace, job.DefaultNamespace), name
}

// Named finds a job by its name in a namespace.
func (r reads) Named(namespace, name string) (job.ID, bool) { return r.named(scoped(namespace, name)) }

func (r reads) named(key string) (job.ID, bool) {
	if id, ok := r.idx.names.recent.Get(key); ok {
		return id, true
	}
	return r.settledName(key)
}

func (r reads) settledName(key string) (job.ID, bool) {
	v := r.tx.Bucket(bucketNames).Get([]byte(key))
	if len(v) != 8 {
		return 0, false
	}
	return job.ID(parseU64(v)), true
}

// Named finds a job by its name in a namespace.
func (b *Batch) Named(namespace, name string) (job.ID, bool) {
	key := scoped(namespace, name)
	switch id, staged := b.names[key]; {
	case id != 0:
		return id, true
	case staged:
		return b.settledName(key)
	}
	return b.named(key)
}

// PutName gives a name that is free in its namespace to a job.
func (b *Batch) PutName(namespace, name string, id job.ID) error {
	key := scoped(namespace, name)
	if b.idx.names.sweep.has(key, id) {
		return b.tx.Bucket(bucketNames).Put([]byte(key), u64(uint64(id)))
	}
	b.stageName(key, id)
	return nil
}

// DeleteName takes a job's name away from it.
func (b *Batch) DeleteName(namespace, name string, id job.ID) error {
	key := scoped(namespace, name)
	if b.idx.names.sweep.has(key, id) {
		return b.tx.Bucket(bucketNames).Delete([]byte(key))
	}
	b.stageName(key, 0)
	return nil
}

// stageName changes what is kept in memory; id 0 takes the name out.
func (b *Batch) stageName(name string, id job.ID) {
	if b.names == nil {
		b.names = map[string]job.ID{}
	}
	b.names[name] = id
}

// sweepNames moves a stretch of names to the bucket if there are too many in memory.
func (b *Batch) sweepNames() error {
	n := &b.idx.names
	b.sweep = n.sweep
	if len(b.names) == 0 {
		return nil
	}
	s := &b.sweep
	if s.under == s.settled {
		if n.recent.Len()+len(b.names) <= n.limit {
			return nil
		}
		s.under, s.at = job.ID(b.C.NextJob), ""
	}
	names, left := b.tx.Bucket(bucketNames), sweepRate*len(b.names)
	move := func(name string, id job.ID) error { return names.Put([]byte(name), u64(uint64(id))) }
	var err error
	done := true
	n.recent.Ascend(s.at, func(name string, id job.ID) bool {
		if _, staged := b.names[name]; staged || id > s.under {
			return true
		}
		if left == 0 || err != nil {
			done = false
			return false
		}
		left--
		s.at = name
		b.swept = append(b.swept, name)
		err = move(name, id)
		return true
	})
	if err != nil {
		return err
	}
	if done {
		s.settled, s.at = s.under, ""
	}
	// What this batch itself gave to jobs that the sweep is about goes where the sweep has got to.
	for name, id := range b.names {
		if id != 0 && s.has(name, id) {
			if err := move(name, id); err != nil {
				return err
			}
			b.swept = append(b.swept, name)
		}
	}
	return b.tx.Bucket(bucketMeta).Put(keySweep, s.encode())
}

// publishNames brings memory to where the file is.
func (b *Batch) publishNames() {
	n := &b.idx.names
	for name, id := range b.names {
		if id == 0 {
			n.recent.Delete(name)
		} else {
			n.recent.Set(name, id)
		}
	}
	for _, name := range b.swept {
		n.recent.Delete(name)
	}
	n.sweep = b.sweep
}

// EachName calls fn for names of a namespace that begin with prefix and sort after a name, in order, until it says
// false.
func (v *View) EachName(namespace, prefix, after string, fn func(name string, id job.ID) bool) error {
	space := scoped(namespace, "")
	prefix, after = space+prefix, space+after
	start := prefix
	if after >= prefix && after != space {
		start = after + "\x00"
	}
	return v.eachNameKey(start, func(key string, id job.ID) bool {
		return strings.HasPrefix(key, prefix) && fn(key[len(space):], id)
	})
}

// NameKey is where a name is in the order of SearchNames.
func NameKey(namespace, name string) string { return scoped(namespace, name) }

// SearchNames looks at up to n names behind a key, of a namespace or of all of them, by namespace and name, and calls
// fn for each until it says false. It returns the last key that it looked at, and whether that was the last of all.
// Definitions are not read: that makes it fit to look through all jobs.
func (v *View) SearchNames(namespace, after string, n int,
	fn func(name string, id job.ID) bool) (last string, end bool, err error) {
	space := ""
	if namespace != job.AllNamespaces {
		space = scoped(namespace, "")
	}
	start := max(space, after)
	if after != "" && after >= space {
		start = after + "\x00"
	}
	last, end = after, true
	err = v.eachNameKey(start, func(key string, id job.ID) bool {
		if !strings.HasPrefix(key, space) {
			return false
		}
		if n--; n < 0 {
			end = false
			return false
		}
		last = key
		_, name := unscoped(key)
		if !fn(name, id) {
			end = false
			return false
		}
		return true
	})
	return last, end, err
}

// eachNameKey calls fn for the keys of names from start on, of both places, in order, until it says false.
func (v *View) eachNameKey(start string, fn func(key string, id job.ID) bool) error {
	c := v.tx.Bucket(bucketNames).Cursor()
	settled, val := c.Seek([]byte(start))
	recent := v.idx.names.recent.Iter()
	more := recent.Seek(start)
	for settled != nil || more {
		var key string
		var id job.ID
		if settled != nil && (!more || string(settled) < recent.Key()) {
			if len(val) != 8 {
				return ErrCorrupt
			}
			key, id = string(settled), job.ID(parseU64(val))
			settled, val = c.Next()
		} else {
			key, id = recent.Key(), recent.Value()
			more = recent.Next()
		}
		if !fn(key, id) {
			return nil
		}
	}
	return nil
}
