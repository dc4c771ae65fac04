package cmd

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/login"
	"github.com/carillon-scheduler/carillon/job"
)

// credentials are --token and --token-file.
type credentials struct {
	text, file string
}

func (c *credentials) register(fl *pflag.FlagSet) {
	fl.StringVar(&c.text, "token", "", "API token; other users of this machine can see it, so --token-file is "+
		"better (or CARILLON_TOKEN)")
	fl.StringVar(&c.file, "token-file", "", "file with the API token (or CARILLON_TOKEN_FILE)")
}

// find is the token to use, as its text. What is typed comes before the environment, and that before a context, whose
// token is for its own addresses only: it must not be shown at another one.
func (c *credentials) find(a *app) (string, error) {
	text, file := c.text, c.file
	err := a.choose()
	if a.context != "" && err != nil {
		return "", err // another cluster than the one that was named must not get the token, nor the request
	}
	kept := a.kept.Covers(a.addr)
	if text+file == "" && a.contextTyped() && a.typed("addr") && !kept && a.kept.Addr != "" {
		// Without the context's token and CA the request would go out readable.
		return "", job.Invalid("--addr", "leave out --addr or --context",
			"%s is not an address of the context %s, which has %s",
			a.addr, a.context, a.kept.Addr)
	}
	if text == "" && file == "" && kept && a.contextTyped() {
		text, file = a.kept.Token, a.kept.TokenFile
	}
	if text == "" && file == "" {
		text, file = a.env("CARILLON_TOKEN"), a.env("CARILLON_TOKEN_FILE")
	}
	if text == "" && file == "" {
		if err != nil {
			return "", err
		}
		if kept {
			text, file = a.kept.Token, a.kept.TokenFile
		}
	}
	switch {
	case text != "" && file != "":
		return "", job.Invalid("--token-file", "give one of them", "both a token and a token file are given")
	case file != "":
		t, err := keys.ReadTokenFile(keys.APIToken, file)
		return t.Text(), err
	}
	return text, nil
}

// chosen is the context of a command.
type chosen struct {
	context string // its name; empty: the current one
	kept    login.Context
	keptErr error
	known   bool // kept and keptErr are
}

// contextTyped says that --context was: then what the context says comes before the environment.
func (a *app) contextTyped() bool { return a.typed("context") }

// choose looks at the context once, and gives what was not typed its value: address and namespace. What is wrong with
// the contexts is said when one is needed.
func (a *app) choose() error {
	if a.known {
		return a.keptErr
	}
	a.known = true
	all, err := login.Read(a.env)
	if err == nil {
		a.kept, err = all.Choose(a.context)
	}
	if a.keptErr = err; err == nil && (a.context != "" || all.Current != "") && a.kept.Addr == "" {
		a.kept.Addr = client.DefaultAddr
	}
	if a.kept.Addr != "" && !a.typed("addr") && (a.contextTyped() || a.env("CARILLON_ADDR") == "") {
		a.addr = a.kept.Addr
	}
	if a.spaces.name != "" { // it was typed
		return a.keptErr
	}
	space := ""
	if a.kept.Covers(a.addr) {
		space = a.kept.Namespace
	}
	a.spaces.name, a.spaces.from = cmp.Or(a.env(namespaceEnv), space), namespaceEnv
	if space != "" && a.contextTyped() {
		a.spaces.name = space
	}
	return a.keptErr
}

// typed says that a flag of all commands was given.
func (a *app) typed(flag string) bool { return a.flags != nil && a.flags.Changed(flag) }

// caOption makes a client trust the CA that --ca-file, the environment or the context names, and no other. hasToken
// says that there is a token, which names the CA itself.
func (a *app) caOption(hasToken bool) client.Option {
	kept := a.kept
	if !kept.Covers(a.addr) {
		kept = login.Context{}
	}
	before := a.contextTyped() && !a.typed("ca-file") // the context comes before --ca-file's variable
	file, hash := string(a.ca), ""
	if file == "" || before && kept.CA+kept.CAFile != "" {
		file, hash = kept.CAFile, kept.CA
	}
	switch {
	case file != "":
		return caFile(file).option()
	case hash == "" || hasToken:
		return nil
	}
	h, err := keys.ParseHash(hash)
	if err != nil {
		return client.WithError(err)
	}
	return client.WithTLSConfig(keys.ClientConfig(h))
}

