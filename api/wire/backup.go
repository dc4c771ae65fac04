package wire

import (
	"net/http"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// MediaBackup is the content type of a backup.
const MediaBackup = "application/vnd.carillon.backup"

// The headers of a backup.
const (
	HeaderCluster = "Carillon-Cluster"
	HeaderIndex   = "Carillon-Index"
	HeaderAge     = "Carillon-Stale-Ms"
)

// BackupInfo is what a node says of a backup before it sends it.
type BackupInfo struct {
	ClusterID string
	Index     uint64        // the last log entry in it
	Age       time.Duration // how long ago this was the leader's state, as far as the node knows
	Size      int64
}

// Headers writes the info into a response's headers, beside its length.
func (i BackupInfo) Headers(h http.Header) {
	h.Set(HeaderCluster, i.ClusterID)
	h.Set(HeaderIndex, strconv.FormatUint(i.Index, 10))
	h.Set(HeaderAge, strconv.FormatInt(i.Age.Milliseconds(), 10))
}

// ReleaseResult says what a release did.
type ReleaseResult struct {
	Released  bool        `json:"released"`            // this call ended the hold; false if there was none any more
	Releasing bool        `json:"releasing,omitempty"` // open runs of the backup are still being recorded as lost
	At        job.Instant `json:"released_at,omitzero"`
}

// HoldStatus says that a restored cluster waits to be released.
type HoldStatus struct {
	Since       job.Instant `json:"since"` // when the backup was restored
	FromCluster string      `json:"from_cluster"`
	FromIndex   uint64      `json:"from_index"`
	Releasing   bool        `json:"releasing,omitempty"` // it was released; the open runs of the backup are being recorded as lost
	Remedy      string      `json:"remedy"`
}
