package datadir

import (
	"io"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
)

// Backup is what a backup says of itself.
type Backup struct {
	ClusterID string
	Epoch     uint64
	Index     uint64      // the last log entry in it
	At        job.Instant // the last time that was stamped in it
	Jobs      uint64
}

// CopyBackup copies a backup as it came and verifies it on the way: without an error the copy is whole.
func CopyBackup(w io.Writer, r io.Reader) (Backup, error) {
	h, err := fsm.CopyStream(w, r)
	return Backup{ClusterID: h.ClusterID, Epoch: h.Epoch, Index: h.Index, At: job.Instant(h.Mark), Jobs: h.Jobs}, err
}
