package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/notifyflags"
	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/internal/enroll"
	"github.com/carillon-scheduler/carillon/internal/otlp"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
)

func (a *app) serverCmd() *cobra.Command {
	var cfg ServerConfig
	var tags []string
	var minFree string
	var tells notifyflags.Flags
	var safe enroll.Flags
	c := &cobra.Command{
		Use: "server", Short: "Run a node", Args: cobra.NoArgs,
		Example: "  carillon cluster init --out keys        # once; copy keys to the three machines\n" +
			"  carillon server --node-id n1 --listen 10.0.0.1:7400 --data-dir /var/lib/carillon --keys-from keys \\\n" +
			"    --cluster 10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400        # the same --cluster on all of them\n" +
			"  carillon server --node-id n4 --listen 10.0.0.4:7400 --data-dir /var/lib/carillon " +
			"--join 10.0.0.1:7400 --token-file join.token",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Tags, err = values.Pairs("--tags", tags); err != nil {
				return err
			}
			if cfg.MinFreeDisk, err = diskLimit(minFree); err != nil {
				return err
			}
			cfg.readEnv(a.env)
			if text := a.env("CARILLON_CLUSTER"); text != "" && len(cfg.Cluster) == 0 {
				cfg.Cluster = strings.Split(text, ",")
			}
			if cfg.Notify, err = tells.Settings(a.env); err != nil {
				return err
			}
			cfg.Traces, err = otlp.FromEnv(a.env)
			if err = cmp.Or(err, cfg.validate()); err != nil {
				return err
			}
			if cfg.Settings, err = safe.Settings(a.env, cfg.Listen, cfg.Advertise,
				len(cfg.Join)+len(cfg.Cluster) > 0); err != nil {
				return err
			}
			// What the node is, the log is to say, and not only what was asked for.
			if err := cmd.Flags().Set("secure", strconv.FormatBool(cfg.Secure)); err != nil {
				return err
			}
			if cfg.Insecure { // whatever --log-level says
				newLogger(cmd.ErrOrStderr(), "warn", cfg.LogFormat).Warn("node is insecure", "detail",
					"no TLS and no tokens: everybody who can reach the port may do everything")
			}
			return runNode(cmd, cfg, func(addr string) { a.serves(cmd, cfg, addr) })
		},
	}
	fl := c.Flags()
	fl.StringVar(&cfg.NodeID, "node-id", "", "id of the node, unique in its cluster and never reused")
	fl.StringVar(&cfg.Listen, "listen", client.DefaultAddr, "host:port to serve everything on")
	fl.StringVar(&cfg.Advertise, "advertise", "", "name:port at which others reach it (default --listen)")
	fl.StringVar(&cfg.DataDir, "data-dir", "", "directory for its state")
	allowNetworkFS(fl, &cfg.AllowNetworkFS, "--data-dir")
	fl.StringSliceVar(&cfg.Cluster, "cluster", nil,
		"host:port of all nodes of the cluster including this one, the same list on each (or CARILLON_CLUSTER): "+
			"they found the cluster together, or join it")
	fl.BoolVar(&cfg.Bootstrap, "bootstrap", false,
		"found a new cluster of this node alone, without asking any other; ignored if the directory has state, or "+
			"with --cluster")
	cfg.Groups.Register(fl)
	fl.StringSliceVar(&cfg.Join, "join", nil,
		"host:port of nodes of the cluster to join; ignored if the directory has state")
	fl.DurationVar(&cfg.RemoveDeadAfter, "remove-dead-after", 0,
		"remove members that have been silent for this long (default never)")
	fl.StringSliceVar(&cfg.Executors, "executors", []string{"http"},
		"what its own worker executes: "+strings.Join(executor.NodeTypes(), ", ")+", or none")
	cfg.register(fl)
	fl.IntVar(&cfg.Slots, "slots", 256, "how many runs its own worker executes at once")
	fl.StringSliceVar(&tags, "tags", nil, "tags k=v of its own worker")
	fl.DurationVar(&cfg.Lease, "lease", 0,
		"how long a silent worker keeps its runs; the same on all nodes (default 30s, or 15 heartbeat timeouts with "+
			"a high --raft-multiplier)")
	raftMultiplier(fl, &cfg)
	fl.StringVar(&cfg.LogLevel, "log-level", "info", "debug, info, warn or error")
	fl.StringVar(&cfg.LogFormat, "log-format", "text", "text or json")
	fl.DurationVar(&cfg.HistoryMaxAge, "history-max-age", 7*24*time.Hour, "how long finished runs are kept")
	fl.Uint64Var(&cfg.HistoryMaxCount, "history-max-count", 1_000_000, "how many finished runs are kept")
	fl.DurationVar(&cfg.SnapshotInterval, "snapshot-interval", 0,
		"how often to check whether to compact the log (default 15s)")
	fl.Uint64Var(&cfg.SnapshotThreshold, "snapshot-threshold", 0,
		"after how many entries to compact the log (default 16384)")
	fl.StringVar(&minFree, "min-free-disk", "",
		"create no jobs with less free disk space than this: a size, a percentage, or 0 for no limit (default "+
			"512MiB or 5%, whichever is smaller)")
	fl.StringSliceVar(&cfg.AllowedHosts, "allowed-hosts", nil,
		"host names that clients may use besides its addresses and the name it advertises, without TLS or over "+
			"loopback")
	fl.IntVar(&cfg.MaxConnections, "max-connections", 0,
		"how many connections may be open on its port, at most a quarter of them from one address (default 16384, "+
			"or half of the files that the process may open)")
	fl.IntVar(&cfg.MaxTokenRequests, "max-requests-per-token", 0,
		"how many requests a second one API token may make, with bursts of twice as many; the workers' own calls do "+
			"not count (default 2000)")
	tells.Register(fl)
	safe.Register(fl)
	fl.BoolVar(&cfg.Pprof, "pprof", false, "serve /debug/pprof/")
	return c
}

