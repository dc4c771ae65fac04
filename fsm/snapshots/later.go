package snapshots

import (
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm/stream"
	"github.com/carillon-scheduler/carillon/job"
)

// Sent is what raft sends snapshots from. It opens one whenever a server needs it, also one that is not there, or that
// has refused the last: a copy of the whole state is made only when it is begun to be sent.
type Sent struct{ *Store }

// Open gives the state that goes with a snapshot, as a Later unless it lies in a file.
func (s Sent) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m, f, err := s.open(id)
	if err != nil || f != nil {
		return m, f, err
	}
	return m, &Later{s: s.Store}, nil
}

// Later is a copy of the state that is yet to be made.
type Later struct {
	s    *Store
	size int64
	rc   io.ReadCloser
	err  error
}

// Begin makes the copy, once, if there is room for it.
func (l *Later) Begin() (size int64, err error) {
	if l.rc != nil || l.err != nil {
		return l.size, l.err
	}
	if l.s.Room != nil {
		if size, room := uint64(l.s.st.Size()), l.s.Room(); size > room {
			l.err = fmt.Errorf("a copy of the state for another node needs %s, and the disk has room for %s",
				job.Bytes(size), job.Bytes(room))
			return 0, l.err
		}
	}
	_, l.size, l.rc, l.err = stream.Open(l.s.st, l.s.Dir)
	return l.size, l.err
}

// Read reads the copy.
func (l *Later) Read(p []byte) (int, error) {
	if _, err := l.Begin(); err != nil {
		return 0, err
	}
	return l.rc.Read(p)
}

// Close removes the copy.
func (l *Later) Close() error {
	if l.rc == nil {
		return nil
	}
	return l.rc.Close()
}
