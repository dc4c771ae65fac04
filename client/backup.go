package client

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// MediaBackup is the content type of a backup.
const MediaBackup = "application/vnd.carillon.backup"

// The headers of a backup.
const (
	headerCluster = "Carillon-Cluster"
	headerIndex   = "Carillon-Index"
	headerAge     = "Carillon-Stale-Ms"
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
	h.Set(headerCluster, i.ClusterID)
	h.Set(headerIndex, strconv.FormatUint(i.Index, 10))
	h.Set(headerAge, strconv.FormatInt(i.Age.Milliseconds(), 10))
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

// Release ends the hold of a restored cluster.
func (c *Client) Release(ctx context.Context) (r ReleaseResult, err error) {
	err = c.do(ctx, request{method: http.MethodPost, path: prefix + "/cluster:release", out: &r, need: "released"})
	return r, err
}

// Backup asks the node for a copy of its state. The caller reads and closes it, and verifies what it read: only then is it known to be
// whole. It is asked once: half a copy cannot be gone on with.
func (c *Client) Backup(ctx context.Context) (info BackupInfo, body io.ReadCloser, err error) {
	if c.baseErr != nil {
		return info, nil, c.baseErr
	}
	hr, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+prefix+"/backup", nil)
	if err != nil {
		return info, nil, job.Errorf(job.CodeMalformed, "", "cannot make the request: %v", err)
	}
	hr.Header.Set("User-Agent", c.agent)
	hr.Header.Set("Accept-Encoding", "identity") // compressed it would have no length, and a cut would not show
	resp, err := c.http.Do(hr)
	if err != nil {
		_, err = c.unreachable(ctx, http.MethodGet, nil, err)
		return info, nil, err
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		return info, nil, readProblem(resp)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || media != MediaBackup {
		defer resp.Body.Close()
		return info, nil, c.notOurs(resp)
	}
	info.ClusterID, info.Size = resp.Header.Get(headerCluster), resp.ContentLength
	info.Index, _ = strconv.ParseUint(resp.Header.Get(headerIndex), 10, 64) // for people; the file says it too
	ms, _ := strconv.ParseInt(resp.Header.Get(headerAge), 10, 64)
	info.Age = time.Duration(ms) * time.Millisecond
	return info, resp.Body, nil
}
