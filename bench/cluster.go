package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-scheduler/carillon/client"
)

// patient is for requests under load: they may take long, and a node that does not answer at all must not hold a
// measurement for ever.
var patient = client.WithTimeout(time.Minute)

// Cluster is what is measured: processes of our own, or a cluster at an address.
type Cluster struct {
	binary string
	nodes  []*process
	addrs  []string
	admin  string // the token of a secure one
	token  string // file with the token of its workers
}

// process is a child: a node or a worker.
type process struct {
	name, log string
	args      []string

	mu  sync.Mutex
	cmd *exec.Cmd
	end chan struct{}
}

// Remote is a cluster that runs already.
func Remote(binary, addr string) *Cluster { return &Cluster{binary: binary, addrs: []string{addr}} }

// StartCluster starts a cluster of n processes and some Raft groups below dir and waits until all of them vote. extra
// goes to every node.
func StartCluster(ctx context.Context, binary, dir string, n, groups int, secure bool,
	extra ...string) (*Cluster, error) {
	if secure {
		flags, err := (&Cluster{binary: binary}).makeKeys(ctx, dir)
		if err != nil {
			return nil, err
		}
		extra = append(flags, extra...)
	}
	_, err := os.Stat(filepath.Join(dir, nodeID(0)))
	for tries := 0; ; tries++ {
		c, startErr := startNodes(ctx, binary, dir, n, groups, secure, extra)
		if startErr == nil || tries == portTries || !errors.Is(err, fs.ErrNotExist) ||
			!strings.Contains(startErr.Error(), "address already in use") {
			return c, startErr
		}
		// Another process took a port between our look for a free one and its use.
		for i := range n {
			for _, made := range []string{nodeID(i), nodeID(i) + ".log"} {
				if err := os.RemoveAll(filepath.Join(dir, made)); err != nil {
					return nil, err
				}
			}
		}
	}
}

// portTries is how often other ports are tried.
const portTries = 5

func nodeID(i int) string { return "n" + strconv.Itoa(i+1) }

