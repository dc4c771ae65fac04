package fsm

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/store"
)

// Header stands before the state in a snapshot stream.
type Header struct {
	Format    int    `json:"format"`
	Index     uint64 `json:"index"` // the last entry in the state: at or past the last command of the snapshot
	Term      uint64 `json:"term"`
	ClusterID string `json:"cluster_id"`
	Group     uint32 `json:"group"`
	Epoch     uint64 `json:"epoch"`
	Size      int64  `json:"size"` // of the state that follows
	Sum       uint32 `json:"sum"`  // its CRC-32C

	// For people, and to refuse early; the state itself says the same.
	Level int    `json:"level,omitempty"`
	Jobs  uint64 `json:"jobs,omitempty"`
	Mark  int64  `json:"mark,omitempty"` // the highest stamp in it, ms: of what time it is
}

var magic = [8]byte{'C', 'A', 'R', 'I', 'L', 'L', 'O', 'N'}

const maxHeader = 1 << 16

// Encode is the header as it stands in a stream.
func (h Header) Encode() []byte {
	data, err := json.Marshal(h)
	if err != nil {
		panic(err) // plain fields only
	}
	b := binary.BigEndian.AppendUint32(magic[:], uint32(len(data)))
	return append(b, data...)
}

// ReadHeader takes the header off a snapshot stream.
func ReadHeader(r io.Reader) (Header, error) {
	var h Header
	var fixed [12]byte
	if _, err := io.ReadFull(r, fixed[:]); err != nil {
		return h, fmt.Errorf("fsm: snapshot header: %w", err)
	}
	n := binary.BigEndian.Uint32(fixed[8:])
	if [8]byte(fixed[:8]) != magic || n > maxHeader {
		return h, errors.New("fsm: this is not a Carillon snapshot")
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return h, fmt.Errorf("fsm: snapshot header: %w", err)
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return h, fmt.Errorf("fsm: snapshot header: %w", err)
	}
	if h.Format != store.Format {
		return h, fmt.Errorf("fsm: the snapshot has format %d and this binary reads format %d: use the "+
			"carillon that wrote it", h.Format, store.Format)
	}
	return h, nil
}

// readBody copies the state that follows a header and holds it against that: a stream that was cut off or changed on
// its way never gets to bbolt, which would not survive it.
func (h Header) readBody(w io.Writer, r io.Reader) error {
	sum := store.NewSum()
	n, err := io.Copy(io.MultiWriter(w, sum), r)
	if err != nil {
		return err
	}
	if n != h.Size || sum.Sum32() != h.Sum {
		return fmt.Errorf("the snapshot is damaged: %d bytes with checksum %08x, its header says %d with %08x",
			n, sum.Sum32(), h.Size, h.Sum)
	}
	return nil
}

// CopyStream copies a snapshot stream whole and verifies it on the way.
func CopyStream(w io.Writer, r io.Reader) (Header, error) {
	h, err := ReadHeader(io.TeeReader(r, w))
	if err != nil {
		return h, err
	}
	return h, h.readBody(w, r)
}

// WriteState makes a state file of what follows a header in a stream. It is verified and durable, or it is not there.
func (h Header) WriteState(path string, r io.Reader) error {
	return writeSynced(path, func(w io.Writer) error { return h.readBody(w, r) })
}

// Snapshot is the state as it is on disk: every batch was synced before it was answered, so there is nothing to write.
// Persist leaves the sink empty, which makes Snapshots keep the metadata only.
func (f *FSM) Snapshot() (raft.FSMSnapshot, error) {
	if p := f.broken.Load(); p != nil {
		return nil, *p
	}
	return stateFile{}, nil
}

type stateFile struct{}

func (stateFile) Persist(sink raft.SnapshotSink) error { return sink.Close() }
func (stateFile) Release()                             {}

// restoreFile is where a state is put together before it takes the place of the one at path.
func restoreFile(path string) string { return path + ".restore" }

// Restore replaces the state by a snapshot. The old state stays whole until the new one is complete, verified and
// synced; if that fails the process goes on with the old one and raft reports the error.
func (f *FSM) Restore(rc io.ReadCloser) error {
	defer rc.Close()
	r := bufio.NewReaderSize(rc, 1<<20)
	h, err := ReadHeader(r)
	if err != nil {
		return err
	}
	tmp := restoreFile(f.st.Path())
	err = writeSynced(tmp, func(w io.Writer) error { return h.readBody(w, r) })
	if err == nil {
		err = f.st.Replace(tmp, func(c store.Counters, info store.Info) error {
			if err := CheckLevel(info.Level, f.o.Level); err != nil {
				return err
			}
			if info.Group != h.Group {
				return fmt.Errorf("the state is of group %d and its header says %d", info.Group, h.Group)
			}
			if info.ClusterID != h.ClusterID || info.Epoch != h.Epoch {
				return fmt.Errorf("the state is of cluster %s, epoch %d, and its header says %s, epoch %d",
					info.ClusterID, info.Epoch, h.ClusterID, h.Epoch)
			}
			if c.Index != h.Index || c.Term != h.Term {
				return fmt.Errorf("the state is at %d/%d and its header says %d/%d", c.Index, c.Term, h.Index, h.Term)
			}
			return nil
		})
	}
	if errors.Is(err, store.ErrSwapped) {
		return f.fail(err)
	}
	if err != nil {
		os.Remove(tmp)
		return fmt.Errorf("fsm: restore: %w", err)
	}
	f.o.Logger.Info("state restored from a snapshot", "index", h.Index, "term", h.Term)
	return nil
}

// writeSynced makes a file durable, or leaves none.
func writeSynced(path string, write func(io.Writer) error) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		err = cmp.Or(err, f.Close())
		if err != nil {
			os.Remove(path)
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	return f.Sync()
}

// Stream makes a pinned copy of the state and returns it as a snapshot stream of exactly size bytes: for a follower, or
// for a backup. dir is where the copy lies until it is closed; it has no name there, so that a crash leaves nothing
// behind.
func Stream(st *store.Store, dir string) (h Header, size int64, rc io.ReadCloser, err error) {
	f, err := os.CreateTemp(dir, "copy-*.tmp")
	if err != nil {
		return h, 0, nil, err
	}
	os.Remove(f.Name()) // the open file stays
	c, err := st.CopyTo(f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return h, 0, nil, err
	}
	h = Header{Format: c.Info.Format, Index: c.Counters.Index, Term: c.Counters.Term, ClusterID: c.Info.ClusterID,
		Group: c.Info.Group, Epoch: c.Info.Epoch, Size: c.Size, Sum: c.Sum, Level: c.Info.Level, Jobs: c.Counters.Jobs,
		Mark: c.Counters.Mark}
	head := h.Encode()
	return h, int64(len(head)) + c.Size, &stream{Reader: io.MultiReader(bytes.NewReader(head), f), f: f}, nil
}

type stream struct {
	io.Reader
	f *os.File
}

func (s *stream) Close() error { return s.f.Close() }
