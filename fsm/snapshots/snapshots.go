// Package snapshots is raft's snapshot store. A snapshot that this node took is metadata only: the fsynced state file
// is the snapshot, at or past that index. One that came from another node is a file until it is restored.
package snapshots

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm/stream"
	"github.com/carillon-scheduler/carillon/store"
)

// Store is that of a group. Opening a snapshot that this node took makes a pinned copy of the state, because a read
// transaction must not wait for a slow follower.
type Store struct {
	Dir string // where its files are
	st  *store.Store
	// Accept, if set, refuses a snapshot that another node sends, by its header.
	Accept func(stream.Header) error
	// Room, if set, is how large a copy of the state may be that is made for another node.
	Room func() uint64

	mu sync.Mutex // guards the files in dir, for short work only: a copy is made without it
}

const (
	// MetaFile is the metadata of the newest snapshot.
	MetaFile = "snapshot.json"
	// ReceivedExt is what the name of a snapshot that was received ends with.
	ReceivedExt = ".snap"
)

// record is what MetaFile holds.
type record struct {
	raft.SnapshotMeta
	// State is the last entry in the state that goes with the snapshot. It is lower than Index where no-ops and
	// barriers follow it, which no state machine is shown.
	State uint64 `json:"state"`
	// StateTerm is the term of that entry if the state was received and is past Index: a leader sends its state as it
	// is by then, and the entries in between come after it. Until they have, nothing but this says that the state may
	// be further on than the log.
	StateTerm uint64 `json:"state_term,omitempty"`
	// Sum is the checksum of all the rest.
	Sum uint64 `json:"sum"`
}

// encode is the contents of the file, with the checksum.
func (m record) encode() ([]byte, error) {
	m.Sum = 0
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	m.Sum = xxhash.Sum64(data)
	return json.Marshal(m)
}

// decode takes only what encode made: JSON that differs by a letter may mean the same to a parser, and then it is not
// known what else differs.
func decode(data []byte) (*record, error) {
	var m record
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, err
	}
	if again, err := m.encode(); err != nil || m.ID == "" || !bytes.Equal(again, data) {
		return nil, errors.Join(errSum, err)
	}
	return &m, nil
}

var errSum = errors.New("its checksum is that of other contents")

// Verify says whether the contents of MetaFile are what was written to it.
func Verify(data []byte) error {
	_, err := decode(data)
	return err
}

// New opens the snapshot store in dir and removes what a crash left half-written.
func New(dir string, st *store.Store) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Store{Dir: dir, st: st}
	if err := s.remove(".tmp", func(string) bool { return true }); err != nil {
		return nil, err
	}
	if err := s.collect(); err != nil {
		return nil, err
	}
	m, err := s.read()
	if err != nil || m == nil {
		return s, err
	}
	if _, err := os.Stat(s.received(m.ID)); errors.Is(err, os.ErrNotExist) && st.Counters().Index < m.State {
		return nil, fmt.Errorf("the state file ends at entry %d, but the newest snapshot contains entry %d: a file "+
			"was lost, or replaced by an older or newer copy; restore the whole data directory, or remove it and "+
			"let the node rejoin", st.Counters().Index, m.State)
	}
	return s, nil
}

func (s *Store) received(id string) string { return filepath.Join(s.Dir, id+ReceivedExt) }

// Pending is a snapshot that was received but not yet restored when the process ended: the caller restores
// it before it starts raft. Nil if there is none.
func (s *Store) Pending() (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.read()
	if err != nil || m == nil || m.State <= s.st.Counters().Index {
		return nil, err
	}
	f, err := os.Open(s.received(m.ID))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// State is the last entry in the state that goes with the newest snapshot; entries after it up to the snapshot's own
// index never reach a state machine. term is 0 unless the state was received and is past that index. 0 if there is no
// snapshot.
func (s *Store) State() (index, term uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.read()
	if err != nil || m == nil {
		return 0, 0, err
	}
	return m.State, m.StateTerm, nil
}

// collect removes received files that are not the newest snapshot, and that one too once the state has caught up with
// it.
func (s *Store) collect() error {
	m, err := s.read()
	if err != nil {
		return err
	}
	return s.remove(ReceivedExt, func(id string) bool {
		return m == nil || m.ID != id || m.State <= s.st.Counters().Index
	})
}

// Restored removes the file of the newest snapshot, if it was received: the state has been made of it.
func (s *Store) Restored() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.collect()
}

// supersede removes every received file but that of the newest snapshot, which is about to be restored even if the
// state is further on: an operator may be putting an older one back.
func (s *Store) supersede(newest string) error {
	return s.remove(ReceivedExt, func(id string) bool { return id != newest })
}