func startNodes(ctx context.Context, binary, dir string, n, groups int, secure bool, extra []string) (*Cluster, error) {
	c := &Cluster{binary: binary}
	for i := range n {
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		id := nodeID(i)
		args := []string{"server", "--node-id", id, "--listen", addr, "--data-dir", filepath.Join(dir, id),
			"--log-level", "warn",
			"--history-max-count", "1000000000"}
		if i == 0 {
			if args = append(args, "--bootstrap"); groups > 1 {
				args = append(args, "--groups", strconv.Itoa(groups))
			}
		} else {
			args = append(args, "--join", c.addrs[0])
		}
		c.addrs = append(c.addrs, addr)
		c.nodes = append(c.nodes, &process{name: id, log: filepath.Join(dir, id+".log"), args: append(args, extra...)})
	}
	for _, p := range c.nodes {
		if err := p.start(binary); err != nil {
			c.Stop()
			return nil, err
		}
	}
	err := c.enter(ctx, dir, secure)
	if err == nil {
		err = c.begun(ctx, n, groups)
	}
	if err == nil && secure {
		err = c.makeToken(ctx, dir)
	}
	if err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// begun waits until the cluster is ready, and of several groups until each has its replicas, every node knows that they
// take jobs, and leaders are where they stay: to move them is no part of what is measured.
func (c *Cluster) begun(ctx context.Context, n, groups int) error {
	// The table of groups is written step by step, some steps for each group.
	for until := time.Now().Add(readyLimit + time.Duration(groups)*10*time.Second); ; {
		s, err := c.ready(ctx)
		if err != nil || groups <= 1 {
			return err
		}
		whole, leads := 0, map[string]int{}
		for _, g := range s.Groups {
			if g.ID != 0 && g.Leader != "" && len(g.Members) == min(n, 3) {
				whole++
				leads[g.Leader]++
			}
		}
		if most := slices.Max(append(slices.Collect(maps.Values(leads)), 0)); whole == groups &&
			most <= (groups+min(n, 3)-1)/min(n, 3) && s.Growth == nil {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("%d of %d groups have all replicas, leaders are %v, growth: %+v", whole, groups, leads,
				s.Growth)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// freeAddr is an address that no process listens at; a test has one that is taken.
var freeAddr = func() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

func (p *process) start(binary string) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(binary, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := startChild(cmd); err != nil {
		return err
	}
	end := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.end = cmd, end
	p.mu.Unlock()
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(end)
	}()
	return nil
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

func (p *process) signal(s os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s) // it may be gone already
	}
}

// stop asks a process to end and waits; one that does not is killed.
func (p *process) stop() {
	p.mu.Lock()
	end := p.end
	p.mu.Unlock()
	if end == nil {
		return
	}
	p.signal(syscall.SIGTERM)
	select {
	case <-end:
	case <-time.After(30 * time.Second):
		p.kill()
	}
}

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.end
}

func (p *process) alive() bool {
	select {
	case <-p.end:
		return false
	default:
		return p.end != nil
	}
}

// Stop ends all nodes.
func (c *Cluster) Stop() {
	var all sync.WaitGroup
	for _, p := range c.nodes {
		all.Go(p.stop)
	}
	all.Wait()
}

// client speaks to the node that leads, so that nothing is measured twice on its way.
func (c *Cluster) client(ctx context.Context) (*client.Client, error) {
	s, err := c.ready(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range s.Members {
		if m.ID == s.Leader {
			return c.at(m.Address), nil
		}
	}
	return c.at(c.addrs[0]), nil
}

// readyLimit is how long a cluster may take to become ready.
const readyLimit = time.Minute

// ready waits until the cluster takes work, with all of its members.
func (c *Cluster) ready(ctx context.Context) (client.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	asked := make([]*client.Client, len(c.addrs))
	for i, a := range c.addrs {
		// A node that hangs, or has no leader yet, must not use up the time of the others.
		asked[i] = c.at(a, client.WithAttempts(1), client.WithTimeout(readyLimit/12))
	}
	why := make([]string, len(c.addrs))
	for {
		for i, node := range asked {
			s, err := node.Status(ctx)
			switch {
			case err != nil && ctx.Err() == nil:
				why[i] = err.Error()
			case err != nil: // it says nothing new
			case c.nodes != nil && voters(s) != len(c.nodes):
				why[i] = fmt.Sprintf("%d of %d nodes vote", voters(s), len(c.nodes))
			case !s.Ready || s.Leader == "":
				why[i] = "it is not ready: " + cmp.Or(s.NotReady, "there is no leader")
			default:
				return s, nil
			}
		}
		for _, p := range c.nodes {
			if !p.alive() {
				return client.Status{}, fmt.Errorf("%s ended: %s", p.name, tail(p.log))
			}
		}
		select {
		case <-ctx.Done():
			return client.Status{}, c.notReady(why)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// notReady says what each node said last, and the ends of their logs: which part of a start takes long on a machine
// cannot be told from outside.
func (c *Cluster) notReady(why []string) error {
	text := fmt.Sprintf("the cluster did not become ready within %s", readyLimit)
	for i, a := range c.addrs {
		text += fmt.Sprintf("\n%s: %s", a, cmp.Or(why[i], "no answer"))
		if i < len(c.nodes) {
			text += "\n" + tail(c.nodes[i].log)
		}
	}
	return errors.New(text)
}

func voters(s client.Status) (n int) {
	for _, m := range s.Members {
		if m.Suffrage == "voter" {
			n++
		}
	}
	return n
}

func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

// leader is the process that leads; nil when the cluster is not ours.
func (c *Cluster) leader(ctx context.Context) (*process, error) {
	s, err := c.ready(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range c.nodes {
		if p.name == s.Leader {
			return p, nil
		}
	}
	return nil, nil
}
