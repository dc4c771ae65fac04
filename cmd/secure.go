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
	return group("token", "Create, list and revoke the tokens with which nodes join a secure cluster",
		a.joinTokenCreateCmd(), a.joinTokenListCmd(),
		askAbout(a, "revoke ID", "Revoke a join token; nodes that joined with it stay",
			(*client.Client).RevokeJoinToken,
			func(p *printer, t client.JoinToken) { p.Printf("no more nodes can join with %s\n", t.ID) }))
}

func (a *app) joinTokenCreateCmd() *cobra.Command {
	var ttl time.Duration
	var uses int
	var voter bool
	var out string
	c := &cobra.Command{
		Use: "create", Short: "Create a join token", Args: cobra.NoArgs,
		Long: "Only the token itself goes to standard output. Give it to the new node with --token-file, " +
			"CARILLON_TOKEN or --token. It contains the hash of the cluster's CA, so the node talks to no other " +
			"cluster.\n\nA node that joins with a token made without --voter is on standby: it has the state and " +
			"carries out runs, and `carillon cluster promote` gives it a vote. A voter has the keys of the cluster " +
			"and can do everything.",
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
	c.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long nodes can join with it")
	c.Flags().IntVar(&uses, "uses", 1, "how many nodes may join with it")
	c.Flags().BoolVar(&voter, "voter", false, "nodes that join with it get a vote, and with it the keys of the cluster")
	c.Flags().StringVar(&out, "out", "", "file to write it to, readable only by this user; an existing file is "+
		"replaced")
	return c
}

// joinsAs says what becomes of the nodes that join with a token.
func joinsAs(t client.JoinToken) string {
	if t.Voter {
		return "nodes that join with it get a vote"
	}
	return "nodes that join with it have no vote until you run `carillon cluster promote` (--voter gives them one)"
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
		Use: "init", Short: "Make the keys of a secure cluster before it exists", Args: cobra.NoArgs,
		Long: `Writes the CA with its key and the cluster key (cluster.pem), the CA's certificate for clients (ca.pem)
and a join token (join.token) into a directory, for nodes that start unattended. Start the first
node with --bootstrap --keys-from DIR, the others with --join ADDR --keys-from DIR.
Anyone who has cluster.pem can do everything: if you can, give the other nodes only join.token.

With --data-dir it makes keys for the existing plain cluster of that stopped node: stop all nodes, run this for one
of them, and start every node with --secure --keys-from DIR.

With --from-backup it extracts the keys from a backup that was taken with --with-keys instead: for a cluster whose
voters have all lost theirs. Copy cluster.pem into the keys directory of one voter and restart it; the others get it
from there.`,
		Example: "  carillon cluster init --out keys\n  carillon cluster init --data-dir /var/lib/carillon --out keys",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return job.Invalid("--out", "name a directory that does not exist yet", "where should the keys go?")
			}
			switch {
			case backup == "" && passphraseFile != "":
				return usage("add --from-backup, or leave out --passphrase-file",
					"--passphrase-file needs --from-backup")
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
				p.Printf("keys of cluster %s are in %s; the join token is valid for an hour from when the cluster "+
					"forms\n",
					made.Cluster, made.Dir)
			})
		},
	}
	c.Flags().StringVar(&out, "out", "", "directory to write the keys to")
	c.Flags().BoolVar(&once, "once", false, "keep keys that exist already, for a service that runs this at every start")
	c.Flags().StringVar(&dir, "data-dir", "", "data directory of a stopped node whose cluster is to become secure")
	c.Flags().StringVar(&backup, "from-backup", "", "take the keys from this backup")
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
		p.Printf("keys of cluster %s are in %s; copy %s into the %s directory of one voter, and restart it\n",
			made.Cluster, made.Dir, keys.ClusterFile, keys.Dir)
	})
}

// caFile is --ca-file.
type caFile string

func (f *caFile) register(fl *pflag.FlagSet, env func(string) string) {
	fl.StringVar((*string)(f), "ca-file", env("CARILLON_CA_FILE"),
		"ca.pem of a secure cluster, if you have no token: a token names the CA itself (or CARILLON_CA_FILE)")
}

// option makes a client trust the CA, and no other.
func (f caFile) option() client.Option {
	h, err := keys.ReadCAFile("--ca-file", string(f))
	if err != nil {
		return client.WithError(err)
	}
	return client.WithTLSConfig(keys.ClientConfig(h))
}
