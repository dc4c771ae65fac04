// Package bencher has the commands that measure a cluster: `carillon bench`.
package bencher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/bench"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
)

// App is what the commands know of the process.
type App struct {
	Addr  func() string // where the cluster is, if --addr is given
	Token func() (string, error)
	JSON  func() bool
	Env   func(string) string
}

// Cmd is `carillon bench`.
func Cmd(app App) *cobra.Command {
	a := &app
	c := &cobra.Command{Use: "bench", Args: cobra.NoArgs,
		Short: "Measure a cluster: three processes that it starts, or an existing one (--addr)",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.AddCommand(
		a.scenario("hot", "Many jobs due in the same second: how long until all have run and are recorded",
			(*bench.Bench).Hot,
			func(o *bench.Options, f *flags) {
				f.jobs(o, 100_000)
				f.idle(o)
				f.target(o)
			}),
		a.scenario("steady", "A fixed number of runs a second", (*bench.Bench).Steady,
			func(o *bench.Options, f *flags) {
				f.rate(o, 2000)
				f.duration(o, 30*time.Second)
				f.idle(o)
				f.target(o)
			}),
		a.scenario("lag", "How late runs start when there is nothing else to do", (*bench.Bench).Lag,
			func(o *bench.Options, f *flags) {
				f.rate(o, 100)
				f.duration(o, 30*time.Second)
				f.idle(o)
				f.target(o)
			}),
		a.scenario("failover",
			"Kill the leader again and again: how long nothing starts, and whether anything is lost or repeated",
			(*bench.Bench).Failover, func(o *bench.Options, f *flags) {
				f.rate(o, 500)
				f.Flags().IntVar(&o.Kills, "kills", 10, "how many times")
				f.idle(o)
				f.workers(o)
				o.Target = bench.TargetNoop
			}),
		a.scenario("idle", "What an idle cluster costs", (*bench.Bench).IdleCPU,
			func(o *bench.Options, f *flags) {
				f.duration(o, time.Minute)
				f.Flags().IntVar(&o.Idle, "idle", 100, "how many jobs to create, none of them due")
				o.OwnWorkers = true
			}),
		a.scenario("elections", "Keep the machine busy: how often a live leader is replaced",
			(*bench.Bench).Elections, func(o *bench.Options, f *flags) {
				f.rate(o, 10)
				f.duration(o, 10*time.Minute)
				f.Flags().IntVar(&o.Load, "load", 8, "how many busy processes to run beside the nodes")
				f.idle(o)
				f.workers(o)
				o.Target = bench.TargetNoop
			}),
		a.scenario("submit", "Create jobs from many clients, one by one or in bulk", (*bench.Bench).Submit,
			func(o *bench.Options, f *flags) {
				f.Flags().IntVar(&o.Clients, "clients", 64, "how many at a time")
				f.Flags().IntVar(&o.Bulk, "bulk", 0, "how many jobs each request creates (default one, by itself)")
				f.duration(o, 10*time.Second)
			}),
		a.scenario("load", "Create jobs in bulk: rate, size on disk, memory, and how long a takeover and a start "+
			"take with them",
			(*bench.Bench).Load, func(o *bench.Options, f *flags) {
				f.jobs(o, 1_000_000)
			}),
		a.growthCmd(),
		a.workerCmd(),
		spinCmd())
	return c
}

// flags adds flags that scenarios share.
type flags struct{ *cobra.Command }

func (f *flags) jobs(o *bench.Options, n int) {
	f.Flags().IntVar(&o.Jobs, "jobs", n, "how many jobs")
}

func (f *flags) idle(o *bench.Options) {
	f.Flags().IntVar(&o.Idle, "idle", 0, "how many additional jobs that are not due")
}

func (f *flags) rate(o *bench.Options, n int) {
	f.Flags().IntVar(&o.Rate, "rate", n, "runs a second")
}

func (f *flags) duration(o *bench.Options, d time.Duration) {
	f.Flags().DurationVar(&o.Duration, "duration", d, "for how long")
}

func (f *flags) target(o *bench.Options) {
	f.Flags().StringVar(&o.Target, "target", bench.TargetNoop,
		"noop: worker processes that answer at once; queue: the same with calls that name a queue; "+
			"http: a local server")
	f.workers(o)
}

func (f *flags) workers(o *bench.Options) {
	f.Flags().IntVar(&o.Workers, "workers", 3, "how many worker processes")
	f.Flags().IntVar(&o.Slots, "slots", 4096, "slots of each worker")
}

func (a *App) scenario(use, short string,
	run func(*bench.Bench, context.Context) (*bench.Result, error),
	register func(*bench.Options, *flags)) *cobra.Command {
	o := &bench.Options{}
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	register(o, &flags{c})
	var pairs int
	var groups []int
	c.Flags().IntVar(&pairs, "pairs", 0,
		"compare plain and secure clusters, or clusters with different --groups: measure them in turn, this many of "+
			"each")
	c.Flags().IntSliceVar(&groups, "groups", []int{1},
		"how many Raft groups hold the jobs; with several numbers, such as 1,4,8, such clusters are measured in turn")
	compare := a.inDir(o, func(cmd *cobra.Command, bar *progress) error {
		variants := bench.PlainAndSecure()
		if len(groups) > 1 {
			variants = bench.WithGroups(groups)
		}
		return a.compare(cmd, o, variants, max(pairs, 1), run, bar)
	})
	measure := a.inCluster(c, o, func(cmd *cobra.Command, b *bench.Bench, bar *progress) error {
		r, err := run(b, cmd.Context())
		bar.clear()
		if err != nil {
			return err
		}
		return a.result(cmd, r)
	})
	c.RunE = func(cmd *cobra.Command, args []string) error {
		for _, o.Groups = range groups {
			if err := valid(cmd, o); err != nil {
				return err
			}
		}
		switch several := pairs > 0 || len(groups) > 1; {
		case pairs < 0:
			return job.Invalid("--pairs", "use a number from 1 up", "%d pairs", pairs)
		case several && cmd.Flags().Changed("addr"):
			return job.Invalid("--pairs", "leave --addr out", "only clusters that this command starts can be compared")
		case several:
			return compare(cmd, args)
		}
		return measure(cmd, args)
	}
	return c
}

// compare measures clusters of several kinds in turn.
func (a *App) compare(cmd *cobra.Command, o *bench.Options, variants []bench.Variant, rounds int,
	run func(*bench.Bench, context.Context) (*bench.Result, error), bar *progress) error {
	var wrong []error
	got, err := bench.Compare(cmd.Context(), *o, variants, rounds, run, func(r *bench.Result) {
		bar.clear()
		if len(r.Problems) > 0 || !a.JSON() {
			wrong = append(wrong, a.result(cmd, r))
			fmt.Fprintln(cmd.OutOrStdout())
		}
	})
	bar.clear()
	if err = errors.Join(append(wrong, err)...); err != nil {
		return err
	}
	if a.JSON() {
		return output.Indented(cmd.OutOrStdout(), got)
	}
	for _, l := range got.Lines() {
		fmt.Fprintf(cmd.OutOrStdout(), "%-20s %s\n", l[0], l[1])
	}
	return nil
}

func (a *App) growthCmd() *cobra.Command {
	o := &bench.Options{}
	var sizes []int
	var plot string
	c := &cobra.Command{Use: "growth", Short: "Repeat hot with more and more jobs that are not due",
		Args: cobra.NoArgs}
	f := &flags{c}
	f.jobs(o, 50_000)
	f.target(o)
	c.Flags().IntSliceVar(&sizes, "sizes", []int{100_000, 1_000_000}, "how many jobs the cluster holds, smallest first")
	c.Flags().StringVar(&plot, "plot", "", "SVG file to draw the result to")
	c.Flags().IntVar(&o.Groups, "groups", 1, "how many Raft groups hold the jobs")
	c.PreRunE = func(*cobra.Command, []string) error {
		if len(sizes) == 0 || slices.Min(sizes) <= 0 || !slices.IsSorted(sizes) {
			return job.Invalid("--sizes", "use numbers such as 100000,1000000",
				"%v is not a growing number of jobs", sizes)
		}
		return nil
	}
	c.RunE = a.inCluster(c, o, func(cmd *cobra.Command, b *bench.Bench, bar *progress) error {
		var wrong []error
		results, err := b.Growth(cmd.Context(), sizes, func(r *bench.Result) {
			bar.clear()
			if err := a.result(cmd, r); err != nil {
				wrong = append(wrong, err)
			}
			fmt.Fprintln(cmd.OutOrStdout())
		})
		if err = errors.Join(append(wrong, err)...); err != nil || plot == "" {
			return err
		}
		f, err := os.Create(plot)
		if err != nil {
			return err
		}
		return errors.Join(bench.Plot(f, results), f.Close())
	})
	return c
}

// inCluster adds the flags that all scenarios have, and starts the cluster around one.
func (a *App) inCluster(c *cobra.Command, o *bench.Options,
	run func(*cobra.Command, *bench.Bench, *progress) error) func(*cobra.Command, []string) error {
	c.Flags().IntVar(&o.Nodes, "nodes", 3, "how many processes to start")
	c.Flags().StringVar(&o.Dir, "data-dir", "", "directory for their data (default a temporary one)")
	c.Flags().StringSliceVar(&o.NodeFlags, "node-flag", nil, "more flags for every node, such as --node-flag=--pprof")
	c.Flags().BoolVar(&o.Secure, "secure", false, "start a secure cluster, with TLS and tokens")
	return a.inDir(o, func(cmd *cobra.Command, bar *progress) error {
		b, err := bench.Open(cmd.Context(), *o)
		if err != nil {
			return err
		}
		defer b.Close()
		defer bar.clear()
		return run(cmd, b, bar)
	})
}

// inDir checks the options of a scenario and gives it a directory.
func (a *App) inDir(o *bench.Options,
	run func(*cobra.Command, *progress) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) (err error) {
		if cmd.Flags().Changed("addr") {
			o.Addr = a.Addr()
		}
		if err := valid(cmd, o); err != nil {
			return err
		}
		if o.Binary, err = os.Executable(); err != nil {
			return err
		}
		if o.Dir == "" {
			if o.Dir, err = os.MkdirTemp("", "carillon-bench-"); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
		} else if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			return err
		}
		bar := &progress{w: terminal.Raw(cmd.ErrOrStderr()), off: a.Env("TERM") == "dumb"}
		o.Progress = bar.show
		return run(cmd, bar)
	}
}

