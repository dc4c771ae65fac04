package cmd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// secureByDefault says that a listener which others reach has TLS unless --insecure is given.
const secureByDefault = false

// secureMode decides whether a node is started as one of a secure cluster. strict is secureByDefault, which tests give.
func secureMode(secure, insecure bool, listen string, strict bool) (bool, error) {
	switch {
	case secure && insecure:
		return false, job.Invalid("--insecure", "give one of them", "--secure and --insecure exclude each other")
	case secure:
		return true, nil
	case insecure:
		return false, nil
	}
	return strict && !loopback(listen), nil
}

// loopback says whether only this machine reaches a listener. A name is not asked for its address: it may have another
// one tomorrow.
func loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// secureFlags are those of a node about keys.
type secureFlags struct {
	secure, insecure bool
	token, tokenFile string
	keysFrom         string
}

func (f *secureFlags) register(fl *pflag.FlagSet) {
	fl.BoolVar(&f.secure, "secure", false, "TLS, certificates between nodes, and tokens for everybody else")
	fl.BoolVar(&f.insecure, "insecure", false, "no TLS and no tokens, on purpose: everybody who reaches the port may "+
		"do everything")
	fl.StringVar(&f.token, "token", "", "join token of a secure cluster; others on this machine can see it, so rather "+
		"use --token-file (or CARILLON_TOKEN)")
	fl.StringVar(&f.tokenFile, "token-file", "", "file with the join token (or CARILLON_TOKEN_FILE)")
	fl.StringVar(&f.keysFrom, "keys-from", "", "directory that `carillon cluster init` wrote: keys to begin a secure "+
		"cluster with, or the token to join it")
}

// settings read the flags.
func (f *secureFlags) settings(env func(string) string, cfg *ServerConfig) (err error) {
	if cfg.Secure, err = secureMode(f.secure, f.insecure, cfg.Listen, secureByDefault); err != nil {
		return err
	}
	cfg.Insecure = f.insecure
	if !cfg.Secure {
		if f.token != "" || f.tokenFile != "" || f.keysFrom != "" {
			return job.Invalid("--secure", "give it, or leave --token, --token-file and --keys-from out",
				"only a secure cluster has keys and join tokens")
		}
		return nil
	}
	cfg.Keys = node.KeysConfig{On: true, From: f.keysFrom}
	if len(cfg.Join) == 0 {
		return nil
	}
	cfg.Keys.Token, err = f.joinToken(env)
	return err
}

// joinToken is the token that a new node was given; none is no error here: a node that has joined needs none.
func (f *secureFlags) joinToken(env func(string) string) (keys.Token, error) {
	text, file := f.token, f.tokenFile
	if text == "" && file == "" {
		text, file = env("CARILLON_TOKEN"), env("CARILLON_TOKEN_FILE")
	}
	if text == "" && file == "" && f.keysFrom != "" {
		file = filepath.Join(f.keysFrom, node.JoinTokenFile)
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			file = ""
		}
	}
	switch {
	case text != "" && file != "":
		return keys.Token{}, job.Invalid("--token-file", "give one of them",
			"there is a token, and a file with a token")
	case file != "":
		return keys.ReadTokenFile(keys.JoinToken, file)
	case text != "":
		return keys.ParseToken(keys.JoinToken, text)
	}
	return keys.Token{}, nil
}

// joinLine is how the next node joins, "" if that is over. The secret is for a terminal only: logs are kept.
func joinLine(cfg ServerConfig, addr string, terminal bool) string {
	path := filepath.Join(cfg.DataDir, node.JoinTokenFile)
	fi, err := os.Stat(path)
	if !cfg.Secure || !cfg.Bootstrap || err != nil || time.Since(fi.ModTime()) > time.Hour {
		return ""
	}
	how := "--token-file " + path
	if terminal {
		t, err := keys.ReadTokenFile(keys.JoinToken, path)
		if err != nil {
			return ""
		}
		how = "--token " + t.Text()
	}
	return fmt.Sprintf("within an hour, others join it with: carillon server --node-id ID --listen HOST:PORT "+
		"--data-dir DIR --secure --join %s %s", addr, how)
}

func (a *app) joinTokenCmd() *cobra.Command {
	return group("token", "Make, list and revoke the tokens that nodes join a secure cluster with",
		a.joinTokenCreateCmd(), a.joinTokenListCmd(),
		askAbout(a, "revoke ID", "Revoke a join token; nodes that joined with it stay",
			(*client.Client).RevokeJoinToken,
			func(p *printer, t client.JoinToken) { p.printf("%s lets no more nodes in\n", t.ID) }))
}

