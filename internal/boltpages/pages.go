// Package boltpages holds the pages of a bbolt file against each other before bbolt opens it.
package boltpages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
)

// Verify walks the pages of a bbolt file before bbolt does. On a page that makes no sense bbolt panics in a
// goroutine of its own while it opens (the price of NoFreelistSync is a full scan there), or faults behind the end of a
// file that was cut off, and neither can be turned into an error afterwards. This walk looks at what that scan looks
// at: page numbers, bounds, and the order of keys. Nothing may write to the file meanwhile. A file that is not there,
// or is empty, is fine: bbolt makes it.
func Verify(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if fi.Size() == 0 {
		return nil
	}
	stop := readAhead(f, fi.Size())
	defer stop()
	p := &pages{f: f}
	root, err := p.meta()
	if err == nil && int64(p.high)*int64(p.size) > fi.Size() {
		err = fmt.Errorf("it is cut off: %d bytes of %d", fi.Size(), int64(p.high)*int64(p.size))
	}
	if err == nil {
		p.seen = make([]uint64, p.high/64+1)
		err = p.walk(root, keyRange{}, 0)
	}
	if err != nil {
		return Damaged(path, err)
	}
	return nil
}

// VerifyHeaders refuses a file of which one of the two headers is damaged. For bbolt that is a commit that a power cut
// tore apart: it goes on from the other header, which is one commit older. But a header lies within one sector, and
// disks write a sector whole or not at all, so what is damaged was whole once, and the commit may have been
// acknowledged.
func VerifyHeaders(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	p := &pages{f: f}
	if _, err = p.meta(); err == nil && p.headers != 2 {
		err = errors.New("one of its two headers is damaged, and the newest entries may be missing")
	}
	if err != nil {
		return Damaged(path, err)
	}
	return nil
}

// readAhead reads a file from its beginning to its end, so that it is in memory when its pages are looked at: in the
// order of the trees a disk gives them out one by one, at a tenth of its speed or less. It is for speed only, so
// whatever goes wrong is left to the read of the page.
func readAhead(f *os.File, size int64) (stop func()) {
	var ended atomic.Bool
	var reading sync.WaitGroup
	reading.Go(func() {
		buf := make([]byte, min(size, 1<<20))
		for at := int64(0); at < size && !ended.Load(); at += int64(len(buf)) {
			if _, err := f.ReadAt(buf, at); err != nil {
				return
			}
		}
	})
	return func() {
		ended.Store(true)
		reading.Wait()
	}
}

// Damaged is the error of a file whose contents cannot be relied on.
func Damaged(path string, why any) error {
	return fmt.Errorf("%s is damaged (%v): if other nodes have the data, run `carillon node rebuild --data-dir DIR "+
		"--addr OTHER-NODE`; if not, restore a backup", path, why)
}

// The layout of bbolt's pages, version 2, which has not changed in ten years. Numbers are in the machine's own byte
// order.
const (
	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	pageHeader   = 16 // id(8) flags(2) count(2) overflow(4)
	elemSize     = 16 // branch: pos(4) ksize(4) page(8); leaf: flags(4) pos(4) ksize(4) vsize(4)
	pageBranch   = 1
	pageLeaf     = 2
	elemBucket   = 1  // a leaf element's flag
	bucketHeader = 16 // root(8) sequence(8)
	metaSize     = 56 // magic(4) version(4) pagesize(4) flags(4) root(16) freelist(8) high(8) txid(8), checksum(8)
	maxDepth     = 64
)

type pages struct {
	f    *os.File
	size int    // of a page
	high uint64 // pages from here on are not in use
	seen []uint64
	free [][]byte // buffers of one page

	headers int // how many of the two are whole
}

// meta finds the newer one of the two meta pages that are whole, as bbolt does. The second one's place depends on the
// page size, which is tried if the first one cannot say it.
func (p *pages) meta() (root uint64, err error) {
	var newest uint64
	found := false
	try := func(at int64) {
		var b [pageHeader + metaSize + 8]byte
		if _, err := p.f.ReadAt(b[:], at); err != nil {
			return
		}
		m, ne := b[pageHeader:], binary.NativeEndian
		sum := fnv.New64a()
		sum.Write(m[:metaSize])
		if ne.Uint32(m) != boltMagic || ne.Uint32(m[4:]) != boltVersion || sum.Sum64() != ne.Uint64(m[metaSize:]) {
			return
		}
		p.headers++
		if txid := ne.Uint64(m[48:]); !found || txid > newest {
			found, newest = true, txid
			p.size, root, p.high = int(ne.Uint32(m[8:])), ne.Uint64(m[16:]), ne.Uint64(m[40:])
		}
	}
	try(0)
	if found {
		try(int64(p.size))
	} else {
		for size := int64(1 << 10); size <= 1<<16; size <<= 1 {
			try(size)
		}
	}
	if !found || p.size < 1<<9 || p.size > 1<<20 || p.high > 1<<40 {
		return 0, errors.New("it has no valid header")
	}
	return root, nil
}

