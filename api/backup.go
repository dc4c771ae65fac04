package api

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/api/wire"
)

// backupRoutes are about backups and what was restored from one.
func backupRoutes() []route {
	return []route{
		{"POST", "/cluster:release", Admin, ToLeader, emptyBody, (*call).release, nil},
		{"GET", "/backup", Admin, Here, streamBody, (*call).backup, params("stale")},
	}
}

// BackupBackend is what the routes of backups stand on.
type BackupBackend interface {
	// Release ends the hold of a restored cluster. Doing it again changes nothing.
	Release(ctx context.Context, rq Request) (wire.ReleaseResult, error)
	// Backup is a consistent copy of this node's own state, leader or not. Closing it frees what it holds.
	Backup(ctx context.Context) (wire.BackupInfo, io.ReadCloser, error)
}

// backupChunk is what must go out within the time limit of a request: 9 KB a second will do.
const backupChunk = 256 << 10

// backup streams a copy of this node's state. The copy was made before the first byte goes out, so a client that is
// slow, or stops reading, keeps nothing waiting but itself; and one that stops altogether is cut off.
func (c *call) backup() error {
	if _, err := c.read(); err != nil {
		return err
	}
	info, rc, err := c.h.backend.Backup(c.ctx)
	if err != nil {
		return err
	}
	defer rc.Close()
	h := c.w.Header()
	h.Set("Content-Type", wire.MediaBackup)
	h.Set("Content-Length", strconv.FormatInt(info.Size, 10))
	info.Headers(h)
	ctl := http.NewResponseController(c.w)
	defer deadline(ctl.SetWriteDeadline, 0)
	deadline(ctl.SetWriteDeadline, c.h.opts.RequestTimeout)
	c.started = true
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	buf := make([]byte, backupChunk)
	for {
		n, err := rc.Read(buf)
		if n > 0 {
			deadline(ctl.SetWriteDeadline, c.h.opts.RequestTimeout)
			if _, err := c.w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *call) release() error {
	rq, err := c.request()
	if err != nil {
		return err
	}
	r, err := c.h.backend.Release(c.ctx, rq)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, r)
}
