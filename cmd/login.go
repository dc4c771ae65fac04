package cmd

import (
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
	fl.StringVar(&c.text, "token", "", "API token; others on this machine can see it, so rather use --token-file "+
		"(or CARILLON_TOKEN)")
	fl.StringVar(&c.file, "token-file", "", "file with the API token (or CARILLON_TOKEN_FILE)")
}

// find is the token to use, as its text. Environment and flags come before what `carillon login` kept, and that is for
// the cluster that it was kept for only: a token must not be shown at another address.
func (c *credentials) find(a *app) (string, error) {
	text, file := c.text, c.file
	if text == "" && file == "" {
		text, file = a.env("CARILLON_TOKEN"), a.env("CARILLON_TOKEN_FILE")
	}
	switch {
	case text != "" && file != "":
		return "", job.Invalid("--token-file", "give one of them", "there is a token, and a file with a token")
	case file != "":
		t, err := keys.ReadTokenFile(keys.APIToken, file)
		return t.Text(), err
	case text != "":
		return text, nil
	}
	kept, err := login.Read(a.env)
	if err != nil || kept.Addr != a.addr {
		return "", err
	}
	return kept.Token, nil
}

func (a *app) loginCmd() *cobra.Command {
	return &cobra.Command{
		Use: "login ADDR", Short: "Keep an address and an API token for the commands that follow",
		Args: cobra.ExactArgs(1),
		Long: "Asks the node at ADDR whose the token is, and keeps both, readable for this user only. The token is " +
			"read from --token-file, the environment or standard input; on a terminal it is asked for and not shown.",
		Example: "  carillon login 10.0.0.1:7400\n" +
			"  carillon login 10.0.0.1:7400,10.0.0.2:7400 --token-file admin.token",
		RunE: func(cmd *cobra.Command, args []string) error { return a.login(cmd, args[0]) },
	}
}

func (a *app) login(cmd *cobra.Command, addr string) error {
	path := login.File(a.env)
	if path == "" {
		return job.Invalid(login.Env, "name a file", "there is no home directory to keep the token in")
	}
	a.addr = "" // nothing that was kept for another one
	text, err := a.credentials.find(a)
	if err == nil && text == "" {
		text, err = askToken(cmd)
	}
	if err != nil {
		return err
	}
	a.addr = addr
	var t keys.Token
	opts := a.clientOptions()
	if text != "" {
		if t, err = keys.ParseToken(keys.APIToken, text); err != nil {
			return err
		}
		opts = append(opts, client.WithToken(t.Text()))
	}
	who, err := client.New(addr, opts...).Whoami(cmd.Context())
	if err != nil {
		return err
	}
	if !who.Secure {
		t = keys.Token{} // it would not be asked for, and be read by everybody between here and there
	}
	if err := login.Write(path, login.For(addr, t)); err != nil {
		return err
	}
	return a.result(cmd, who, func(p *printer) {
		p.Printf("%s: %s\n", addr, whoText(who))
		p.Printf("kept in %s\n", path)
	})
}

// askToken reads a token from standard input. A terminal does not show it.
func askToken(cmd *cobra.Command) (string, error) {
	in := cmd.InOrStdin()
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(cmd.ErrOrStderr(), "API token (it is not shown; none for a cluster that asks for none): ")
		data, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		return strings.TrimSpace(string(data)), err
	}
	data, err := io.ReadAll(io.LimitReader(in, 2*keys.MaxTokenText))
	return strings.TrimSpace(string(data)), err
}

func (a *app) whoamiCmd() *cobra.Command {
	return &cobra.Command{Use: "whoami", Short: "Say whose the token is, and what it may do", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(a, cmd, (*client.Client).Whoami,
				func(p *printer, w client.Whoami) { p.Printf("%s\n", whoText(w)) })
		}}
}

// whoText is one line about a caller.
func whoText(w client.Whoami) string {
	if !w.Secure {
		return "the cluster asks for no token: everybody may do everything"
	}
	s := w.Name + ", role " + string(w.Role)
	if w.Namespace != "" {
		s += ", namespace " + w.Namespace
	}
	if w.Shell {
		s += ", may write shell jobs"
	}
	if w.ExpiresAt != 0 {
		s += ", until " + w.ExpiresAt.String()
	}
	return s
}
