package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) devCmd() *cobra.Command {
	cfg := ServerConfig{NodeID: "dev", Bootstrap: true, toolFlags: toolFlags{Executors: executor.NodeTypes()},
		Slots: 64, Dev: true, LogFormat: "text",
		HistoryMaxAge: 7 * 24 * time.Hour, HistoryMaxCount: 1_000_000}
	var nodes int
	c := &cobra.Command{
		Use: "dev", Short: "Run one node, or three, to play with: nothing to configure", Args: cobra.NoArgs,
		Long: "Run one node on the loopback interface with every executor on, shell too. Without --data-dir its " +
			"state is in a temporary directory that is removed at the end. With --nodes 3 it starts three processes " +
			"that form a cluster, says who leads, and how to kill it.",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := onlyLoopback(cfg.Listen); err != nil {
				return err
			}
			temporary := cfg.DataDir == ""
			if temporary {
				if cfg.DataDir, err = os.MkdirTemp("", "carillon-dev-"); err != nil {
					return err
				}
				defer func() { err = errors.Join(err, os.RemoveAll(cfg.DataDir)) }()
			}
			cfg.readEnv(a.env)
			if err := cfg.validate(); err != nil {
				return err
			}
			switch {
			case nodes < 1 || nodes > 7:
				return job.Invalid("--nodes", "use 1, 3 or 5", "%d nodes", nodes)
			case nodes > 1:
				if cfg.LogLevel == "warn" {
					cfg.LogLevel = "info" // it goes to files
				}
				if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
					return err
				}
				return runDevCluster(cmd.Context(), cfg, nodes, cmd.OutOrStdout(), temporary)
			}
			return runNode(cmd, cfg, func(addr string) { devWelcome(cmd.OutOrStdout(), addr, cfg.DataDir, temporary) })
		},
	}
	c.Flags().StringVar(&cfg.Listen, "listen", client.DefaultAddr, "host:port on the loopback interface")
	c.Flags().IntVar(&nodes, "nodes", 1, "how many nodes, each a process of its own on the next port")
	c.Flags().StringVar(&cfg.DataDir, "data-dir", "", "directory of its state (default a temporary one)")
	allowNetworkFS(c.Flags(), &cfg.AllowNetworkFS, "--data-dir")
	cfg.registerBrokers(c.Flags())
	raftMultiplier(c.Flags(), &cfg)
	c.Flags().StringVar(&cfg.LogLevel, "log-level", "warn", "debug, info, warn or error")
	c.Flags().BoolVar(&cfg.Pprof, "pprof", false, "serve /debug/pprof/")
	return c
}

// onlyLoopback keeps other machines away from a node that runs shell jobs for every client.
func onlyLoopback(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || !isAddress(listen) {
		return job.Invalid("--listen", "use host:port, such as "+client.DefaultAddr, "%q is not an address", listen)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return job.Invalid("--listen", "use `carillon server`, which runs shell jobs only with --executors shell",
			"%q is not a loopback address, and a dev node runs shell jobs for every client", listen)
	}
	return nil
}

// devWelcome says what to try next, ready to be pasted.
func devWelcome(w io.Writer, addr, dir string, temporary bool, others ...string) {
	flag := ""
	if addr != client.DefaultAddr {
		flag = " --addr " + addr
	}
	kept := "kept"
	if temporary {
		kept = "temporary: removed at the end; --data-dir keeps it"
	}
	also := ""
	for _, o := range others {
		also += ", http://" + o
	}
	fmt.Fprintf(w, `carillon dev serves on http://%s%s
data in %s (%s)

Try, in another terminal:

  carillon submit%s --name hello --schedule '@every 2s' --shell 'echo hello from $CARILLON_RUN'
  carillon runs%s hello
  carillon status%s

Ctrl-C ends it.
`, addr, also, dir, kept, flag, flag, flag)
}

// devCluster is `carillon dev --nodes N`: real processes on the loopback interface, so that one of them can really be
// killed.
type devCluster struct {
	out   io.Writer
	mu    sync.Mutex // of out
	nodes []*devNode
}

type devNode struct {
	id, addr, log string
	args, env     []string

	mu  sync.Mutex
	cmd *exec.Cmd
}

// restartAfter is how long a killed node stays away: long enough to see the others go on without it.
const restartAfter = 5 * time.Second

func runDevCluster(ctx context.Context, cfg ServerConfig, n int, out io.Writer, temporary bool) error {
	host, first, err := splitPort(cfg.Listen)
	if err != nil {
		return err
	}
	d := &devCluster{out: out}
	for i := range n {
		id := fmt.Sprintf("n%d", i+1)
		node := &devNode{id: id, addr: net.JoinHostPort(host, strconv.Itoa(first+i)),
			log: filepath.Join(cfg.DataDir, id+".log")}
		node.args = []string{"server", "--node-id", id, "--listen", node.addr, "--data-dir",
			filepath.Join(cfg.DataDir, id),
			"--executors", strings.Join(cfg.Executors, ","), "--slots", strconv.Itoa(cfg.Slots), "--log-level",
			cfg.LogLevel, "--raft-multiplier", strconv.Itoa(cfg.RaftMultiplier),
			"--allow-network-fs=" + strconv.FormatBool(cfg.AllowNetworkFS)}
		if i == 0 {
			node.args = append(node.args, "--bootstrap")
		} else {
			node.args = append(node.args, "--join", d.nodes[0].addr)
		}
		// not as a flag: ps shows those to everybody
		node.env = append(os.Environ(), "CARILLON_BROKERS="+strings.Join(cfg.Brokers, " "))
		d.nodes = append(d.nodes, node)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, node := range d.nodes {
		all.Go(func() {
			if err := d.keep(ctx, node); err != nil {
				cancel(fmt.Errorf("%s: %w", node.id, err))
			}
		})
	}
	all.Go(func() { d.watch(ctx, cfg.DataDir, temporary) })
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
func (d *devCluster) keep(ctx context.Context, n *devNode) error {
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

func (d *devCluster) once(ctx context.Context, n *devNode) (*os.ProcessState, error) {
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

func (n *devNode) pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil || n.cmd.Process == nil {
		return 0
	}
	return n.cmd.Process.Pid
}

func (d *devCluster) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, format+"\n", args...)
}

// watch says who leads whenever that changes, with the command that kills it.
func (d *devCluster) watch(ctx context.Context, dir string, temporary bool) {
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
			devWelcome(d.out, d.nodes[0].addr, dir, temporary, others...)
			d.mu.Unlock()
			welcomed = true
		}
		if status.Leader != leader {
			leader = status.Leader
			for i, n := range d.nodes {
				if n.id == leader {
					// The default address may be the one that is about to die.
					d.say("\n%s leads. Kill it, and watch another one take over:  kill -9 %d; sleep 2; carillon "+
						"status --addr %s", n.id, n.pid(), d.nodes[(i+1)%len(d.nodes)].addr)
				}
			}
		}
	}
}

// status is what the node that leads says, or else whichever answers.
func (d *devCluster) status(ctx context.Context) (best client.Status, ok bool) {
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
