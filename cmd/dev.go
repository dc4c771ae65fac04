package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/devcluster"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/internal/otlp"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) devCmd() *cobra.Command {
	cfg := ServerConfig{NodeID: "dev", Bootstrap: true, toolFlags: toolFlags{Executors: executor.NodeTypes()},
		Slots: 64, Dev: true, LogFormat: "text",
		HistoryMaxAge: 7 * 24 * time.Hour, HistoryMaxCount: 1_000_000}
	var nodes int
	c := &cobra.Command{
		Use: "dev", Short: "Run one node, or three, to try things out: nothing to configure", Args: cobra.NoArgs,
		Long: "Run one node on the loopback interface with every executor enabled, including shell. Without " +
			"--data-dir it keeps its state in a temporary directory that is removed at the end. With --nodes 3 it " +
			"starts three processes that form a cluster, and says which one leads and how to kill it.",
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
			cfg.Traces, err = otlp.FromEnv(a.env)
			if err = cmp.Or(err, cfg.validate()); err != nil {
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
				return runDevCluster(cmd, cfg, nodes, temporary)
			}
			return runNode(cmd, cfg, func(addr string) { devWelcome(cmd.OutOrStdout(), addr, cfg.DataDir, temporary) })
		},
	}
	c.Flags().StringVar(&cfg.Listen, "listen", client.DefaultAddr, "host:port on the loopback interface")
	c.Flags().IntVar(&nodes, "nodes", 1, "how many nodes; each is a process of its own, on the next port")
	c.Flags().StringVar(&cfg.DataDir, "data-dir", "", "directory for its state (default a temporary one)")
	allowNetworkFS(c.Flags(), &cfg.AllowNetworkFS, "--data-dir")
	cfg.registerBrokers(c.Flags())
	raftMultiplier(c.Flags(), &cfg)
	cfg.Groups.Register(c.Flags())
	c.Flags().StringVar(&cfg.LogLevel, "log-level", "warn", "debug, info, warn or error")
	c.Flags().BoolVar(&cfg.Pprof, "pprof", false, "serve /debug/pprof/")
	return c
}

// onlyLoopback keeps other machines away from a node that runs shell jobs for every client.
func onlyLoopback(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || !values.IsAddress(listen) {
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
	self, also := output.Program(), ""
	for _, o := range others {
		also += ", http://" + o
	}
	fmt.Fprintf(w, `carillon dev serves on http://%s%s
page on http://%s/ui/
data in %s (%s)
plain: no TLS and no tokens, for this machine only

Try, in another terminal:

  %s submit%s --name hello --schedule '@every 2s' --shell 'echo hello from $CARILLON_RUN'
  %s runs%s hello
  %s status%s

Ctrl-C ends it.
`, addr, also, addr, dir, kept, self, flag, self, flag, self, flag)
}

// runDevCluster runs nodes that are processes, so that one of them can really be killed.
func runDevCluster(cmd *cobra.Command, cfg ServerConfig, nodes int, temporary bool) error {
	out := cmd.OutOrStdout()
	return devcluster.Run(cmd.Context(), devcluster.Options{Program: output.Program(),
		Nodes: nodes, Listen: cfg.Listen, Dir: cfg.DataDir, Out: out, First: cfg.Groups.Args(),
		Args: []string{"--executors", strings.Join(cfg.Executors, ","), "--slots", strconv.Itoa(cfg.Slots),
			"--log-level", cfg.LogLevel, "--raft-multiplier", strconv.Itoa(cfg.RaftMultiplier),
			"--allow-network-fs=" + strconv.FormatBool(cfg.AllowNetworkFS)},
		// not as a flag: ps shows those to everybody
		Env: append(os.Environ(), "CARILLON_BROKERS="+strings.Join(cfg.Brokers, " ")),
		Welcome: func(first string, others ...string) {
			devWelcome(out, first, cfg.DataDir, temporary, others...)
		},
	})
}
