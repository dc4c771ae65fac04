package cmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/cmd/values"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
)

func (a *app) tokenCmd() *cobra.Command {
	return group("token", "Create, list and revoke API tokens",
		a.tokenCreateCmd(), a.tokenListCmd(), a.tokenRevokeCmd(),
		askAbout(a, "resume TOKEN", "Make a suspended token valid again, by its id or name",
			func(c *client.Client, ctx context.Context, ref string) (client.Token, error) {
				return c.ResumeToken(ctx, tokenRef(ref))
			},
			func(p *printer, t client.Token) { p.Printf("%s (%s) is valid again\n", t.ID, t.Name) }))
}

func (a *app) tokenCreateCmd() *cobra.Command {
	var t client.TokenRequest
	var role, out string
	var ttl time.Duration
	var tags []string
	var all bool
	c := &cobra.Command{
		Use: "create NAME --role ROLE", Short: "Create an API token; it is shown once", Args: cobra.ExactArgs(1),
		Long: "Only the token itself goes to standard output. It is not shown again: the cluster stores its hash only.",
		Example: "  carillon token create ci --role operator --ttl 2160h --out ci.token\n" +
			"  carillon token create mailer --role worker --queues mail --slots 16 --out mailer.token",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			t.Name, t.Role, t.TTL = args[0], job.TokenRole(role), job.Duration(ttl)
			if t.Tags, err = values.Pairs("--tags", tags); err != nil {
				return err
			}
			if role == "" {
				return job.Invalid("--role", "use viewer, operator, admin or worker", "a token needs a role")
			}
			switch worker := t.Role == job.RoleWorker; {
			case all && !worker:
				return usage("leave out -A: without --namespace the token is for all namespaces",
					"-A is only for the role worker")
			case all && t.Namespace != "":
				return usage("give one of them", "--namespace and --all-namespaces are both given")
			case worker && !all: // it is handed what the jobs contain: those of one team, unless somebody says more
				t.Namespace = cmp.Or(t.Namespace, a.spaces.name, job.DefaultNamespace)
			}
			if out != "" {
				if err := free(out, false); err != nil {
					return err
				}
			}
			return a.createToken(cmd, t, out)
		},
	}
	fl := c.Flags()
	fl.StringVar(&role, "role", "", "viewer, operator, admin or worker")
	fl.StringVarP(&t.Namespace, "namespace", "n", "",
		"the namespace that the token is for (default all; for the role worker your current one)")
	fl.BoolVarP(&all, "all-namespaces", "A", false, "role worker: its workers take runs of every namespace")
	fl.BoolVar(&t.Shell, "shell", false, "the token may create and edit shell jobs")
	fl.DurationVar(&ttl, "ttl", 0, "how long the token is valid, such as 720h (default forever)")
	fl.StringSliceVar(&t.Queues, "queues", nil, "role worker: the queues that its workers may serve (default all)")
	fl.StringSliceVar(&t.Types, "types", nil, "role worker: the job types that its workers may execute (default all)")
	fl.StringSliceVar(&tags, "tags", nil, "role worker: tags k=v that its workers get, whatever they say")
	fl.StringSliceVar(&t.Secrets, "secrets", nil,
		"role worker: the secrets that its workers may receive with runs; * for all of the namespace (default none)")
	fl.IntVar(&t.Slots, "slots", 0, "role worker: the most runs that one of its workers may have at once")
	fl.StringVar(&out, "out", "", "file to write the token to, readable only by this user, instead of standard output")
	return c
}

func (a *app) createToken(cmd *cobra.Command, t client.TokenRequest, out string) error {
	var raw []byte
	ctx := client.WithRaw(a.keyed(cmd.Context()), func(b []byte) { raw = b })
	made, err := a.client().CreateToken(ctx, t)
	if err != nil {
		return err
	}
	if made.Text == "" {
		return job.Errorf(job.CodeState, "revoke it (`carillon token revoke "+made.ID+"`), and make another one",
			"the token %s was created, but the response with its text was lost", made.ID)
	}
	if out != "" {
		err := writeWhole(out, false, func(w io.Writer) error {
			_, err := io.WriteString(w, made.Text+"\n")
			return err
		})
		if err != nil {
			return job.Errorf(job.CodeInternal, "revoke it (`carillon token revoke "+made.ID+"`), and make another one",
				"the token %s was created, but its text cannot be written: %v", made.ID, err)
		}
		made.Text = ""
		if a.json {
			return output.JSON(cmd.OutOrStdout(), made)
		}
	}
	if a.json {
		return output.Raw(cmd.OutOrStdout(), raw)
	}
	p := a.printer(cmd)
	until := "it does not expire"
	if made.ExpiresAt != 0 {
		until = "expires " + p.When(made.ExpiresAt)
	}
	where := ""
	if made.Namespace != "" {
		where = " in namespace " + made.Namespace
	}
	said := cmd.ErrOrStderr()
	if a.form.Quiet {
		said = io.Discard
	}
	fmt.Fprintf(said, "token %s (%s): role %s%s, %s\n", made.ID, made.Name, made.Role, where, until)
	if out == "" {
		_, err = fmt.Fprintln(cmd.OutOrStdout(), made.Text)
		return err
	}
	addr := a.addr
	if strings.HasPrefix(addr, "unix:") { // it is for other machines too
		addr = "HOST:PORT"
	}
	next := output.Program() + " login " + addr
	if made.Role == job.RoleWorker {
		next = output.Program() + " worker --join " + addr
	}
	fmt.Fprintf(said, "the token is in %s, readable only by you, and is not shown again; use it with: %s "+
		"--token-file %s\n", out, next, out)
	return nil
}

func (a *app) tokenListCmd() *cobra.Command {
	return a.watched(&cobra.Command{Use: "list", Short: "List API tokens (never their texts)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(a, cmd, (*client.Client).Tokens, (*printer).tokens)
		}})
}

func (p *printer) tokens(all []client.Token) {
	if len(all) == 0 {
		p.Printf("no tokens\n")
		return
	}
	var t output.Table
	t.Row("ID", "NAME", "ROLE", "NAMESPACE", "STATUS", "CA", "EXPIRES", "CREATED", "BY")
	for _, k := range all {
		role := string(k.Role)
		if k.Shell {
			role += "+shell"
		}
		status := k.Status
		if status != "active" {
			status = p.Paint(terminal.Yellow, status)
		}
		ca := output.Dash(k.CA)
		if k.Status == "active" && (k.CA == "leaving" || k.CA == "forgotten") {
			ca = p.Paint(terminal.Yellow, ca)
		}
		t.Row(k.ID, k.Name, role, cmp.Or(k.Namespace, "all"), status, ca, p.WhenCell(k.ExpiresAt),
			p.WhenCell(k.CreatedAt), output.Dash(k.CreatedBy))
	}
	p.Table(t)
}

func (a *app) tokenRevokeCmd() *cobra.Command {
	return &cobra.Command{Use: "revoke TOKEN", Short: "Revoke a token, by its id or name, and end its open requests",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ref := tokenRef(args[0])
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (client.Token, error) {
				return c.RevokeToken(ctx, ref)
			}, func(p *printer, t client.Token) { p.Printf("revoked %s (%s)\n", t.ID, t.Name) })
		}}
}

// tokenRef is a token as the API names it. Who pastes a whole one, of which the third part is the id, means that one.
func tokenRef(arg string) string {
	if parts := strings.Split(arg, "."); len(parts) == 4 {
		return parts[2]
	}
	return arg
}
