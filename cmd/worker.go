package cmd

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/executor"
	"github.com/carillon-scheduler/carillon/executor/meters"
	"github.com/carillon-scheduler/carillon/internal/dirlock"
	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/internal/statedir"
	"github.com/carillon-scheduler/carillon/internal/systemd"
	"github.com/carillon-scheduler/carillon/internal/undumpable"
	"github.com/carillon-scheduler/carillon/internal/worker"
	"github.com/carillon-scheduler/carillon/job"
)

// workerConfig is what `worker` knows.
type workerConfig struct {
	Join []string
	Name string
	toolFlags
	Namespace                 string
	Queues                    []string
	Command                   string
	Slots                     int
	Tags                      map[string]string
	StateDir                  string
	AllowNetworkFS            bool
	Drain                     time.Duration
	LogLevel, LogFormat, Vers string
	MetricsListen             string
	Token                     string
	// settle asks the cluster what the token is for and fits the rest to that. It waits for a cluster that is away and
	// says so. Nil without a token.
	settle func(ctx context.Context, c *workerConfig, waiting func(error)) error
}

func (a *app) workerCmd() *cobra.Command {
	var cfg workerConfig
	var tags []string
	c := &cobra.Command{
		Use: "worker", Short: "Run a worker without a node: it executes runs of a cluster", Args: cobra.NoArgs,
		Long: "Run a worker on any machine that can reach the cluster. It finds the leader through any node and " +
			"follows it. On the first SIGTERM it takes no more runs, gives back those it has not started, finishes " +
			"and reports the others, and ends.",
		Example: "  carillon worker --join 10.0.0.1:7400,10.0.0.2:7400 --slots 64 --executors " +
			"http,shell --tags region=eu\n" +
			"  carillon worker --join 10.0.0.1:7400 --executors queue --queues mail --command ./send-mail",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Tags, err = values.Pairs("--tags", tags); err != nil {
				return err
			}
			if len(cfg.Join) == 0 {
				cfg.Join = strings.Split(a.addr, ",")
			}
			cfg.Vers = version().Version
			cfg.readEnv(a.env)
			a.addr = strings.Join(cfg.Join, ",") // what was kept for another cluster is not for this one
			if cfg.Token, err = a.credentials.find(a); err != nil {
				return err
			}
			if cfg.Token == "" {
				err = cfg.validate()
			} else if err = cfg.validateGiven(); err == nil {
				cfg.settle = a.settleWorker(cmd.Flags().Changed)
			}
			if err != nil {
				return err
			}
			logStart(cmd, "worker", cfg.LogLevel, cfg.LogFormat)
			return a.work(cmd.Context(), cfg, cmd.ErrOrStderr())
		},
	}
	fl := c.Flags()
	fl.StringSliceVar(&cfg.Join, "join", nil, "host:port of nodes of the cluster, any of them (default --addr)")
	fl.StringVar(&cfg.Name, "name", "",
		"name of the worker, unique in its cluster (default the host's name and something random)")
	fl.StringSliceVar(&cfg.Executors, "executors", []string{"http"},
		"what it executes: "+strings.Join(job.Types(), ", ")+"; with a token, what the token allows")
	cfg.register(fl)
	fl.StringVarP(&cfg.Namespace, "namespace", "n", a.env(namespaceEnv),
		"take only runs of this namespace (default all; or "+namespaceEnv+")")
	fl.StringSliceVar(&cfg.Queues, "queues", nil, "with --executors queue: only runs of these queues (default all)")
	fl.StringVar(&cfg.Command, "command", "",
		"with --executors queue: the command to execute for a run; it gets the data as JSON on standard input")
	fl.IntVar(&cfg.Slots, "slots", 64, "how many runs it executes at once; with a token, at most what the token allows")
	fl.StringSliceVar(&tags, "tags", nil, "tags k=v that jobs may select it by")
	fl.StringVar(&cfg.StateDir, "state-dir", "", "directory to remember its name and its commands in, so that a "+
		"restart ends what a killed worker left running")
	allowNetworkFS(fl, &cfg.AllowNetworkFS, "--state-dir")
	fl.StringVar(&cfg.MetricsListen, "metrics-listen", "",
		"host:port to serve Prometheus metrics on, without TLS or a token (default nowhere)")
	fl.DurationVar(&cfg.Drain, "drain-timeout", 30*time.Second, "how long it lets runs continue when it is told to "+
		"stop")
	fl.StringVar(&cfg.LogLevel, "log-level", "info", "debug, info, warn or error")
	fl.StringVar(&cfg.LogFormat, "log-format", "text", "text or json")
	return c
}

