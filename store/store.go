package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/carillon-scheduler/carillon/internal/boltpages"
	"github.com/carillon-scheduler/carillon/job"
)

// Options say how to open a state file.
type Options struct {
	// MmapSize is the initial size of the memory map. Growing it waits for all readers, so it is large; it
	// reserves addresses, not memory. 0 means 64 GiB.
	MmapSize int
	// NoSync leaves out fsync. It exists for tests that show that the durability test would notice.
	NoSync bool
	// ReadOnly opens the file for `carillon check`: nothing is written, and another reader may have it too.
	ReadOnly bool
	// LockTimeout is how long to wait for a process that has the file open. 0 means one second.
	LockTimeout time.Duration
	// BeforeCommit, if set, is called before each commit, and may take its time. An error is that of the disk: nothing
	// is written.
	BeforeCommit func() error
	// RecentNames is how many names stay in memory before they move to their bucket. 0 means half a million.
	RecentNames int
}

// Store is one group's state. One goroutine writes (Begin, Commit); any number read.
type Store struct {
	path string
	opts Options

	// mu is held for reading by every view for as long as it lasts and for writing while a batch commits and the index
	// is published: a view never sees a file and an index of different moments. Views are short for that reason.
	mu    sync.RWMutex
	db    *bolt.DB
	idx   *index
	count Counters
	info  Info

	tokens  atomic.Pointer[tokenIndex]  // that of idx, for those who do not wait
	secrets atomic.Pointer[secretIndex] // likewise

	closing sync.WaitGroup // files that were replaced and whose readers finish

	stage stage // of the batch under way; kept for the next one. Only the writer touches it

	listenMu  sync.Mutex
	listeners []*listener
}

type listener struct{ fn func(*Changes) }

// Open opens or makes the state file at path. A damaged file, one that another process has open and one that a newer
// binary wrote are errors that say what to do.
func Open(path string, o Options) (*Store, error) {
	s := &Store{path: path, opts: o}
	if !o.ReadOnly {
		if err := Create(path); err != nil {
			return nil, fmt.Errorf("create %s: %w", path, err)
		}
	}
	db, err := openFile(path, o)
	if err != nil {
		return nil, err
	}
	if err := s.adopt(db); err != nil {
		db.Close()
		return nil, err
	}
	return s, nil
}

func openFile(path string, o Options) (db *bolt.DB, err error) {
	defer func() { // whatever VerifyPages does not look at
		if r := recover(); r != nil {
			err = Damaged(path, r)
		}
	}()
	if fi, err := os.Stat(path); err == nil && fi.Size() > 0 {
		// Opened for reading bbolt looks at the header only, and holds the lock under which the pages can be verified.
		ro, err := boltOpen(path, o, true)
		if err != nil {
			return nil, err
		}
		verr := VerifyPages(path)
		if o.ReadOnly && verr == nil {
			return ro, nil
		}
		if err := ro.Close(); err != nil || verr != nil {
			return nil, errors.Join(verr, err)
		}
	}
	return boltOpen(path, o, o.ReadOnly)
}

// VerifyPages walks the pages of a bbolt file before bbolt does, which panics on one that makes no sense. Nothing may
// write to the file meanwhile. One that is not there, or is empty, is fine: bbolt makes it.
func VerifyPages(path string) error { return boltpages.Verify(path) }

// Damaged is the error of a file whose contents cannot be relied on.
func Damaged(path string, why any) error { return boltpages.Damaged(path, why) }

// Create makes an empty bbolt file, whole or not at all: bbolt itself writes the first pages under the final name, and
// a power cut among them leaves a file that cannot be opened. It does nothing if there is a file.
func Create(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, err := bolt.Open(fresh, 0o600,
		&bolt.Options{Timeout: time.Second, FreelistType: bolt.FreelistMapType, NoFreelistSync: true})
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

func boltOpen(path string, o Options, readOnly bool) (*bolt.DB, error) {
	size := cmp.Or(o.MmapSize, 64<<30)
	if readOnly {
		size = 0
	}
	timeout := cmp.Or(o.LockTimeout, time.Second)
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		Timeout: timeout, FreelistType: bolt.FreelistMapType, NoFreelistSync: true, InitialMmapSize: size,
		NoSync: o.NoSync, ReadOnly: readOnly,
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("%s is in use by another process: stop that one, or choose another --data-dir", path)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum),
		errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, Damaged(path, err)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return db, nil
}

// adopt makes db the store's file: it creates the buckets of a new one and builds the index.
func (s *Store) adopt(db *bolt.DB) (err error) {
	// bbolt panics on pages that make no sense. At open that is a damaged file, and it deserves an error.
	defer func() {
		if r := recover(); r != nil {
			err = Damaged(s.path, r)
		}
	}()
	if !s.opts.ReadOnly {
		if err := db.Update(initFile); err != nil {
			return err
		}
		// A new file is there after a power cut only if its directory says so.
		if err := SyncDir(filepath.Dir(s.path)); err != nil {
			return err
		}
	}
	return db.View(func(tx *bolt.Tx) error {
		for _, name := range allBuckets {
			if tx.Bucket(name) == nil {
				return fmt.Errorf("%s is not a Carillon state file: bucket %q is missing", s.path, name)
			}
		}
		count, info, err := readMeta(tx)
		if err != nil {
			return err
		}
		if info.Format != Format {
			return formatError(s.path, info.Format)
		}
		idx, err := buildIndex(tx, s.opts.RecentNames)
		if err != nil {
			return fmt.Errorf("%s: %w", s.path, err)
		}
		idx.read = count.Index
		s.db, s.idx, s.count, s.info = db, idx, count, info
		s.showTokens()
		s.showSecrets()
		return nil
	})
}

