package listen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/carillon-scheduler/carillon/api"
)

// AdminSocket is the node's socket in its data directory. Who may open it is an admin: they could as well read
// everything in the directory. It is for an admin who lost the token.
const AdminSocket = "admin.sock"

// maxSocketPath is the longest path that a socket can have on every system that we know of.
const maxSocketPath = 103

// Socket is an admin socket that is listened on.
type Socket struct {
	*net.UnixListener
	path string
}

// OpenSocket listens on the admin socket. The directory is locked, so one that is there was left by a process that is
// dead. A node works without it: what is in the way is said, and nothing else, and there is none then.
func OpenSocket(path string, log *slog.Logger) *Socket {
	ln, err := listenSocket(path)
	if err != nil {
		log.Warn("admin socket not opened", "path", path, "error", err)
		return nil
	}
	return &Socket{UnixListener: ln, path: path}
}

func listenSocket(path string) (*net.UnixListener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("its path has %d bytes, and that of a socket at most %d: use a shorter --data-dir, "+
			"or a symbolic link to it", len(path), maxSocketPath)
	}
	// Whoever may call must never be decided by the umask, not for a moment: it is made where nobody else can reach it
	// and gets its name then. The directory's name is shorter than the socket's.
	dir := filepath.Join(filepath.Dir(path), ".sock")
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "a")
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false) // it has another name by then
	err = os.Chmod(made, 0o600)
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	return ln, nil
}

// Remove closes the socket and removes its file, while the directory is still locked. A node that ends as a killed
// process does leaves the file.
func (s *Socket) Remove(killed bool) error {
	if s == nil {
		return nil
	}
	err := s.Close()
	if errors.Is(err, net.ErrClosed) { // its server did
		err = nil
	}
	if killed {
		return err
	}
	if gone := os.Remove(s.path); !errors.Is(gone, fs.ErrNotExist) { // with the directory, if that is
		err = errors.Join(err, gone)
	}
	return err
}

// LocalServer serves an admin socket as srv serves the port.
func LocalServer(srv *http.Server) *http.Server {
	return &http.Server{
		Handler: srv.Handler, ReadHeaderTimeout: srv.ReadHeaderTimeout, IdleTimeout: srv.IdleTimeout,
		MaxHeaderBytes: srv.MaxHeaderBytes, ErrorLog: srv.ErrorLog,
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return api.WithLocal(ctx) },
	}
}
