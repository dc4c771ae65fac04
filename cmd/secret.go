package cmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) secretCmd() *cobra.Command {
	return group("secret", "Store values that jobs refer to by secret://NAME and that are never shown again",
		a.secretSetCmd(), a.secretListCmd(), a.secretDeleteCmd())
}

// anyHost stands for every host in --hosts and in the list.
const anyHost = "any"

func (a *app) secretSetCmd() *cobra.Command {
	var file string
	var hosts []string
	c := &cobra.Command{
		Use: "set NAME", Short: "Set a secret from a file, standard input or a prompt", Args: cobra.ExactArgs(1),
		Long: "The value is read from --from-file, from standard input, or, on a terminal, from a prompt that does " +
			"not show it. One newline at its end is dropped.\n\nRuns that have started keep the value they started " +
			"with; a retry gets the new one.",
		Example: "  carillon secret set api-key -n team-a --hosts api.example.com < key.txt\n" +
			"  carillon submit -n team-a --name sync --schedule @hourly --http https://api.example.com/sync \\\n" +
			"    --header 'Authorization: Bearer secret://api-key'",
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := readSecret(cmd, args[0], file)
			if err != nil {
				return err
			}
			if slices.Equal(hosts, []string{anyHost}) {
				hosts = []string{}
			}
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (client.Secret, error) {
				return c.PutSecret(ctx, args[0], client.SecretRequest{Value: value, Hosts: hosts})
			}, func(p *printer, s client.Secret) {
				p.Printf("set secret %s of namespace %s, version %d, for %s\n", s.Name, s.Namespace, s.Version,
					cmp.Or(strings.Join(s.Hosts, ", "), "any host"))
			})
		},
	}
	c.Flags().StringVar(&file, "from-file", "", "file with the value")
	c.Flags().StringSliceVar(&hosts, "hosts", nil,
		"hosts that it may be sent to, HOST or HOST:PORT (default: unchanged; a new secret may go to any; "+anyHost+
			" allows any again); with hosts, shell and queue jobs cannot use it")
	return c
}

// readSecret reads a value. It is never an argument: those are seen by everybody on the machine.
func readSecret(cmd *cobra.Command, name, file string) (string, error) {
	var data []byte
	var err error
	in := cmd.InOrStdin()
	f, isFile := in.(*os.File)
	switch {
	case file != "":
		data, err = os.ReadFile(file)
	case isFile && term.IsTerminal(int(f.Fd())):
		fmt.Fprintf(cmd.ErrOrStderr(), "value of %s (not shown): ", name)
		data, err = term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
	default:
		data, err = io.ReadAll(io.LimitReader(in, job.MaxSecretBytes+3))
	}
	if err != nil {
		return "", job.Invalid("--from-file", "give a file that can be read", "%v", err)
	}
	if !utf8.Valid(data) {
		return "", job.Invalid("value", "encode it, for example as base64", "the value is not text")
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if value == "" {
		return "", usage("give it on standard input or with --from-file", "there is no value")
	}
	return value, nil
}

func (a *app) secretListCmd() *cobra.Command {
	return a.watched(a.listsAll(&cobra.Command{
		Use: "list", Short: "List secrets, without their values", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(a, cmd, (*client.Client).Secrets, (*printer).secrets)
		}}))
}

func (p *printer) secrets(all []client.Secret) {
	if len(all) == 0 {
		p.Printf("no secrets\n")
		return
	}
	var t output.Table
	spaces := &p.a.spaces
	t.Row(spaces.column("NAMESPACE", "NAME", "VERSION", "STATUS", "HOSTS", "SET", "BY", "JOBS")...)
	for _, s := range all {
		status := s.Status
		if status != "set" {
			status = p.Paint(terminal.Yellow, status)
		}
		jobs := strings.Join(s.Jobs, ", ")
		if more := s.JobCount - len(s.Jobs); more > 0 {
			jobs += " and " + strconv.Itoa(more) + " more"
		}
		t.Row(spaces.column(s.Namespace, s.Name, strconv.FormatUint(s.Version, 10), status,
			cmp.Or(strings.Join(s.Hosts, ", "), anyHost), p.WhenCell(s.SetAt), output.Dash(s.SetBy),
			output.Dash(jobs))...)
	}
	p.Table(t)
}

func (a *app) secretDeleteCmd() *cobra.Command {
	var force bool
	var sure confirmation
	c := &cobra.Command{Use: "delete NAME", Short: "Delete a secret that no job refers to", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := sure.ask(a, cmd, false, func() (string, error) {
				return "This deletes the secret " + args[0] + "; its value is nowhere else.", nil
			})
			if err != nil {
				return err
			}
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (struct{}, error) {
				return struct{}{}, c.DeleteSecret(ctx, args[0], force)
			}, func(p *printer, _ struct{}) { p.Printf("deleted secret %s\n", args[0]) })
		}}
	sure.register(c)
	c.Flags().BoolVar(&force, "force", false, "delete it even if jobs refer to it: their runs will fail")
	return c
}