func (p *pages) buffer() []byte {
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b
	}
	return make([]byte, p.size)
}

// keyRange is where the keys of a subtree must lie: from min (nil: anywhere) to below max (nil: anywhere).
type keyRange struct{ min, max []byte }

// walk checks a page and all that it leads to.
func (p *pages) walk(id uint64, keys keyRange, depth int) error {
	bad := func(what string) error { return fmt.Errorf("page %d %s", id, what) }
	if id < 2 || id >= p.high || depth > maxDepth {
		return bad("is out of bounds")
	}
	buf := p.buffer()
	defer func() { p.free = append(p.free, buf) }()
	b, at := buf, int64(id)*int64(p.size)
	if _, err := p.f.ReadAt(b, at); err != nil {
		return bad("cannot be read: " + err.Error())
	}
	ne := binary.NativeEndian
	if ne.Uint64(b) != id {
		return bad("carries another number")
	}
	over := uint64(ne.Uint32(b[12:]))
	if id+over >= p.high {
		return bad("goes on behind the end")
	}
	for i := id; i <= id+over; i++ {
		if p.seen[i/64]&(1<<(i%64)) != 0 {
			return bad("is part of two trees")
		}
		p.seen[i/64] |= 1 << (i % 64)
	}
	if over > 0 {
		b = make([]byte, (over+1)*uint64(p.size))
		if _, err := p.f.ReadAt(b, at); err != nil {
			return bad("cannot be read: " + err.Error())
		}
	}
	return p.elements(b, keys, depth, bad)
}

// elements checks the elements of a page and what they lead to.
func (p *pages) elements(b []byte, keys keyRange, depth int, bad func(string) error) error {
	ne := binary.NativeEndian
	flags, count := ne.Uint16(b[8:]), int(ne.Uint16(b[10:]))
	if flags != pageBranch && flags != pageLeaf {
		return bad("is of no known kind")
	}
	if depth > maxDepth {
		return bad("lies too deep")
	}
	table := pageHeader + count*elemSize
	if table > len(b) {
		return bad("has more elements than fit")
	}
	// element gives an element's key and value; of a branch, the number of a page in place of the value.
	element := func(i int) (key, value []byte, page uint64, ok bool) {
		off := pageHeader + i*elemSize
		e := b[off : off+elemSize]
		if flags == pageBranch {
			from := off + int(ne.Uint32(e))
			to := from + int(ne.Uint32(e[4:]))
			if from < table || to > len(b) {
				return nil, nil, 0, false
			}
			return b[from:to], nil, ne.Uint64(e[8:]), true
		}
		from := off + int(ne.Uint32(e[4:]))
		mid := from + int(ne.Uint32(e[8:]))
		to := mid + int(ne.Uint32(e[12:]))
		if from < table || to > len(b) {
			return nil, nil, 0, false
		}
		return b[from:mid], b[mid:to], uint64(ne.Uint32(e)), true
	}
	var last []byte
	next := table // bbolt writes keys and values one behind the other, so a wrong count or length shows
	for i := range count {
		key, value, n, ok := element(i)
		if !ok {
			return bad("has an element that does not lie in it")
		}
		if len(key) == 0 || next >= len(b) || &key[0] != &b[next] || flags == pageLeaf && n > elemBucket {
			return bad("has an element that bbolt does not write")
		}
		next += len(key) + len(value)
		if i == 0 && bytes.Compare(key, keys.min) < 0 || i > 0 && bytes.Compare(key, last) <= 0 ||
			keys.max != nil && bytes.Compare(key, keys.max) >= 0 {
			return bad("has keys that are out of order")
		}
		last = key
		switch {
		case flags == pageBranch:
			below := keyRange{min: key, max: keys.max}
			if i+1 < count {
				if below.max, _, _, ok = element(i + 1); !ok {
					return bad("has an element that does not lie in it")
				}
			}
			if err := p.walk(n, below, depth+1); err != nil {
				return err
			}
		case n&elemBucket != 0:
			if err := p.bucket(value, depth, bad); err != nil {
				return err
			}
		}
	}
	return nil
}

// bucket checks the value of a bucket element: the number of its root page, or a small page inside the value.
func (p *pages) bucket(value []byte, depth int, bad func(string) error) error {
	if len(value) < bucketHeader {
		return bad("has a bucket that is cut off")
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return p.walk(root, keyRange{}, depth+1)
	}
	if len(value) < bucketHeader+pageHeader {
		return bad("has a bucket that is cut off")
	}
	return p.elements(value[bucketHeader:], keyRange{}, depth+1, bad)
}
