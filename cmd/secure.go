package cmd

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/internal/enroll"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

func (a *app) joinTokenCmd() *cobra.Command {
	return group("token", "Make, list and revoke the tokens that nodes join a secure cluster with",
		a.joinTokenCreateCmd(), a.joinTokenListCmd(),
		askAbout(a, "revoke ID", "Revoke a join token; nodes that joined with it stay",
			(*client.Client).RevokeJoinToken,
			func(p *printer, t client.JoinToken) { p.Printf("%s lets no more nodes in\n", t.ID) }))
}

func (a *app) joinTokenCreateCmd() *cobra.Command {
	var ttl time.Duration
	var uses int
	var voter bool
	var out string
	c := &cobra.Command{
		Use: "create", Short: "Make a join token", Args: cobra.NoArgs,
		Long: "The text of the token goes to standard output, and nothing else does. Give it to the new node with " +
			"--token-file, CARILLON_TOKEN or --token. It contains the hash of the cluster's CA, so that the node " +
			"sends nothing to anybody else.\n\n" +
			"A node that joins without --voter is on standby: it has the state and carries out runs, and " +
			"`carillon cluster promote` gives it a vote. A voter has the keys of the cluster and can do everything.",
		Example: "  carillon cluster token create --voter --out n2.token\n" +
			"  carillon cluster token create --uses 5 --ttl 24h --out standby.token",
		RunE: func(cmd *cobra.Command, _ []string) error {
			rq := client.JoinTokenRequest{TTL: job.Duration(ttl), Uses: uses, Voter: voter}
			if out != "" {
				made, err := a.client().CreateJoinToken(a.keyed(cmd.Context()), rq)
				if err == nil {
					err = keys.WriteFile(out, []byte(made.Text+"\n"), nil)
				}
				if err != nil {
					return err
				}
				made.Text = ""
				return a.result(cmd, made, func(p *printer) {
					p.Printf("join token %s is in %s: %s\n", made.ID, out, joinsAs(made.JoinToken))
				})
			}
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (client.JoinTokenCreated, error) {
				return c.CreateJoinToken(ctx, rq)
			}, func(p *printer, t client.JoinTokenCreated) {
				p.Printf("%s\n", t.Text)
				if !a.form.Quiet {
					fmt.Fprintln(cmd.ErrOrStderr(), joinsAs(t.JoinToken))
				}
			})
		},
	}
	c.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long it lets nodes in")
	c.Flags().IntVar(&uses, "uses", 1, "how many nodes may join with it")
	c.Flags().BoolVar(&voter, "voter", false, "they get a vote, and with it the keys of the cluster")
	c.Flags().StringVar(&out, "out", "", "file to write it to, for this user only; one that is there is replaced")
	return c
}

// joinsAs says what becomes of the nodes that join with a token.
func joinsAs(t client.JoinToken) string {
	if t.Voter {
		return "nodes that join with it get a vote"
	}
	return "nodes that join with it get no vote until you run `carillon cluster promote`; with --voter they do"
}

func (a *app) joinTokenListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the join tokens, without their texts", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(a, cmd, (*client.Client).JoinTokens, func(p *printer, all []client.JoinToken) {
				var t output.Table
				t.Row("JOIN TOKEN", "STATUS", "JOINS AS", "USED", "EXPIRES", "BY")
				for _, j := range all {
					as := "standby"
					if j.Voter {
						as = "voter"
					}
					t.Row(j.ID, j.Status, as, fmt.Sprintf("%d of %d", j.Used, j.Uses), j.ExpiresAt.String(),
						output.Dash(j.CreatedBy))
				}
				p.Table(t)
			})
		},
	}
}