// valid refuses what there is nothing to measure with. c says which flags the scenario has.
func valid(c *cobra.Command, o *bench.Options) error {
	if o.Target != "" && !slices.Contains([]string{bench.TargetNoop, bench.TargetQueue, bench.TargetHTTP}, o.Target) {
		return job.Invalid("--target", "use noop, queue or http", "there is no target %q", o.Target)
	}
	if o.Idle < 0 {
		return job.Invalid("--idle", "use a number from 0 up", "%d jobs", o.Idle)
	}
	if o.Bulk < 0 {
		return job.Invalid("--bulk", "use a number from 0 up", "%d jobs", o.Bulk)
	}
	for _, n := range []struct {
		flag string
		v    int
	}{{"jobs", o.Jobs}, {"rate", o.Rate}, {"workers", o.Workers}, {"slots", o.Slots}, {"clients", o.Clients},
		{"kills", o.Kills}, {"load", o.Load}, {"duration", int(o.Duration)}} {
		if f := c.Flags().Lookup(n.flag); f != nil && n.v <= 0 {
			return job.Invalid("--"+n.flag, "use more than 0", "%s is too small", f.Value)
		}
	}
	if o.Secure && o.Addr != "" {
		return job.Invalid("--secure", "leave it out",
			"it is for a cluster that this command starts, and --addr names an existing one")
	}
	if o.Groups < 1 || o.Groups > job.MaxGroups || o.Groups > 1 && o.Addr != "" {
		return job.Invalid("--groups", fmt.Sprintf("use a number from 1 to %d, without --addr", job.MaxGroups),
			"%d groups", o.Groups)
	}
	if o.Nodes < 1 || o.Nodes > 7 {
		return job.Invalid("--nodes", "use 1, 3 or 5", "%d nodes", o.Nodes)
	}
	if c.Flags().Lookup("kills") != nil && (o.Nodes < 3 || o.Addr != "") {
		return job.Invalid("--nodes", "use --nodes 3 or more, without --addr",
			"killing leaders needs a cluster of at least three nodes that this command started")
	}
	return nil
}

