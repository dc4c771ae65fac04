package cmd

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/carillon-scheduler/carillon/client"
)

// app is what the commands have in common. Tests put their own clock, zone and environment in.
type app struct {
	args  []string // of the command line
	addr  string
	key   string // of a mutating request
	json  bool
	limit requestLimit
	talks *client.Client // made when the first request is
	now   func() time.Time
	loc   *time.Location // times are shown in it
	env   func(string) string
	color bool // decided when a command starts
	width int  // of the terminal; 0 if there is none

	parsed bool // the command line was understood: errors from here on are not about usage
}

func newApp() *app {
	return &app{now: time.Now, loc: time.Local, env: os.Getenv}
}

// Main runs the command line and returns the exit code of the process.
func Main() int {
	a := newApp()
	a.args = os.Args[1:]
	ctx, stop := signals()
	defer stop()
	root := a.root()
	return a.execute(ctx, root, os.Stderr)
}

func (a *app) execute(ctx context.Context, root *cobra.Command, stderr io.Writer) int {
	strictCompletion(root)
	root.SetArgs(a.args)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.parsed {
		err = badUsage{err, cmd}
	}
	return a.report(stderr, err)
}

// signals ends the context at the first SIGINT or SIGTERM, and the process at the second.
func signals() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-ch
		cancel()
		if _, ok := <-ch; ok {
			os.Exit(exitFailure)
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		cancel()
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "carillon",
		Short: "A distributed job scheduler in one binary",
		Long: `Carillon fires jobs at their time: HTTP calls, shell commands, work for queues.

Start a node to play with:       carillon dev
Submit a job to it:              carillon submit --name hello --schedule '@every 2s' --shell 'date'
See what ran, and when:          carillon runs hello

Exit codes: 0 ok, 1 failure, 2 usage or invalid input, 3 not found, 4 conflict, 5 unreachable or unavailable,
70 a node whose storage failed.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			a.parsed = true
			a.color = a.wantsColor(cmd.OutOrStdout())
			if a.env("TERM") != "dumb" { // which understands no escape codes, and so draws nothing in place
				a.width = width(cmd.OutOrStdout())
			}
			if err := emptyNames(cmd, args); err != nil {
				return err
			}
			return a.limit.check()
		},
	}
	addr := a.env("CARILLON_ADDR")
	if addr == "" {
		addr = client.DefaultAddr
	}
	fl := root.PersistentFlags()
	fl.StringVar(&a.addr, "addr", addr, "address of a node, or of several, a,b,c: tried in turn (or CARILLON_ADDR)")
	fl.BoolVar(&a.json, "json", false, "print the API's JSON, and errors as JSON on standard error")
	fl.StringVar(&a.key, "idempotency-key", "", "key of this request: a repeat with it is done once")
	a.limit.register(fl, "timeout", a.env)
	root.AddGroup(&cobra.Group{ID: "use", Title: "Jobs and runs:"}, &cobra.Group{ID: "node", Title: "Nodes:"},
		&cobra.Group{ID: "local", Title: "Without a node:"})
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("use", a.submitCmd(), a.jobsCmd(), a.runsCmd(), a.deadCmd(), a.queuesCmd(), a.calendarsCmd(), a.statusCmd())
	add("node", a.devCmd(), a.serverCmd(), a.workerCmd(), a.clusterCmd(), a.backupCmd(), a.benchCmd())
	add("local", a.scheduleCmd(), a.checkCmd(), a.restoreCmd(), a.compactCmd(), a.versionCmd())
	return root
}

func (a *app) wantsColor(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && a.env("NO_COLOR") == "" && a.env("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// width is how many columns the terminal has, 0 if it is none.
func width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// client is the one of this process: it remembers which node answers.
func (a *app) client() *client.Client {
	if a.talks == nil {
		opts := []client.Option{client.WithUserAgent("carillon/" + version().Version)}
		if a.limit.given() {
			opts = append(opts, client.WithTimeout(a.limit.d))
		}
		a.talks = client.New(a.addr, opts...)
	}
	return a.talks
}

// keyed is a context whose mutating requests carry the key that was given.
func (a *app) keyed(ctx context.Context) context.Context {
	if a.key == "" {
		return ctx
	}
	return client.WithIdempotencyKey(ctx, a.key)
}

// show makes one call and prints its answer: exactly the API's JSON with --json, otherwise what human writes.
func (a *app) show(cmd *cobra.Command, call func(context.Context, *client.Client) error, human func(*printer)) error {
	var raw []byte
	ctx := client.WithRaw(a.keyed(cmd.Context()), func(b []byte) { raw = b })
	if err := call(ctx, a.client()); err != nil {
		return err
	}
	if a.json {
		return printRaw(cmd.OutOrStdout(), raw)
	}
	p := a.printer(cmd)
	human(p)
	return p.err
}

// printRaw prints an answer as it came. One without a body is an empty object, so that a program always gets JSON.
func printRaw(w io.Writer, raw []byte) error {
	text := strings.TrimRight(string(raw), "\n")
	if text == "" {
		text = "{}"
	}
	_, err := io.WriteString(w, text+"\n")
	return err
}

// group is a command that only has subcommands.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.AddCommand(subs...)
	return c
}