func (a *app) initCmd() *cobra.Command {
	var out, dir, backup, passphraseFile string
	var once bool
	c := &cobra.Command{
		Use: "init", Short: "Make the keys of a secure cluster before it is begun", Args: cobra.NoArgs,
		Long: `Writes the CA with its key and the cluster key (cluster.pem), the CA's certificate for clients (ca.pem)
and a join token (join.token) into a directory, for those who start nodes unattended. Start the first
node with --bootstrap --keys-from DIR, the others with --join ADDR --keys-from DIR.
Who has cluster.pem can do everything: give the others join.token only if you can.

With --data-dir it makes the keys for the cluster of that node, which is not secure yet and not running:
stop all nodes, and start every one with --secure --keys-from DIR.

With --from-backup it makes none, and takes those out of a backup that was taken with --with-keys: for a cluster whose
voters all lost theirs. Put cluster.pem into the keys directory of one voter and restart it; the others get it from there.`,
		Example: "  carillon cluster init --out keys\n  carillon cluster init --data-dir /var/lib/carillon --out keys",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return job.Invalid("--out", "name a directory that does not exist yet", "where should the keys go?")
			}
			switch {
			case backup == "" && passphraseFile != "":
				return usage("give it, or leave --passphrase-file out", "that is for --from-backup")
			case backup != "" && (once || dir != ""):
				return usage("leave one of them out", "--from-backup excludes --once and --data-dir")
			case backup != "":
				return a.keysOfBackup(cmd, backup, passphraseFile, out)
			}
			if once {
				if kept, ok, err := enroll.KeepKeys(out); err != nil {
					return err
				} else if ok {
					return a.result(cmd, kept, func(p *printer) {
						p.Printf("keys of cluster %s are in %s already\n", kept.Cluster, kept.Dir)
					})
				}
			}
			id := strings.ToLower(rand.Text())
			if dir != "" {
				var err error
				if id, err = datadir.ClusterOf(dir, slog.New(slog.NewTextHandler(io.Discard, nil))); err != nil {
					return err
				}
			}
			made, err := enroll.MakeKeys(out, id, a.now())
			if err != nil {
				return err
			}
			return a.result(cmd, made, func(p *printer) {
				p.Printf("keys of cluster %s are in %s; its join token is valid for an hour once the cluster forms\n",
					made.Cluster, made.Dir)
			})
		},
	}
	c.Flags().StringVar(&out, "out", "", "directory to write them into")
	c.Flags().BoolVar(&once, "once", false, "leave keys that are there: for a service that is started every time")
	c.Flags().StringVar(&dir, "data-dir", "", "directory of a node that is not running, to make its cluster secure")
	c.Flags().StringVar(&backup, "from-backup", "", "backup with the keys to write")
	c.Flags().StringVar(&passphraseFile, "passphrase-file", "",
		"with --from-backup: file with the passphrase (default: standard input)")
	return c
}

// keysOfBackup writes the keys that are in a backup.
func (a *app) keysOfBackup(cmd *cobra.Command, file, passphraseFile, out string) error {
	f, err := os.Open(file)
	if err != nil {
		return job.Invalid("--from-backup", "give a file that `carillon backup --with-keys` wrote", "%v", err)
	}
	defer f.Close()
	passphrase, err := readPassphrase(cmd, passphraseFile, false)
	if err != nil {
		return err
	}
	made, err := enroll.KeysOfBackup(f, passphrase, out)
	if err != nil {
		return err
	}
	return a.result(cmd, made, func(p *printer) {
		p.Printf("keys of cluster %s are in %s; put %s into the %s directory of one voter, and restart it\n",
			made.Cluster, made.Dir, keys.ClusterFile, keys.Dir)
	})
}

// caFile is --ca-file.
type caFile string

func (f *caFile) register(fl *pflag.FlagSet, env func(string) string) {
	fl.StringVar((*string)(f), "ca-file", env("CARILLON_CA_FILE"),
		"ca.pem of a secure cluster, if there is no token: that names the CA itself (or CARILLON_CA_FILE)")
}

// option makes a client trust the CA, and no other.
func (f caFile) option() client.Option {
	h, err := keys.ReadCAFile("--ca-file", string(f))
	if err != nil {
		return client.WithError(err)
	}
	return client.WithTLSConfig(keys.ClientConfig(h))
}
