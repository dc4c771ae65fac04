package listen

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// A flood of refused connections is counted in full and logged once a minute.
func TestRefusalsAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		var out bytes.Buffer
		p := Bound(ln, PortOptions{Max: 64, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		for range 3 {
			for range 100 {
				p.refuse(ln.Addr(), errors.New("too many"))
			}
			time.Sleep(time.Minute)
		}
		if n := strings.Count(out.String(), "connections are refused"); n != 3 || p.Refused() != 300 {
			t.Errorf("%d refused, %d lines: %s", p.Refused(), n, out.String())
		}
	})
}

func TestMembersAreKnownByTheirAddress(t *testing.T) {
	p := &Port{o: PortOptions{Servers: func() []raft.Server {
		return []raft.Server{{Address: "127.0.0.1:7400"}, {Address: "[::1]:7400"}, {Address: "a.example:7400"}}
	}}}
	for addr, want := range map[string]bool{"127.0.0.1": true, "::1": true, "127.0.0.2": false} {
		if got := p.Member(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
}

// Only the owner of the process may open the socket. A file that a dead process left is replaced, a killed one leaves
// its file, and a path that no socket can have is said and is no error.
func TestSocket(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	dir, err := os.MkdirTemp("", "s") // a test's own directory may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, AdminSocket)
	first := OpenSocket(path, log)
	if first == nil {
		t.Fatal(out.String())
	}
	if err := first.Remove(true); err != nil {
		t.Error(err)
	}
	second := OpenSocket(path, log)
	if second == nil {
		t.Fatal(out.String())
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	srv := LocalServer(&http.Server{Handler: http.NotFoundHandler()})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(second) }()
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if err := second.Remove(false); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if s := OpenSocket(filepath.Join(dir, strings.Repeat("x", maxSocketPath)), log); s != nil || s.Remove(false) != nil ||
		!strings.Contains(out.String(), "use a shorter --data-dir") {
		t.Errorf("%v: %s", s, out.String())
	}
}
