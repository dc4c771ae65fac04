package fsm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm/stream"
	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/store"
)

// Header stands before the state in a snapshot stream.
type Header = stream.Header

// ReadHeader takes the header off a snapshot stream.
func ReadHeader(r io.Reader) (Header, error) { return stream.ReadHeader(r) }

// CopyStream copies a snapshot stream whole and verifies it on the way.
func CopyStream(w io.Writer, r io.Reader) (Header, error) { return stream.Copy(w, r) }

// Stream makes a pinned copy of the state and returns it as a snapshot stream of exactly size bytes.
func Stream(st *store.Store, dir string) (h Header, size int64, rc io.ReadCloser, err error) {
	return stream.Open(st, dir)
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
	err = stream.WriteSynced(tmp, func(w io.Writer) error { return h.Body(w, r) })
	if err == nil {
		err = f.st.Replace(tmp, func(c store.Counters, info store.Info) error {
			if err := CheckLevel(info.Level, f.o.Level); err != nil {
				return err
			}
			if info.Group != h.Group {
				return fmt.Errorf("the state is of group %d and its header says %d", info.Group, h.Group)
			}
			if is, said := info.Cluster(), h.Cluster(); is.Compare(said) != lineage.Same {
				return fmt.Errorf("the state is of cluster %s, and its header says %s", is, said)
			}
			if c.Index != h.Index || c.Term != h.Term || c.Chain != h.Chain {
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
	f.Recent.Reset(f.st.Counters())
	f.o.Logger.Info("state restored from a snapshot", "index", h.Index, "term", h.Term)
	if f.o.Restored != nil {
		f.o.Restored()
	}
	return nil
}
