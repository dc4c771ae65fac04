// Package systemd tells the service manager how its service is: that it has started, what it does, that it is alive and
// that it stops. Without a service manager nothing happens.
package systemd

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// Patience is how long a start may take before it counts as one. A node that waits for others to form a cluster
	// with has started: whoever starts one machine after the other would otherwise wait for the second at the first.
	// What is wrong with its own configuration shows earlier, and then the start has failed.
	Patience = 5 * time.Second
	look     = time.Second
)

// Manager is the service manager of this process. The zero value is none.
type Manager struct {
	socket   string
	watchdog time.Duration
	patience time.Duration
	once     sync.Once
}

// Find looks for a service manager in the environment, and takes it out: what this process starts is not the service.
func Find() *Manager {
	m := &Manager{socket: os.Getenv("NOTIFY_SOCKET"), patience: Patience}
	us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	if pid := os.Getenv("WATCHDOG_PID"); err == nil && us > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		m.watchdog = time.Duration(us) * time.Microsecond
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		os.Unsetenv(name)
	}
	return m
}

// tell sends what sd_notify(3) lists. A manager that does not listen is no reason to stop.
func (m *Manager) tell(lines ...string) {
	if m.socket == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.socket, Net: "unixgram"}) // @ is the abstract one
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Write([]byte(strings.Join(lines, "\n")))
}

// Starting says that the service starts. It has started when Ready is called, or has been patient for long enough. Then
// it says no status: Follow has said what the service waits for, and says that only once.
func (m *Manager) Starting() {
	if m.socket != "" {
		m.tell(line("starting"))
		time.AfterFunc(m.patience, func() { m.once.Do(func() { m.tell("READY=1") }) })
	}
}

// Ready says that the service has started, once.
func (m *Manager) Ready(status string) {
	m.once.Do(func() { m.tell("READY=1", line(status)) })
}

// Stopping says that the service stops, when the context ends.
func (m *Manager) Stopping(ctx context.Context, status string) {
	context.AfterFunc(ctx, func() { m.tell("STOPPING=1", line(status)) })
}

// Follow says what the service does whenever that changes, until the context ends, and that it is alive for as long as
// it answers so, until done is closed: a service that stops takes its time. One that hangs is restarted.
func (m *Manager) Follow(ctx context.Context, done <-chan struct{}, alive func() bool, status func() string) {
	if m.socket == "" {
		return
	}
	every := look
	if m.watchdog > 0 {
		every = min(look, m.watchdog/4)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var said string
	var fed time.Time
	for {
		if now := time.Now(); m.watchdog > 0 && now.Sub(fed) >= m.watchdog/4 && alive() {
			m.tell("WATCHDOG=1")
			fed = now
		}
		if text := status(); text != said && ctx.Err() == nil {
			said = text
			m.tell(line(text))
		}
		select {
		case <-tick.C:
		case <-done:
			return
		}
	}
}

func line(text string) string { return "STATUS=" + strings.ReplaceAll(text, "\n", " ") }
