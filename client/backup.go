package client

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// Release ends the hold of a restored cluster.
func (c *Client) Release(ctx context.Context) (r ReleaseResult, err error) {
	err = c.do(ctx, request{method: http.MethodPost, path: prefix + "/cluster:release", out: &r, need: "released"})
	return r, err
}

// NoteBackup records that a node is about to give out its state, or its keys. Nodes ask the leader for it before they
// do.
func (c *Client) NoteBackup(ctx context.Context, n BackupNote) error {
	return c.do(ctx, request{method: http.MethodPost, path: prefix + "/backup:note", body: n})
}

// Backup asks a node for a copy of its state. The caller reads and closes it, and verifies what it read: only then is
// it known to be whole. Each node is asked once: half a copy cannot be gone on with.
func (c *Client) Backup(ctx context.Context) (info BackupInfo, body io.ReadCloser, err error) {
	if c.baseErr != nil {
		return info, nil, c.baseErr
	}
	var failed []error
	for _, base := range c.nodes.order() {
		var again bool
		if again, info, body, err = c.backupOf(ctx, base); err == nil || !again || ctx.Err() != nil {
			return info, body, err
		}
		c.nodes.passOver(base)
		failed = append(failed, err)
	}
	return info, nil, mostTelling(failed)
}

func (c *Client) backupOf(ctx context.Context,
	base string) (again bool, info BackupInfo, body io.ReadCloser, err error) {
	fail := func(again bool, err error) (bool, BackupInfo, io.ReadCloser, error) {
		return again, BackupInfo{}, nil, err
	}
	if c.timeout > 0 { // a large copy takes the node minutes before its first byte: whether it lives is asked beside it
		if again, err := c.once(ctx, base, request{method: http.MethodGet, path: "/healthz"}, "",
			c.timeout/time.Duration(len(c.nodes.bases))); err != nil {
			return fail(again, err)
		}
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			cancel(nil)
		}
	}()
	asked, answered := context.WithCancel(limited)
	defer answered()
	if c.timeout > 0 {
		go c.alive(asked, base, cancel)
	}
	hr, err := http.NewRequestWithContext(limited, http.MethodGet, base+prefix+"/backup", nil)
	if err != nil {
		return fail(false, job.Errorf(job.CodeMalformed, "", "cannot make the request: %v", err))
	}
	c.sign(hr)
	hr.Header.Set("Accept-Encoding", "identity") // compressed it would have no length, and a cut would not show
	resp, err := c.http.Do(hr)
	answered()
	if err != nil {
		return fail(unreachable(ctx, base, http.MethodGet, "", nil, silencedOr(limited, err)))
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		return fail(false, readProblem(resp))
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode != http.StatusOK || media != MediaBackup {
		defer resp.Body.Close()
		return fail(false, notOurs(base, resp))
	}
	c.nodes.answered(base)
	info.ClusterID, info.Size = resp.Header.Get(wire.HeaderCluster), resp.ContentLength
	info.Index, _ = strconv.ParseUint(resp.Header.Get(wire.HeaderIndex), 10, 64) // for people; the file says it too
	ms, _ := strconv.ParseInt(resp.Header.Get(wire.HeaderAge), 10, 64)
	info.Age = time.Duration(ms) * time.Millisecond
	return false, info, watchedBody(limited, cancel, resp.Body, c.gap), nil
}

// watchedBody gives up a stream that is silent for longer than the gap, 0 for any.
func watchedBody(ctx context.Context, cancel context.CancelCauseFunc, body io.ReadCloser,
	gap time.Duration) io.ReadCloser {
	dog := &watchdog{gap: gap}
	if gap > 0 {
		dog.timer = time.AfterFunc(gap, func() { cancel(silence{after: gap, begun: true}) })
	}
	in := dog.reader(body)
	return &streamed{ctx: ctx, in: in, close: func() error {
		if dog.timer != nil {
			dog.timer.Stop()
		}
		cancel(nil)
		return body.Close()
	}}
}

// streamed is the body of an answer that says why it was given up.
type streamed struct {
	ctx   context.Context
	in    io.Reader
	close func() error
}

func (s *streamed) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = silencedOr(s.ctx, err)
	}
	return n, err
}

func (s *streamed) Close() error { return s.close() }
