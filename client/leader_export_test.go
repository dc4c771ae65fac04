package client

import "time"

// Hurry makes a Leader lose patience early: a try may take d, a poll d beyond its wait.
func (l *Leader) Hurry(d time.Duration) { l.patience = d }

// Current is the URL of the node that answered last.
func (l *Leader) Current() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current
}