// settleWorker has what was not given follow from what the token grants, and refuses what does not go together then.
func (a *app) settleWorker(given func(flag string) bool) func(context.Context, *workerConfig, func(error)) error {
	return func(ctx context.Context, c *workerConfig, waiting func(error)) error {
		who, err := client.New(a.addr, append(a.clientOptions(), client.WithToken(c.Token))...).Granted(ctx, waiting)
		if err != nil {
			return err
		}
		c.keepTo(who, given)
		return c.validate()
	}
}

// validate checks everything. What a worker executes may follow from its token, and is known late then.
func (c *workerConfig) validate() error {
	queue := slices.Contains(c.Executors, string(job.TypeQueue))
	if err := cmp.Or(c.validateGiven(), c.toolFlags.validate(job.Types(), "")); err != nil {
		return err
	}
	switch {
	case c.Token != "" && slices.Contains(c.Executors, string(job.TypeShell)) && len(c.Shell.User) == 0 &&
		!c.Shell.AsNode:
		return job.Invalid("--shell-user", "name a user for them, which needs root; or give --shell-as-node if "+
			"everyone who writes shell jobs may have the token", "shell jobs that run as the worker's user can read "+
			"its token")
	case len(c.Executors) == 0:
		return job.Invalid("--executors", "use "+strings.Join(job.Types(), ", "),
			"a worker needs an executor")
	case queue && c.Command == "":
		return job.Invalid("--command", "name the command to execute for a run of the queue",
			"the executor queue needs a command")
	case !queue && (c.Command != "" || len(c.Queues) > 0):
		return job.Invalid("--executors", "add queue to it", "--command and --queues are for the executor queue")
	}
	return nil
}

// validateGiven checks what no token has a say in.
func (c *workerConfig) validateGiven() error {
	for _, q := range c.Queues {
		if !job.QueueName(q) {
			return job.Invalid("--queues", "use letters, digits, - _ .", "%q is not the name of a queue", q)
		}
	}
	_, tagged := c.Tags["queue"]
	switch {
	case c.Namespace != "" && !job.NamespaceName(c.Namespace):
		return job.Invalid("--namespace", "use up to 63 of a-z, 0-9 and -", "%q is not the name of a namespace",
			c.Namespace)
	case tagged:
		return job.Invalid("--tags", "use --queues", "the tag queue is set by --queues")
	case len(c.Name) > job.MaxName:
		return job.Invalid("--name", "shorten it", "a name has at most %d bytes", job.MaxName)
	case c.Slots < 1 || c.Slots > 65536:
		return job.Invalid("--slots", "use 1 to 65536", "%d slots", c.Slots)
	case c.MetricsListen != "" && !values.IsAddress(c.MetricsListen):
		return job.Invalid("--metrics-listen", "use host:port, such as 127.0.0.1:7490", "%q is not an address",
			c.MetricsListen)
	case c.Drain <= 0:
		return job.Invalid("--drain-timeout", "use a duration such as 30s",
			"%s is not a valid time to finish in", c.Drain)
	}
	return cmp.Or(c.checkJoin(), values.Logging(c.LogLevel, c.LogFormat))
}

func (c *workerConfig) checkJoin() error {
	for _, addr := range c.Join {
		if !strings.Contains(addr, "://") && !values.IsAddress(addr) {
			return job.Invalid("--join", "use host:port of a node, such as 10.0.0.1:7400", "%q is not an address", addr)
		}
	}
	return nil
}

// keepTo has what was not given follow from what the token grants: a worker that asks for more is refused. Namespace,
// queues and tags are filled in by the cluster.
func (c *workerConfig) keepTo(who client.Whoami, given func(flag string) bool) {
	types := who.Types
	if len(types) == 0 && (len(who.Queues) > 0 || c.Command != "" || len(c.Queues) > 0) {
		types = []string{string(job.TypeQueue)} // a token for queues is for nothing else
	}
	if !given("executors") && len(types) > 0 {
		// What it cannot do with its other flags is left out, if something is left.
		able := slices.DeleteFunc(slices.Clone(types), func(t string) bool {
			return t == string(job.TypeQueue) && c.Command == "" ||
				t == string(job.TypeShell) && len(c.Shell.User) == 0 && !c.Shell.AsNode
		})
		if c.Executors = able; len(able) == 0 {
			c.Executors = types
		}
	}
	c.Shell.Namespace = who.Namespace
	if !given("slots") && who.Slots > 0 {
		c.Slots = min(c.Slots, who.Slots)
	}
}

