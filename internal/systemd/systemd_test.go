package systemd

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// manager listens as systemd does.
func manager(t *testing.T, watchdog time.Duration) <-chan string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt(watchdog.Microseconds(), 10))
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	said := make(chan string, 1000)
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			said <- string(b[:n])
		}
	}()
	return said
}

// await is the next that is said and begins so.
func await(t *testing.T, said <-chan string, prefix string) string {
	t.Helper()
	for end := time.After(time.Minute); ; {
		select {
		case s := <-said:
			if strings.HasPrefix(s, prefix) {
				return s
			}
		case <-end:
			t.Fatalf("%s was not said", prefix)
		}
	}
}

// A start that waits for others counts as one after a while, and what it waits for stays.
func TestPatienceKeepsTheStatus(t *testing.T) {
	said := manager(t, 0)
	m := Find()
	m.patience = 0
	m.Starting()
	if s := <-said; s != "STATUS=starting" {
		t.Errorf("%q", s)
	}
	if s := await(t, said, "READY=1"); s != "READY=1" {
		t.Errorf("%q", s)
	}
}

func TestLifeOfAService(t *testing.T) {
	said := manager(t, 40*time.Millisecond)
	m := Find()
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		if v, there := os.LookupEnv(name); there { // a command of a job is not the service
			t.Errorf("%s is still %q", name, v)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	m.Stopping(ctx, "stopping")
	m.Ready("starting")
	m.Ready("a second time")
	if s := <-said; s != "READY=1\nSTATUS=starting" {
		t.Errorf("%q", s)
	}
	done, ended := make(chan struct{}), make(chan struct{})
	var dead atomic.Bool
	var what atomic.Value
	what.Store("waits for\nothers")
	go func() {
		defer close(ended)
		m.Follow(ctx, done, func() bool { return !dead.Load() }, func() string { return what.Load().(string) })
	}()
	if s := await(t, said, "STATUS="); s != "STATUS=waits for others" {
		t.Errorf("%q", s)
	}
	await(t, said, "WATCHDOG=1")
	what.Store("leads")
	if s := await(t, said, "STATUS="); s != "STATUS=leads" {
		t.Errorf("%q", s)
	}
	stop()
	if s := await(t, said, "STOPPING=1"); s != "STOPPING=1\nSTATUS=stopping" {
		t.Errorf("%q", s)
	}
	await(t, said, "WATCHDOG=1") // while it drains
	dead.Store(true)
	what.Store("not said any more")
	close(done)
	<-ended
	for {
		select {
		case s := <-said:
			if s != "WATCHDOG=1" {
				t.Errorf("%q", s)
			}
			continue
		default:
		}
		break
	}
}

// One that hangs says nothing more, and the manager restarts it.
func TestNobodyFeedsForOneThatHangs(t *testing.T) {
	said := manager(t, 20*time.Millisecond)
	m := Find()
	done, asked := make(chan struct{}), make(chan struct{}, 100)
	defer close(done)
	go m.Follow(t.Context(), done, func() bool {
		select {
		case asked <- struct{}{}:
		default:
		}
		return false
	}, func() string { return "" })
	for range 5 {
		<-asked
	}
	select {
	case s := <-said:
		t.Errorf("%q", s)
	default:
	}
}

func TestWithoutAManager(t *testing.T) {
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		t.Setenv(name, "")
	}
	m := Find()
	m.Starting()
	m.Ready("x")
	m.Follow(t.Context(), nil, nil, nil)
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "nobody"))
	t.Setenv("WATCHDOG_USEC", "1000")
	t.Setenv("WATCHDOG_PID", "1") // of another process
	if m = Find(); m.watchdog != 0 {
		t.Errorf("%v", m.watchdog)
	}
	m.Ready("x") // nobody listens
}
