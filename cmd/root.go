package cmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/applier"
	"github.com/carillon-scheduler/carillon/cmd/bencher"
	"github.com/carillon-scheduler/carillon/cmd/complete"
	"github.com/carillon-scheduler/carillon/cmd/contexts"
	"github.com/carillon-scheduler/carillon/cmd/exit"
	"github.com/carillon-scheduler/carillon/cmd/habits"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/cmd/settings"
	"github.com/carillon-scheduler/carillon/internal/login"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
)

// app is what the commands have in common. Tests put their own clock, zone and environment in.
type app struct {
	args   []string // of the command line
	addr   string
	key    string // of a mutating request
	json   bool   // form is JSON
	form   output.Choice
	limit  requestLimit
	spaces spaces
	credentials
	chosen
	flags *pflag.FlagSet // of all commands
	ca    caFile
	talks *client.Client // made when the first request is
	work  func(context.Context, workerConfig, io.Writer) error
	now   func() time.Time
	loc   *time.Location // times are shown in it
	env   func(string) string
	// person says that somebody can be asked at a standard input; tests have one who answers
	person func(io.Reader) bool
	color  bool // decided when a command starts
	width  int  // of the terminal; 0 if there is none

	parsed bool // the command line was understood: errors from here on are not about usage
}

func newApp() *app {
	return &app{now: time.Now, loc: time.Local, env: os.Getenv, work: runWorker,
		person: isPerson}
}

// Main runs the command line and returns the exit code of the process.
func Main() int {
	a := newApp()
	a.args = os.Args[1:]
	ctx, stop := signals()
	defer stop()
	root := a.root()
	output.NameProgram(root, output.Program())
	root.SetOut(terminal.Screen(os.Stdout))
	root.SetErr(terminal.Screen(os.Stderr))
	return a.execute(ctx, root, root.ErrOrStderr())
}

// CommandLine is the whole of it, to be described: with no one's environment in its defaults.
func CommandLine() *cobra.Command {
	a := newApp()
	a.env = func(string) string { return "" }
	return a.root()
}