func (a *app) loginCmd() *cobra.Command {
	var namespace string
	c := &cobra.Command{
		Use: "login ADDR", Short: "Save an address and an API token for later commands",
		Args: cobra.ExactArgs(1),
		Long: "Checks the token with the node at ADDR and saves both as a context that only this user can read. The " +
			"context is named default unless --context gives another name, and becomes the current one. The token " +
			"is read from --token-file, the environment or standard input; on a terminal you are asked for it, and " +
			"it is not shown.",
		Example: "  carillon login 10.0.0.1:7400\n" +
			"  carillon login 10.0.0.1:7400,10.0.0.2:7400 --token-file admin.token\n" +
			"  carillon login 10.0.0.1:7400 --context staging -n team-a",
		RunE: func(cmd *cobra.Command, args []string) error { return a.login(cmd, args[0], namespace) },
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace for commands that use the context")
	return c
}

func (a *app) login(cmd *cobra.Command, addr, namespace string) error {
	name := cmp.Or(a.context, login.DefaultName)
	if err := login.CheckName("--context", name); err != nil {
		return err
	}
	if namespace != "" {
		if err := job.CheckNamespace(namespace); err != nil {
			return err
		}
	}
	path := login.File(a.env)
	if path == "" {
		return job.Invalid(login.EnvDir, "name a directory", "there is no home directory to keep the token in")
	}
	all, err := login.Read(a.env)
	if err != nil {
		return err
	}
	a.chosen = chosen{known: true} // nothing that was kept before
	text, err := a.credentials.find(a)
	if err == nil && text == "" {
		text, err = askToken(cmd)
	}
	if err != nil {
		return err
	}
	var t keys.Token
	opts := a.clientOptions()
	if text != "" {
		if t, err = keys.ParseToken(keys.APIToken, text); err != nil {
			return err
		}
		opts = append(opts, client.WithToken(t.Text()))
	}
	var ca keys.Hash
	if a.ca != "" {
		if ca, err = keys.ReadCAFile("--ca-file", string(a.ca)); err != nil {
			return err
		}
		opts = append(opts, a.ca.option())
	}
	who, err := client.New(addr, opts...).Whoami(cmd.Context())
	if err != nil {
		return err
	}
	if addr, err = login.Absolute(addr); err != nil {
		return err
	}
	if !who.Secure {
		t = keys.Token{} // it would not be asked for, and be read by everybody between here and there
	}
	kept := login.For(addr, t)
	if kept.Namespace = namespace; ca != (keys.Hash{}) {
		kept.CA = ca.String()
	}
	if all.Contexts == nil {
		all.Contexts = map[string]login.Context{}
	}
	all.Contexts[name], all.Current = kept, name
	if err := all.Write(path); err != nil {
		return err
	}
	return a.result(cmd, who, func(p *printer) {
		p.Printf("%s: %s\n", addr, whoText(who))
		p.Printf("saved as context %s in %s\n", name, path)
	})
}

// askToken reads a token from standard input. A terminal does not show it.
func askToken(cmd *cobra.Command) (string, error) {
	in := cmd.InOrStdin()
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(cmd.ErrOrStderr(), "API token (not shown; leave empty if the cluster needs none): ")
		data, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		return strings.TrimSpace(string(data)), err
	}
	data, err := io.ReadAll(io.LimitReader(in, 2*keys.MaxTokenText))
	return strings.TrimSpace(string(data)), err
}

func (a *app) whoamiCmd() *cobra.Command {
	return &cobra.Command{Use: "whoami", Short: "Show whose token this is, and what it may do", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(a, cmd, (*client.Client).Whoami,
				func(p *printer, w client.Whoami) { p.Printf("%s\n", whoText(w)) })
		}}
}

// whoText is one line about a caller.
func whoText(w client.Whoami) string {
	if !w.Secure {
		return "the cluster needs no token: everybody may do everything"
	}
	s := w.Name + ", role " + string(w.Role)
	if w.Namespace != "" {
		s += ", namespace " + w.Namespace
	}
	if w.Shell {
		s += ", may create and edit shell jobs"
	}
	if w.ExpiresAt != 0 {
		s += ", until " + w.ExpiresAt.String()
	}
	return s
}