// result prints a result. One whose work was wrong is a failure.
func (a *App) result(cmd *cobra.Command, r *bench.Result) error {
	if a.JSON() {
		if err := output.Indented(cmd.OutOrStdout(), r); err != nil {
			return err
		}
	} else {
		for _, l := range r.Lines() {
			fmt.Fprintf(cmd.OutOrStdout(), "%-20s %s\n", l[0], l[1])
		}
	}
	if len(r.Problems) > 0 {
		return errors.New("the work was wrong, so there is no figure for its speed")
	}
	return nil
}

// workerCmd is the process of a worker that answers at once. The scenarios start it.
func (a *App) workerCmd() *cobra.Command {
	var o bench.WorkerOptions
	c := &cobra.Command{Use: "worker", Hidden: true, Short: "A worker that answers at once", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if !cmd.Flags().Changed("token-file") { // what `carillon login` kept is not for these nodes
				return bench.RunWorker(cmd.Context(), o)
			}
			if o.Token, err = a.Token(); err != nil {
				return err
			}
			return bench.RunWorker(cmd.Context(), o)
		}}
	c.Flags().StringVar(&o.Name, "name", "", "name of the worker")
	c.Flags().IntVar(&o.Slots, "slots", 4096, "how many runs it takes at once")
	c.Flags().StringSliceVar(&o.Join, "join", nil, "addresses of nodes")
	c.Flags().StringSliceVar(&o.Queues, "queues", nil, "only runs of these queues, which each call names")
	c.Flags().StringVar(&o.Effects, "effects", "", "file for what it did")
	return c
}

// spinCmd is a process that keeps a processor busy. The scenarios start it.
func spinCmd() *cobra.Command {
	return &cobra.Command{Use: "spin", Hidden: true, Short: "Keep a processor busy", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { bench.Spin(cmd.Context()) }}
}

// progress is one line that is written over and over; none where the output is no terminal.
type progress struct {
	w     io.Writer
	off   bool
	mu    sync.Mutex
	last  time.Time
	shown bool
}

func (p *progress) show(what string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off || !terminal.Is(p.w) || time.Since(p.last) < 100*time.Millisecond && done != total {
		return
	}
	p.last, p.shown = time.Now(), true
	if total == 0 {
		fmt.Fprintf(p.w, "\r\033[K%s", what)
		return
	}
	const width = 30
	full := min(width, width*done/total)
	fmt.Fprintf(p.w, "\r\033[K%s %s%s %3d %% (%d of %d)", what, strings.Repeat("█", full),
		strings.Repeat("░", width-full), 100*done/total, done, total)
}

func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\033[K")
	}
}