// serves says where a node serves, and what follows from how.
func (a *app) serves(cmd *cobra.Command, cfg ServerConfig, addr string) {
	scheme := "http"
	if cfg.Secure {
		scheme = "https"
	}
	w := cmd.ErrOrStderr()
	notice(w, cfg.LogFormat, fmt.Sprintf("carillon %s serves on %s://%s", cfg.NodeID, scheme, addr),
		"serving", "node", cfg.NodeID, "address", addr)
	if cfg.Secure && cfg.Bootstrap {
		if line := enroll.JoinLine(cfg.DataDir, cmp.Or(cfg.Advertise, addr), terminal.Is(w)); line != "" {
			notice(w, cfg.LogFormat, line, "join token written", "detail", line)
		}
	}
}

func allowNetworkFS(fl *pflag.FlagSet, allow *bool, dir string) {
	fl.BoolVar(allow, "allow-network-fs", false,
		"accept a "+dir+" on a network file system (NFS, SMB, FUSE and the like), where file locks are unreliable")
}

func raftMultiplier(fl *pflag.FlagSet, cfg *ServerConfig) {
	fl.IntVar(&cfg.RaftMultiplier, "raft-multiplier", 1,
		"make Raft's timeouts this many times longer, 1 to 10: fewer elections on slow machines, a longer gap when "+
			"the leader dies; the same on all nodes")
}

