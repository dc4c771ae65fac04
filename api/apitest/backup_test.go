package apitest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/client"
)

// endless is a backend whose backup is as long as anybody likes.
type endless struct {
	api.Backend
	size   int64
	fail   error // after a megabyte
	closed atomic.Int64
}

func (e *endless) Backup(context.Context) (wire.BackupInfo, io.ReadCloser, error) {
	return wire.BackupInfo{ClusterID: "c", Index: 3, Size: e.size}, &endlessReader{e: e, left: e.size}, nil
}

type endlessReader struct {
	e    *endless
	left int64
}

func (r *endlessReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	if r.e.fail != nil && r.e.size-r.left >= 1<<20 {
		return 0, r.e.fail
	}
	n := int(min(int64(len(p)), r.left))
	r.left -= int64(n)
	return n, nil
}

func (r *endlessReader) Close() error {
	r.e.closed.Add(1)
	return nil
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if cond() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// A client that hangs up, or that stops reading, frees the copy; what breaks off on the node's side does not look complete.
func TestBackupFreesItsCopy(t *testing.T) {
	t.Run("whole", func(t *testing.T) {
		e := &endless{Backend: empty(t).Backend, size: 3 << 20}
		srv := httptest.NewServer(api.New(e, api.Options{}))
		defer srv.Close()
		info, body, err := client.New(srv.URL).Backup(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		if n, err := io.Copy(io.Discard, body); err != nil || n != e.size || info.Size != n || info.Index != 3 || info.ClusterID != "c" {
			t.Errorf("%d %v %+v", n, err, info)
		}
		eventually(t, "closed", func() bool { return e.closed.Load() == 1 })
	})
	t.Run("hangs up", func(t *testing.T) {
		e := &endless{Backend: empty(t).Backend, size: 1 << 40}
		srv := httptest.NewServer(api.New(e, api.Options{}))
		defer srv.Close()
		_, body, err := client.New(srv.URL).Backup(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, body, 1<<20); err != nil {
			t.Fatal(err)
		}
		body.Close()
		eventually(t, "closed", func() bool { return e.closed.Load() == 1 })
	})
	t.Run("stops reading", func(t *testing.T) {
		e := &endless{Backend: empty(t).Backend, size: 1 << 40}
		srv := httptest.NewServer(api.New(e, api.Options{RequestTimeout: 100 * time.Millisecond}))
		defer srv.Close()
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /api/v1/backup HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		eventually(t, "closed", func() bool { return e.closed.Load() == 1 })
	})
	t.Run("breaks off", func(t *testing.T) {
		e := &endless{Backend: empty(t).Backend, size: 1 << 30, fail: errors.New("the disk is gone")}
		srv := httptest.NewServer(api.New(e, api.Options{}))
		defer srv.Close()
		_, body, err := client.New(srv.URL).Backup(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		if n, err := io.Copy(io.Discard, body); err == nil {
			t.Errorf("%d bytes look complete", n)
		}
		eventually(t, "closed", func() bool { return e.closed.Load() == 1 })
	})
	t.Run("refused", func(t *testing.T) {
		f := hooked{empty(t).Backend, func(context.Context, string) error { return errors.New("no") }}
		srv := httptest.NewServer(api.New(f, api.Options{}))
		defer srv.Close()
		if _, _, err := client.New(srv.URL).Backup(t.Context()); err == nil {
			t.Error("it was not refused")
		}
		other := httptest.NewServer(http.NotFoundHandler())
		defer other.Close()
		if _, _, err := client.New(other.URL).Backup(t.Context()); err == nil {
			t.Error("that was no node")
		}
	})
}
