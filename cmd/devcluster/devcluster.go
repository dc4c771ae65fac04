// Package devcluster runs the nodes of a cluster to play with: it starts them, starts one again that was killed, and
// says who leads.
package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// cluster is `carillon dev --nodes N`: real processes on the loopback interface, so that one of them can really be
// killed.
type cluster struct {
	o     Options
	mu    sync.Mutex // of o.Out
	nodes []*node
}

type node struct {
	id, addr, log string
	args, env     []string

	mu  sync.Mutex
	cmd *exec.Cmd
}

// Variable is what tells a node that it is one of these. They may be killed by a request.
const Variable = "CARILLON_DEV_CLUSTER"

// KillSelf ends this process as kill -9 does.
func KillSelf() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill() // there is nothing else to be done
	}
}

// restartAfter is how long a killed node stays away: long enough to see the others go on without it.
const restartAfter = 5 * time.Second

// Options say what the nodes are.
type Options struct {
	Nodes   int
	Program string   // what a person types for it
	Listen  string   // of the first; the others take the next ports
	Dir     string   // each has a directory and a log of its own in it
	Args    []string // of `carillon server`, for all of them
	First   []string // further ones of the node that begins the cluster
	Env     []string
	Out     io.Writer
	Welcome func(first string, others ...string) // all of them vote: it is told their addresses
}

// Run runs the nodes until ctx ends.
func Run(ctx context.Context, o Options) error {
	host, first, err := splitPort(o.Listen)
	if err != nil {
		return err
	}
	d := &cluster{o: o}
	for i := range o.Nodes {
		id := fmt.Sprintf("n%d", i+1)
		n := &node{id: id, addr: net.JoinHostPort(host, strconv.Itoa(first+i)), log: filepath.Join(o.Dir, id+".log"),
			env: append(slices.Clone(o.Env), Variable+"=1")}
		n.args = append([]string{"server", "--node-id", id, "--listen", n.addr, "--data-dir",
			filepath.Join(o.Dir, id)}, o.Args...)
		if i == 0 {
			n.args = append(append(n.args, "--bootstrap"), o.First...)
		} else {
			n.args = append(n.args, "--join", d.nodes[0].addr)
		}
		d.nodes = append(d.nodes, n)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, n := range d.nodes {
		all.Go(func() {
			if err := d.keep(ctx, n); err != nil {
				cancel(fmt.Errorf("%s: %w", n.id, err))
			}
		})
	}
	all.Go(func() { d.watch(ctx) })
	<-ctx.Done()
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func splitPort(listen string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(listen)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port == 0 {
		return "", 0, job.Invalid("--listen", "use host:port; the nodes take that port and the next ones",
			"%q has no port", listen)
	}
	return host, port, nil
}

// keep runs a node until ctx ends, and starts it again after it was killed. A node that ends by itself has a reason to,
// and ends all.
func (d *cluster) keep(ctx context.Context, n *node) error {
	for {
		state, err := d.once(ctx, n)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if status, ok := state.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
			return fmt.Errorf("the process ended (%s); the end of its log:\n%s", state, tail(n.log))
		}
		d.say("%s was killed; it comes back in %s", n.id, restartAfter)
		select {
		case <-time.After(restartAfter):
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *cluster) once(ctx context.Context, n *node) (*os.ProcessState, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, n.args...)
	cmd.Env = n.env
	cmd.SysProcAttr = childAttr() // an interrupt in the terminal is ours to pass on, once
	// What raft says about a dead peer would drown what this command has to say.
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	// The thread that starts a process must live as long as it where the parent's death is to be its end; see
	// childAttr.
	started := make(chan error, 1)
	exited := make(chan struct{})
	go onThread(func() {
		started <- cmd.Start()
		<-exited
	})
	if err := <-started; err != nil {
		close(exited)
		return nil, err
	}
	defer close(exited)
	n.mu.Lock()
	n.cmd = cmd
	n.mu.Unlock()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-ctx.Done():
			_ = cmd.Process.Signal(os.Interrupt) // it may be gone already
		case <-done:
		}
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil
	}
	return cmd.ProcessState, err
}

// tail is the end of a log.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

func (n *node) pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil || n.cmd.Process == nil {
		return 0
	}
	return n.cmd.Process.Pid
}

func (d *cluster) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.o.Out, format+"\n", args...)
}

// watch says who leads whenever that changes, with the command that kills it.
func (d *cluster) watch(ctx context.Context) {
	leader, welcomed := "", false
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		status, ok := d.status(ctx)
		if !ok || status.Leader == "" {
			continue
		}
		voters := 0
		for _, m := range status.Members {
			if m.Suffrage == "voter" {
				voters++
			}
		}
		if !welcomed {
			if voters < len(d.nodes) {
				continue
			}
			var others []string
			for _, n := range d.nodes[1:] {
				others = append(others, n.addr)
			}
			d.mu.Lock()
			d.o.Welcome(d.nodes[0].addr, others...)
			d.mu.Unlock()
			welcomed = true
		}
		if status.Leader != leader {
			leader = status.Leader
			for i, n := range d.nodes {
				if n.id == leader {
					// The default address may be the one that is about to die.
					d.say("\n%s leads. Kill it, and watch another one take over:  kill -9 %d; sleep 2; %s "+
						"status --addr %s", n.id, n.pid(), d.o.Program, d.nodes[(i+1)%len(d.nodes)].addr)
				}
			}
		}
	}
}

// status is what the node that leads says, or else whichever answers.
func (d *cluster) status(ctx context.Context) (best client.Status, ok bool) {
	for _, n := range d.nodes {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		s, err := client.New(n.addr, client.WithAttempts(1)).Status(ctx)
		cancel()
		if err == nil && (!ok || s.State == "leader") {
			best, ok = s, true
		}
	}
	return best, ok
}