func formatError(path string, format int) error {
	remedy := "start it with the newer carillon that wrote it"
	if format < Format {
		remedy = "start it with the carillon that wrote it"
	}
	return fmt.Errorf("%s has format %d, and this binary reads format %d: %s", path, format, Format, remedy)
}

func initFile(tx *bolt.Tx) error {
	if b := tx.Bucket(bucketMeta); b != nil && b.Get(keyInfo) != nil {
		_, info, err := readMeta(tx)
		if err == nil && info.Format != Format {
			err = formatError("the state file", info.Format)
		}
		return err
	}
	for _, name := range allBuckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(bucketMeta)
	info, names := Info{Format: Format, Level: 1}, sweep{}
	v, err := json.Marshal(info)
	if err != nil {
		return err
	}
	if err := meta.Put(keySweep, names.encode()); err != nil {
		return err
	}
	return meta.Put(keyInfo, v)
}

// Close closes the file. It waits for views and copies.
func (s *Store) Close() error {
	defer s.closing.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return nil
	}
	err := s.db.Close()
	s.db = nil
	return err
}

// ErrClosed is returned by a view of a closed store.
var ErrClosed = errors.New("store: closed")

// View calls fn with a consistent picture of the file and the index. Commits wait for it, so fn reads little and blocks
// on nothing; it must not open another view.
func (s *Store) View(fn func(*View) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return ErrClosed
	}
	return s.db.View(func(tx *bolt.Tx) error {
		return fn(&View{reads: newReads(tx, s.idx), C: s.count, Info: s.info})
	})
}

// Counters are the committed counters.
func (s *Store) Counters() Counters {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.count
}

// Info is the committed slow meta data.
func (s *Store) Info() Info {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.info
}

// JobsByStatus is how many jobs there are of each of job.Statuses.
func (s *Store) JobsByStatus() [len(job.Statuses)]int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.idx.status
}

// OpenRunCount is how many runs are open.
func (s *Store) OpenRunCount() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.idx.openLen
}

// InHandCount is how many runs workers have.
func (s *Store) InHandCount() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.idx.inHand
}

// Follows says whether something comes after the end of a run of one of the jobs soon: another open run, which may wait
// for it, or an occurrence up to a time, which may be skipped for it.
func (s *Store) Follows(jobs []job.ID, until int64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.idx != nil && slices.ContainsFunc(jobs, func(id job.ID) bool {
		p, ok := s.idx.get(id).place()
		return len(s.idx.open[id]) > 1 || ok && !p.Parked && p.Ready <= until
	})
}

// Size is the size of the file in bytes.
func (s *Store) Size() int64 {
	fi, err := os.Stat(s.path)
	if err != nil {
		return 0
	}
	return fi.Size()
}

// Listen calls fn after every commit with what changed, until stop is called. fn must not block, must not read the
// store and must not call Listen or stop.
func (s *Store) Listen(fn func(*Changes)) (stop func()) {
	s.listenMu.Lock()
	defer s.listenMu.Unlock()
	l := &listener{fn}
	s.listeners = append(s.listeners, l)
	return func() {
		s.listenMu.Lock()
		defer s.listenMu.Unlock()
		s.listeners = slices.DeleteFunc(s.listeners, func(x *listener) bool { return x == l })
	}
}

func (s *Store) notify(c *Changes) {
	s.listenMu.Lock()
	defer s.listenMu.Unlock()
	for _, l := range s.listeners {
		l.fn(c)
	}
}

// Changes are what a batch did, for listeners. They are hints: a listener looks at the store first.
type Changes struct {
	Due    []DueMark // new due entries, by lane and time
	Jobs   []job.ID  // jobs whose definition changed or went away
	Nodes  bool      // rows of members changed
	Tokens bool      // rows of tokens changed
	Groups bool      // rows of groups changed, or how many take new jobs
	Owed   bool      // a name is to be released at its home
	Dead   []uint64  // new dead letters
	Outbox bool      // a notification is to be sent, or one was claimed or settled
	Reset  bool      // everything may have changed: the file was replaced
}

// DueMark says that a lane has something at a time.
type DueMark struct {
	Lane  job.Lane
	Ready int64
}

// ErrSwapped wraps an error of Replace after which the new file is in place, but it is not certain to be there after a
// power cut: the process must end.
var ErrSwapped = errors.New("store: the state file was replaced")

// Replace swaps the state file for the one at path, which must be complete and synced; check, if not nil, looks at it
// first. The old file stays if anything fails before the swap; after it, readers of the old one finish undisturbed
// while it closes in the background. No batch may be open.
func (s *Store) Replace(path string, check func(Counters, Info) error) error {
	fresh := &Store{path: path, opts: s.opts}
	db, err := openFile(path, s.opts)
	if err != nil {
		return err
	}
	// The rename comes after the new file was opened and read in full: a bad file never takes the place of a good one.
	err = fresh.adopt(db)
	if err == nil && check != nil {
		err = check(fresh.count, fresh.info)
	}
	if err == nil {
		s.mu.Lock()
		if err = os.Rename(path, s.path); err != nil {
			s.mu.Unlock()
		}
	}
	if err != nil {
		db.Close()
		return err
	}
	// From here on the name leads to the new file, so memory goes with it whatever happens.
	old := s.db
	s.db, s.idx, s.count, s.info = db, fresh.idx, fresh.count, fresh.info
	s.showTokens()
	s.showSecrets()
	s.mu.Unlock()
	if old != nil {
		s.closing.Go(func() { old.Close() })
	}
	s.notify(&Changes{Reset: true})
	if err := SyncDir(filepath.Dir(s.path)); err != nil {
		return fmt.Errorf("%w: %w", ErrSwapped, err)
	}
	return nil
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Path is where the file is.
func (s *Store) Path() string { return s.path }