func (s *Store) remove(ext string, unneeded func(name string) bool) error {
	names, err := os.ReadDir(s.Dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if name, ok := strings.CutSuffix(n.Name(), ext); ok && unneeded(name) {
			if err := os.Remove(filepath.Join(s.Dir, n.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) read() (*record, error) {
	path := filepath.Join(s.Dir, MetaFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := decode(data)
	if err != nil {
		return nil, store.Damaged(path, err)
	}
	return m, nil
}

// write makes m the newest snapshot.
func (s *Store) write(m *record) error {
	data, err := m.encode()
	if err != nil {
		return err
	}
	path := filepath.Join(s.Dir, MetaFile)
	err = stream.WriteSynced(path+".tmp", func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	return store.SyncDir(s.Dir)
}

// List is the newest snapshot, if there is one; older ones say nothing that it does not.
func (s *Store) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.read()
	if err != nil || m == nil {
		return nil, err
	}
	return []*raft.SnapshotMeta{&m.SnapshotMeta}, nil
}

// Create begins a snapshot.
func (s *Store) Create(version raft.SnapshotVersion, index, term uint64, conf raft.Configuration, confIndex uint64,
	_ raft.Transport) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("snapshot version %d", version)
	}
	id := fmt.Sprintf("%d-%d", term, index)
	return &sink{s: s, meta: raft.SnapshotMeta{Version: version, ID: id, Index: index, Term: term, Configuration: conf,
		ConfigurationIndex: confIndex}}, nil
}

// Open is the state that goes with a snapshot.
func (s *Store) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m, f, err := s.open(id)
	if err != nil || f != nil {
		return m, f, err
	}
	_, size, rc, err := stream.Open(s.st, s.Dir)
	if err != nil {
		return nil, nil, err
	}
	m.Size = size
	return m, rc, nil
}

// open finds the snapshot, and its file if it was received.
func (s *Store) open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.read()
	if err != nil {
		return nil, nil, err
	}
	if m == nil || m.ID != id {
		return nil, nil, fmt.Errorf("there is no snapshot %q", id)
	}
	f, err := os.Open(s.received(id))
	if errors.Is(err, os.ErrNotExist) {
		return &m.SnapshotMeta, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return &m.SnapshotMeta, f, nil
}

// sink receives a snapshot. Nothing written means: the state file is the snapshot.
type sink struct {
	s    *Store
	meta raft.SnapshotMeta
	f    *os.File
	done bool
}

func (k *sink) ID() string { return k.meta.ID }

func (k *sink) Write(p []byte) (int, error) {
	if k.f == nil {
		f, err := os.OpenFile(k.s.received(k.meta.ID)+".tmp", os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
		if err != nil {
			return 0, err
		}
		k.f = f
	}
	n, err := k.f.Write(p)
	k.meta.Size += int64(n)
	return n, err
}

// Close makes the snapshot durable: first the file, then the metadata that names it. The other way round a crash would
// leave metadata that says "the state file is the snapshot", which it is not.
func (k *sink) Close() error {
	if k.done {
		return nil
	}
	m := &record{SnapshotMeta: k.meta, State: k.s.st.Counters().Index}
	if k.f != nil {
		h, err := k.verify()
		if err != nil {
			k.Cancel()
			return err
		}
		m.State = h.Index
		if h.Index > m.Index {
			m.StateTerm = h.Term
		}
	}
	k.done = true
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	if k.f == nil {
		// Raft may finish a snapshot of its own after it has installed a newer one. The log behind the older one is
		// gone by then, and metadata that says otherwise would keep the node from starting.
		cur, err := k.s.read()
		if err != nil || cur != nil && cur.Index > m.Index && cur.State <= m.State {
			return err
		}
		if cur != nil && cur.State == m.State && m.State > m.Index {
			m.StateTerm = cur.StateTerm // the log has still not come to where the received state is
		}
	}
	if k.f != nil {
		if err := os.Rename(k.f.Name(), k.s.received(k.meta.ID)); err != nil {
			os.Remove(k.f.Name())
			return err
		}
		if err := store.SyncDir(k.s.Dir); err != nil {
			return err
		}
	}
	if err := k.s.write(m); err != nil {
		return err
	}
	if k.f != nil {
		return k.s.supersede(k.meta.ID)
	}
	return k.s.collect()
}

// verify reads back what was received, syncs and closes it: a snapshot that cannot be restored must not become the
// newest one.
func (k *sink) verify() (stream.Header, error) {
	_, err := k.f.Seek(0, io.SeekStart)
	if err != nil {
		return stream.Header{}, err
	}
	h, err := stream.ReadHeader(k.f)
	if err == nil && k.s.Accept != nil {
		err = k.s.Accept(h)
	}
	if err == nil {
		err = h.Body(io.Discard, k.f)
	}
	if err == nil {
		err = k.f.Sync()
	}
	err = cmp.Or(err, k.f.Close())
	return h, err
}

// Cancel drops the snapshot.
func (k *sink) Cancel() error {
	if k.done {
		return nil
	}
	k.done = true
	if k.f != nil {
		k.f.Close()
		return os.Remove(k.f.Name())
	}
	return nil
}