// runWorker works until the context ends, and drains then.
func runWorker(ctx context.Context, cfg workerConfig, stderr io.Writer) (err error) {
	log := processLog(cfg.LogLevel, cfg.LogFormat)
	manager := systemd.Find()
	manager.Starting()
	manager.Stopping(ctx, stoppingText)
	done := make(chan struct{})
	defer close(done)
	var doing atomic.Value // what it does, in words
	doing.Store(func() string { return "starting" })
	status := func() string { return doing.Load().(func() string)() }
	go manager.Follow(ctx, done, func() bool { status(); return true }, status)
	if cfg.Token != "" {
		if err := undumpable.Set(); err != nil {
			return err
		}
	}
	me, secret := statedir.Identity{Name: cfg.Name}, rand.Text()
	procs := ""
	if cfg.StateDir != "" {
		var stop context.CancelCauseFunc
		ctx, stop = context.WithCancelCause(ctx)
		defer stop(nil)
		dir, openErr := statedir.Open(cfg.StateDir, cfg.AllowNetworkFS, stop)
		if openErr != nil {
			return openErr
		}
		defer dir.Close()
		defer func() {
			if lost := context.Cause(ctx); errors.As(lost, new(*dirlock.HeldError)) {
				err = errors.Join(lost, err)
			}
		}()
		if me, err = dir.Identity(cfg.Name); err != nil {
			return err
		}
		if secret, err = executor.SealedSecret(cfg.StateDir); err != nil {
			return fmt.Errorf("--state-dir: %w", err)
		}
		procs = filepath.Join(cfg.StateDir, "procs")
		// Before it registers: once it has, the runs of its predecessor are given out again.
		switch err := executor.ClearLeftovers(ctx, procs, log); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("ending what an earlier start left running: %w", err)
		}
	}
	if me.Name == "" {
		me.Name = statedir.RandomName()
	}
	// Not before what an earlier start left running has ended: the cluster may be away for long.
	if cfg.settle != nil {
		err := cfg.settle(ctx, &cfg, func(err error) {
			doing.Store(func() string { return "waits for the cluster" })
			notice(stderr, cfg.LogFormat, "waiting for the cluster: "+err.Error(), "waiting for the cluster", "error",
				err.Error())
		})
		switch {
		case ctx.Err() != nil:
			return nil // it was told to stop, and has nothing to hand in
		case err != nil:
			return err
		}
	}
	brokers, err := cfg.brokers()
	if err != nil {
		return err
	}
	// Who types ./send-mail means the one that is here, not one in the home directory.
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	shell := cfg.Shell
	shell.Dir, shell.Logger = procs, log
	shell.Apart, shell.Private = cfg.Token != "" && !shell.AsNode && len(shell.User) > 0, cfg.StateDir
	shell.Namespace = cmp.Or(cfg.Namespace, shell.Namespace)
	rules, err := egress.New(egress.Options{Config: cfg.Egress, OnDenied: func(d *egress.Denied) {
		log.Warn("egress denied", "target", d.Target, "class", d.Class, "rule", d.Rule)
	}})
	if err != nil {
		return err
	}
	tools, err := executor.NewTools(executor.ToolsOptions{Types: cfg.types(), Version: cfg.Vers, Shell: shell,
		Brokers: brokers, Egress: rules, QueueCommand: cfg.Command, QueueDir: here})
	if err != nil {
		return err
	}
	defer tools.Close()
	tags := cfg.Tags
	if len(cfg.Queues) > 0 {
		if tags == nil {
			tags = map[string]string{}
		}
		tags["queue"] = strings.Join(cfg.Queues, ",")
	}
	var opts []client.LeaderOption
	if cfg.Token != "" {
		opts = append(opts, client.WithLeaderToken(cfg.Token))
	}
	groups, hangUp := client.FindGroups(cfg.Join, opts...)
	defer hangUp()
	m := meters.New(cfg.Vers, cfg.types())
	stop, err := m.Listen(cfg.MetricsListen, log)
	if err != nil {
		return err
	}
	defer stop()
	var once sync.Once
	w, err := executor.NewWorker(worker.Options{
		Name: me.Name, Secret: secret, Where: executor.Whereabouts(cfg.StateDir), Version: cfg.Vers, Slots: cfg.Slots,
		Namespace: cfg.Namespace, Tags: tags, Groups: groups, Ended: m.Attempt, Logger: log,
		DrainTimeout: cfg.Drain, MaxRefusals: worker.MaxRefusals,
		Opened: func(uint32) {
			once.Do(func() {
				manager.Ready("registered")
				types := strings.Join(cfg.Executors, ", ")
				text := fmt.Sprintf("carillon worker %s registered: %d slots for %s", me.Name, cfg.Slots, types)
				notice(stderr, cfg.LogFormat, text, "worker registered", "worker", me.Name, "slots", cfg.Slots,
					"executors", types)
			})
		},
	}, tools.Runners)
	if err != nil {
		return err
	}
	m.Watch(w)
	quiet := context.AfterFunc(ctx, func() {
		notice(stderr, cfg.LogFormat, stoppingText, "stopping", "detail", stoppingText)
	})
	defer quiet()
	doing.Store(func() string {
		is := w.Standing()
		return fmt.Sprintf("%d of %d slots busy", is.Busy, is.Slots)
	})
	return w.Run(ctx)
}