func (a *app) joinTokenCreateCmd() *cobra.Command {
	var ttl time.Duration
	var uses int
	c := &cobra.Command{
		Use: "create", Short: "Make a join token", Args: cobra.NoArgs,
		Long: "The text of the token goes to standard output, and nothing else does. Give it to the new node with " +
			"--token-file, CARILLON_TOKEN or --token. It contains the hash of the cluster's CA, so that the node " +
			"sends nothing to anybody else.",
		Example: "  carillon cluster token create > n2.token\n  carillon cluster token create --uses 5 --ttl 24h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			rq := client.JoinTokenRequest{TTL: job.Duration(ttl), Uses: uses}
			return ask(a, cmd, func(c *client.Client, ctx context.Context) (client.JoinTokenCreated, error) {
				return c.CreateJoinToken(ctx, rq)
			}, func(p *printer, t client.JoinTokenCreated) { p.printf("%s\n", t.Text) })
		},
	}
	c.Flags().DurationVar(&ttl, "ttl", time.Hour, "how long it lets nodes in")
	c.Flags().IntVar(&uses, "uses", 1, "how many nodes may join with it")
	return c
}

func (a *app) joinTokenListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the join tokens, without their texts", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(a, cmd, (*client.Client).JoinTokens, func(p *printer, all []client.JoinToken) {
				var t table
				t.row("JOIN TOKEN", "STATUS", "USED", "EXPIRES", "BY")
				for _, j := range all {
					t.row(j.ID, j.Status, fmt.Sprintf("%d of %d", j.Used, j.Uses), j.ExpiresAt.String(),
						dash(j.CreatedBy))
				}
				p.table(t)
			})
		},
	}
}

func (a *app) initCmd() *cobra.Command {
	var out, dir string
	c := &cobra.Command{
		Use: "init", Short: "Make the keys of a secure cluster before it is begun", Args: cobra.NoArgs,
		Long: `Writes the CA with its key and the cluster key (cluster.pem), the CA's certificate for clients (ca.pem)
and a join token (join.token) into a directory, for those who start nodes unattended. Start the first
node with --bootstrap --secure --keys-from DIR, the others with --join ADDR --secure --keys-from DIR.
Who has cluster.pem can do everything: give the others join.token only if you can.

With --data-dir it makes the keys for the cluster of that node, which is not secure yet and not running:
stop all nodes, and start every one with --secure --keys-from DIR.`,
		Example: "  carillon cluster init --out keys\n  carillon cluster init --data-dir /var/lib/carillon --out keys",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return job.Invalid("--out", "name a directory that does not exist yet", "where should the keys go?")
			}
			id := strings.ToLower(rand.Text())
			if dir != "" {
				var err error
				if id, err = datadir.ClusterOf(dir, slog.New(slog.NewTextHandler(io.Discard, nil))); err != nil {
					return err
				}
			}
			made, err := makeKeys(out, id, a.now())
			if err != nil {
				return err
			}
			return a.result(cmd, made, func(p *printer) {
				p.printf("keys of cluster %s are in %s; the join token lets nodes in for an hour from its beginning\n",
					made.Cluster, made.Dir)
			})
		},
	}
	c.Flags().StringVar(&out, "out", "", "directory to write them into")
	c.Flags().StringVar(&dir, "data-dir", "", "directory of a node that is not running, to make its cluster secure")
	return c
}

// madeKeys is what `cluster init` did.
type madeKeys struct {
	Dir     string `json:"dir"`
	Cluster string `json:"cluster_id"`
	CA      string `json:"ca"` // hash
}

func makeKeys(out, cluster string, now time.Time) (madeKeys, error) {
	var none madeKeys
	if _, err := os.Stat(filepath.Join(out, keys.ClusterFile)); !errors.Is(err, fs.ErrNotExist) {
		return none, job.Invalid("--out", "choose another directory: keys that are overwritten are lost",
			"%s holds keys already", out)
	}
	if err := os.MkdirAll(out, 0o700); err != nil {
		return none, job.Invalid("--out", "choose another directory", "%v", err)
	}
	a, err := keys.NewAuthority(cluster, now)
	if err != nil {
		return none, err
	}
	t := a.JoinToken(keys.NewToken(keys.JoinToken, keys.Hash{}).ID)
	if err := keys.WriteFile(filepath.Join(out, node.JoinTokenFile), []byte(t.Text()+"\n"), nil); err != nil {
		return none, err
	}
	if err := a.Write(out, nil); err != nil {
		return none, err
	}
	return madeKeys{Dir: out, Cluster: cluster, CA: keys.HashOf(a.Cert).String()}, nil
}

// caFile is --ca-file.
type caFile string

func (f *caFile) register(fl *pflag.FlagSet, env func(string) string) {
	fl.StringVar((*string)(f), "ca-file", env("CARILLON_CA_FILE"),
		"ca.pem of a secure cluster, for who has no token of it (or CARILLON_CA_FILE)")
}

// option makes a client trust the CA, and nobody else.
func (f caFile) option() client.Option {
	h, err := keys.ReadCAFile("--ca-file", string(f))
	if err != nil {
		return client.WithError(err)
	}
	return client.WithTLSConfig(keys.ClientConfig(h))
}