func (a *app) execute(ctx context.Context, root *cobra.Command, stderr io.Writer) int {
	strictCompletion(root)
	root.SetArgs(a.args)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.parsed {
		better := habits.Explain(err, cmd, a.args)
		if better == nil {
			better = exit.BadUsage(err, cmd)
		}
		err = better
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
			os.Exit(exit.Failure)
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
		Long: `Carillon runs jobs on schedule: HTTP calls, shell commands, messages, work for queues.

Start a node to try it out:      carillon dev
Submit a job to it:              carillon submit --name hello --schedule '@every 2s' --shell 'date'
See what ran, and when:          carillon runs hello

Exit codes: 0 ok, 1 failure, 2 usage or invalid input, 3 not found, 4 conflict, 5 unreachable or unavailable,
6 diff found changes, 70 a node whose storage failed.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			a.parsed = true
			a.color = a.wantsColor(cmd.OutOrStdout())
			if a.env("TERM") != "dumb" { // which understands no escape codes, and so draws nothing in place
				a.width, _ = size(cmd.OutOrStdout())
			}
			if completes(cmd) { // the flags are those of the command that is being typed: they are not read yet
				return nil
			}
			if err := a.form.Settle(cmd); err != nil {
				return err
			}
			if err := emptyValues(cmd, args); err != nil {
				return err
			}
			a.choose() //nolint:errcheck // it is said when the context is needed
			if err := a.spaces.check(cmd); err != nil {
				return err
			}
			if f := cmd.Root().PersistentFlags().Lookup("token"); f.Changed && !a.json {
				fmt.Fprintln(cmd.ErrOrStderr(),
					"warning: --token can be seen by others on this machine: use --token-file")
			}
			return a.limit.check()
		},
	}
	var showVersion bool
	root.Flags().BoolVar(&showVersion, "version", false, "print the version of this binary")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if showVersion {
			return a.showVersion(cmd)
		}
		return cmd.Help()
	}
	fl := root.PersistentFlags()
	a.flags = fl
	fl.StringVar(&a.addr, "addr", cmp.Or(a.env("CARILLON_ADDR"), client.DefaultAddr),
		"address of a node, or several, a,b,c, which are tried in turn; or unix:PATH (or CARILLON_ADDR)")
	fl.StringVar(&a.context, "context", a.env(login.EnvName),
		"the context to use instead of the current one (or "+login.EnvName+")")
	a.form.Register(root, &a.json, a.env)
	fl.StringVar(&a.key, "idempotency-key", "", "key of this request: repeating it with the same key has no further "+
		"effect")
	a.limit.register(fl, "timeout", a.env)
	a.credentials.register(fl)
	a.ca.register(fl, a.env)
	root.AddGroup(&cobra.Group{ID: "use", Title: "Jobs and runs:"}, &cobra.Group{ID: "node", Title: "Nodes:"},
		&cobra.Group{ID: "local", Title: "Without a node:"})
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("use", a.inNamespace(a.submitCmd(), applier.Apply(a.applier()), applier.Diff(a.applier()), a.jobsCmd(),
		a.runsCmd(), a.logsCmd(), a.whyCmd(), a.deadCmd(),
		a.queuesCmd(), a.calendarsCmd(), a.secretCmd(), a.upcomingCmd())...)
	add("use", a.statusCmd(), a.loginCmd(), contexts.Logout(a.contexts()), contexts.Cmd(a.contexts()),
		a.whoamiCmd())
	lasting := []*cobra.Command{a.devCmd(), a.serverCmd(), a.workerCmd()}
	for _, c := range lasting {
		settings.Add(c, a.env)
	}
	add("node", lasting...)
	add("node", a.clusterCmd(), a.nodesCmd(), a.tokenCmd(), a.backupCmd(), bencher.Cmd(a.bencher()))
	add("node", a.inNamespace(a.auditCmd())...)
	add("local", a.scheduleCmd(), a.importCmd(), a.configCmd(), a.checkCmd(), a.restoreCmd(), a.compactCmd(),
		a.versionCmd())
	complete.Attach(root, complete.App{Client: a.client, Contexts: func() []string { return contexts.Names(a.env) }})
	return root
}

// applier is what apply and diff know of the process.
func (a *app) applier() applier.App {
	return applier.App{Client: a.client, Keyed: a.keyed, Home: a.home, JSON: func() bool { return a.json },
		Names:   func() bool { return a.form.Form == output.FormName },
		Printer: func(cmd *cobra.Command) *output.Printer { return &a.printer(cmd).Printer },
		Report:  func(w io.Writer, err error) { a.report(w, err) }}
}

// contexts is what the commands about contexts know of the process.
func (a *app) contexts() contexts.App {
	return contexts.App{Env: a.env, Name: func() string { return a.context },
		Result: func(cmd *cobra.Command, v any, human func(*output.Printer)) error {
			return a.result(cmd, v, func(p *printer) { human(&p.Printer) })
		}}
}

// bencher is what the measurements know of the process.
func (a *app) bencher() bencher.App {
	return bencher.App{Addr: func() string { return a.addr }, JSON: func() bool { return a.json }, Env: a.env,
		Token: func() (string, error) { return a.credentials.find(a) }}
}

func (a *app) wantsColor(w io.Writer) bool {
	return a.env("NO_COLOR") == "" && a.env("TERM") != "dumb" && terminal.Is(w)
}

// size is how many columns and lines the terminal has, 0 if it is none.
func size(w io.Writer) (columns, lines int) {
	if f, ok := terminal.File(w); ok {
		columns, lines, _ = term.GetSize(int(f.Fd())) // 0 with an error
	}
	return columns, lines
}

// client is the one of this process: it remembers which node answers.
func (a *app) client() *client.Client {
	if a.talks == nil {
		text, err := a.credentials.find(a)
		opts := append(a.clientOptions(), client.WithNamespace(a.spaces.asked()))
		switch {
		case err != nil:
			opts = append(opts, client.WithError(err))
		case text != "":
			opts = append(opts, client.WithToken(text))
		}
		if ca := a.caOption(text != ""); ca != nil {
			opts = append(opts, ca)
		}
		a.talks = client.New(a.addr, opts...)
	}
	return a.talks
}

// clientOptions are those that do not depend on who calls.
func (a *app) clientOptions() []client.Option {
	opts := []client.Option{client.WithUserAgent("carillon/" + version().Version)}
	if a.limit.given() {
		opts = append(opts, client.WithTimeout(a.limit.d))
	}
	return opts
}

// keyed is a context whose mutating requests carry the key that was given.
func (a *app) keyed(ctx context.Context) context.Context {
	if a.key == "" {
		return ctx
	}
	return client.WithIdempotencyKey(ctx, a.key)
}

// home is the namespace of what names none.
func (a *app) home(ctx context.Context) (string, error) {
	if a.spaces.name != "" {
		return a.spaces.name, nil
	}
	who, err := a.client().Whoami(ctx)
	return cmp.Or(who.Namespace, job.DefaultNamespace), err
}

// printer writes for people.
type printer struct {
	output.Printer
	a *app
}

func (a *app) printer(cmd *cobra.Command) *printer {
	return &printer{a: a, Printer: a.form.Printer(output.Printer{W: cmd.OutOrStdout(), Now: a.now(), Zone: a.loc,
		Color: a.color, Width: a.width})}
}

// show is ask for a call without an answer, or with one that has no name.
func (a *app) show(cmd *cobra.Command, call func(context.Context, *client.Client) error, human func(*printer)) error {
	return ask(a, cmd, func(c *client.Client, ctx context.Context) (struct{}, error) {
		return struct{}{}, call(ctx, c)
	}, func(p *printer, _ struct{}) { human(p) })
}

// warned is the context of a command whose calls are warned of something: who runs it reads that beside the answer.
func (a *app) warned(cmd *cobra.Command) context.Context {
	return client.WithWarnings(cmd.Context(), func(text string) {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning: "+text)
	})
}

// ask makes one call and prints its answer: in the form that was asked for, or what human writes.
func ask[T any](a *app, cmd *cobra.Command, call func(*client.Client, context.Context) (T, error),
	human func(*printer, T)) error {
	var answer T
	if err := a.form.Check(cmd, answer, a.spaces.all); err != nil {
		return err
	}
	var raw []byte
	ctx := client.WithRaw(a.keyed(a.warned(cmd)), func(b []byte) { raw = b })
	answer, err := call(a.client(), ctx)
	if err != nil {
		return err
	}
	a.form.Saw(raw)
	if done, err := a.form.Print(cmd.OutOrStdout(), raw, answer, a.spaces.all); done {
		return err
	}
	p := a.printer(cmd)
	human(p, answer)
	return p.Err
}

// askAbout is a command that makes one call about the one thing that it names.
func askAbout[T any](a *app, use, short string, call func(*client.Client, context.Context, string) (T, error),
	human func(*printer, T)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (T, error) { return call(c, ctx, args[0]) },
				human)
		}}
}

// result prints what a command found out without a node.
func (a *app) result(cmd *cobra.Command, v any, human func(*printer)) error {
	if done, err := a.form.Value(cmd, v); done {
		return err
	}
	p := a.printer(cmd)
	human(p)
	return p.Err
}

// group is a command that only has subcommands.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	c.AddCommand(subs...)
	return c
}

// strictCompletion makes cobra's completion command refuse a shell that it does not know; it would print its help as if
// all were well. It is called late: cobra decides here where the script goes.
func strictCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args = cobra.NoArgs
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// completes says that a shell asks what could be typed next. The word that is being typed may be empty.
func completes(cmd *cobra.Command) bool {
	return cmd.Name() == cobra.ShellCompRequestCmd || cmd.Name() == cobra.ShellCompNoDescRequestCmd
}

// requestLimit is --timeout: how long a command may wait for answers. It is the client's own limits unless it is given.
type requestLimit struct {
	d    time.Duration
	flag *pflag.Flag
	env  string // CARILLON_TIMEOUT, if that is set
	bad  error
}

func (l *requestLimit) register(fl *pflag.FlagSet, name string, env func(string) string) {
	l.d = 10 * time.Second
	if l.env = env("CARILLON_TIMEOUT"); l.env != "" {
		if l.d, l.bad = time.ParseDuration(l.env); l.bad != nil {
			l.bad = job.Invalid("CARILLON_TIMEOUT", "use a duration such as 30s", "%q is not a duration", l.env)
		}
	}
	fl.DurationVar(&l.d, name, l.d,
		"how long a request may take in all, or how long a stream may be silent (30s); 0 for no limit (or "+
			"CARILLON_TIMEOUT)")
	l.flag = fl.Lookup(name)
}

// given says that the user set a limit.
func (l *requestLimit) given() bool { return l.env != "" || l.flag != nil && l.flag.Changed }

func (l *requestLimit) check() error {
	if l.bad == nil && l.d < 0 {
		return job.Invalid("--"+l.flag.Name, "use a duration such as 30s, or 0 for no limit",
			"%s is negative", l.d)
	}
	return l.bad
}

// neverEmpty are the flags that name one thing, or say when and how often a job runs. Given and empty they are a
// variable that is not set, and without this the command would be about everything, about something without a name, or
// make a job that runs at other times.
var neverEmpty = []string{"name", "job", "queue", "namespace", "context", "schedule", "at", "tz", "start-at", "end-at",
	"deadline", "delivery", "overlap", "missed"}

// emptyValues refuses arguments, names and lists that are empty. A list limits something, more often than not: where
// a secret may go, what a token is for.
func emptyValues(cmd *cobra.Command, args []string) error {
	for i, arg := range args {
		if strings.TrimSpace(arg) == "" && cmd.Name() != cobra.ShellCompRequestCmd { // there it is a tab after a space
			return usage("is a variable unset?", "argument %d is empty", i+1)
		}
	}
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		empty := f.Value.Type() == "string" && slices.Contains(neverEmpty, f.Name) &&
			strings.TrimSpace(f.Value.String()) == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			empty = strings.TrimSpace(strings.Join(list.GetSlice(), "")) == ""
		}
		if empty && err == nil {
			err = job.Invalid("--"+f.Name, "leave it out, or give it a value: is a variable unset?", "it is empty")
		}
	})
	return err
}