func (c *ServerConfig) validate() error {
	if slices.Equal(c.Executors, []string{"none"}) {
		c.Executors = nil
	}
	if err := c.toolFlags.validate(executor.NodeTypes(), " or none"); err != nil {
		return err
	}
	for _, a := range c.Join {
		if host, _, err := net.SplitHostPort(a); !values.IsAddress(a) || err != nil || host == "" {
			return job.Invalid("--join", "use host:port of a node of the cluster, such as 10.0.0.1:7400",
				"%q is not an address", a)
		}
	}
	for _, h := range c.AllowedHosts {
		if h == "" || strings.ContainsAny(h, " /@*?#") {
			return job.Invalid("--allowed-hosts", "use names such as sched.example.com, without scheme and path",
				"%q is not the name of a host", h)
		}
	}
	switch {
	case c.NodeID == "":
		return job.Invalid("--node-id", "give the node a name, such as n1", "a node needs an id")
	case c.DataDir == "":
		return job.Invalid("--data-dir", "give it a directory; `carillon dev` needs none",
			"a node needs a place for its state")
	case c.Bootstrap && len(c.Join) > 0:
		return job.Invalid("--join", "begin a cluster on one node with --bootstrap, and let the others join it; or "+
			"give all nodes the same --cluster", "use either --bootstrap or --join")
	case c.Groups != 0 && len(c.Join) > 0:
		return job.Invalid("--groups", "leave out --groups: a node that joins gets the groups of its cluster",
			"--groups does not go with --join")
	case c.RemoveDeadAfter < 0 || c.RemoveDeadAfter > 0 && c.RemoveDeadAfter < time.Minute:
		return job.Invalid("--remove-dead-after", "use at least 1m: a restarting node is not dead",
			"%s is too short", c.RemoveDeadAfter)
	case c.MaxConnections < 0 || c.MaxConnections > 0 && c.MaxConnections < 64:
		return job.Invalid("--max-connections", "use at least 64: members, workers and clients share the connections",
			"%d is too few", c.MaxConnections)
	case c.MaxTokenRequests < 0 || c.MaxTokenRequests > 0 && c.MaxTokenRequests < 10:
		return job.Invalid("--max-requests-per-token", "use at least 10: one command makes several requests",
			"%d is too few", c.MaxTokenRequests)
	case c.Lease != 0 && c.Lease < time.Second:
		return job.Invalid("--lease", "use at least 1s: a worker must be able to send several heartbeats within a "+
			"lease",
			"%s is too short", c.Lease)
	case !values.IsAddress(c.Listen):
		return job.Invalid("--listen", "use host:port, such as 10.0.0.1:7400", "%q is not an address", c.Listen)
	case c.Advertise != "" && !values.IsAddress(c.Advertise):
		return job.Invalid("--advertise", "use name:port, such as n1.example.com:7400",
			"%q is not an address", c.Advertise)
	case c.RaftMultiplier < 1 || c.RaftMultiplier > node.MaxMultiplier:
		return job.Invalid("--raft-multiplier",
			fmt.Sprintf("use 1 (fast) to %d (slow machines and networks)", node.MaxMultiplier), "a multiplier of %d",
			c.RaftMultiplier)
	case c.Slots < 1:
		return job.Invalid("--slots", "use at least 1; --executors none turns the worker off", "%d slots", c.Slots)
	case c.HistoryMaxAge <= 0:
		return job.Invalid("--history-max-age", "use a duration such as 168h", "%s is not a valid time to keep history",
			c.HistoryMaxAge)
	case c.HistoryMaxCount == 0:
		return job.Invalid("--history-max-count", "use at least 1", "a node keeps some history")
	}
	return values.Logging(c.LogLevel, c.LogFormat)
}

// diskLimit reads --min-free-disk.
func diskLimit(s string) (node.DiskLimit, error) {
	if s == "" {
		return node.DiskLimit{}, nil
	}
	bad := job.Invalid("--min-free-disk", "use a size such as 512MiB, a percentage such as 5%, or 0 for no limit",
		"%q is neither a size nor a percentage", s)
	if text, ok := strings.CutSuffix(s, "%"); ok {
		p, err := strconv.ParseFloat(text, 64)
		if err != nil || !(p >= 0 && p < 100) {
			return node.DiskLimit{}, bad
		}
		return node.DiskLimit{Percent: p, Off: p == 0}, nil
	}
	b, err := job.ParseBytes(s)
	if err != nil {
		return node.DiskLimit{}, bad
	}
	if b > 0 && b < 1<<20 && strings.Trim(s, " .0123456789") == "" {
		return node.DiskLimit{},
			job.Invalid("--min-free-disk", "give it a unit, such as 5GiB or 5%; 0 is no limit",
				"%s would mean %d bytes", s, b)
	}
	return node.DiskLimit{Bytes: uint64(b), Off: b == 0}, nil
}

const stoppingText = "stopping: waiting for open runs to finish; interrupt again to stop at once"

// runNode runs a node until it is asked to end, which is then a success.
func runNode(cmd *cobra.Command, cfg ServerConfig, ready func(addr string)) error {
	logStart(cmd, "node", cfg.LogLevel, cfg.LogFormat)
	quiet := context.AfterFunc(cmd.Context(), func() {
		notice(cmd.ErrOrStderr(), cfg.LogFormat, stoppingText, "stopping", "detail", stoppingText)
	})
	defer quiet()
	err := startNode(cmd.Context(), cfg, ready)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
