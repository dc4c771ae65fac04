package harness

import (
	"syscall"
	"time"
)

// Outage is a time during which the process was dead by our hand: killed somewhere between Sent and Dead, ready again
// at Ready. One that was paused stood still from Sent to Dead, one that was cut off could not reach the others, and one
// that was stopped ended in good order when it was asked to.
type Outage struct {
	Node              string // and so the name of the worker in it
	Sent, Dead, Ready time.Time
	Paused, Cut       bool
	Stopped           bool
	Why               string
}

// Kill ends the process with SIGKILL and keeps the time of it. It is an error if it had ended before.
func (n *Node) Kill(why string) Outage {
	n.tb.Helper()
	if state := n.Ended(); state != nil {
		n.tb.Fatalf("the process ended by itself: %s\n%s", state, n.LogTail(60))
	}
	n.mu.Lock()
	cmd, exited := n.cmd, n.exited
	n.mu.Unlock()
	o := Outage{Node: n.ID, Sent: time.Now(), Why: why}
	killGroup(cmd)
	<-exited
	o.Dead = time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cmd = nil
	n.outages = append(n.outages, o)
	return o
}

// Pause stops the process where it stands, for a while, without its knowing.
func (n *Node) Pause(why string, d time.Duration) Outage {
	n.tb.Helper()
	n.mu.Lock()
	cmd := n.cmd
	n.mu.Unlock()
	o := Outage{Node: n.ID, Sent: time.Now(), Paused: true, Why: why}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		n.tb.Fatal(err)
	}
	time.Sleep(d)
	o.Dead = time.Now()
	o.Ready = o.Dead
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		n.tb.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.outages = append(n.outages, o)
	return o
}

// Freeze stops the process where it stands until it is thawed.
func (n *Node) Freeze(why string) (thaw func()) {
	n.tb.Helper()
	n.mu.Lock()
	cmd := n.cmd
	n.mu.Unlock()
	o := Outage{Node: n.ID, Sent: time.Now(), Paused: true, Why: why}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		n.tb.Fatal(err)
	}
	return func() {
		n.tb.Helper()
		o.Dead = time.Now()
		o.Ready = o.Dead
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			n.tb.Fatal(err)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.outages = append(n.outages, o)
	}
}

// CutOff notes that the process could not reach the others from an instant until now. Cutting is the network's
// business.
func (n *Node) CutOff(why string, from time.Time) Outage {
	o := Outage{Node: n.ID, Sent: from, Dead: time.Now(), Cut: true, Why: why}
	o.Ready = o.Dead
	n.mu.Lock()
	defer n.mu.Unlock()
	n.outages = append(n.outages, o)
	return o
}

// StopAndKill asks the process to end, and kills it if it has not ended after a while. What it had in hand may be
// finished or not.
func (n *Node) StopAndKill(why string, after time.Duration) Outage {
	n.tb.Helper()
	n.mu.Lock()
	cmd, exited := n.cmd, n.exited
	n.mu.Unlock()
	o := Outage{Node: n.ID, Sent: time.Now(), Why: why}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		n.tb.Fatal(err)
	}
	select {
	case <-exited:
		o.Stopped = true
	case <-time.After(after):
		killGroup(cmd)
		<-exited
	}
	o.Dead = time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cmd = nil
	n.outages = append(n.outages, o)
	return o
}

// Outages are the kills so far.
func (n *Node) Outages() []Outage {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]Outage(nil), n.outages...)
}

// Died notes that the process ended by itself, because of something that was done to it at some instant.
func (n *Node) Died(why string, since time.Time) Outage {
	o := Outage{Node: n.ID, Sent: since, Dead: time.Now(), Why: why}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cmd = nil
	n.outages = append(n.outages, o)
	return o
}
