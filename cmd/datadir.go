package cmd

import (
	"cmp"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/compare"
	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

func (a *app) checkCmd() *cobra.Command {
	var against string
	c := &cobra.Command{
		Use: "check DATA-DIR", Short: "Verify the data directory of a stopped node",
		Args: cobra.ExactArgs(1),
		Long: `With --against it also asks a running node whether both states result from the same log entries, up to the
last one in the directory. A node can answer that for its last 16,384 entries since it started.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			checked, err := checkData(args[0])
			if err != nil {
				return err
			}
			found := checked.Problems
			var compared []compare.Result
			if against != "" && len(found) == 0 {
				a.addr = against
				if compared, err = compare.With(cmd.Context(), a.client(), checked.Ends); err != nil {
					return err
				}
				for _, c := range compared {
					if c.Result == compare.Differs {
						found = append(found, c.Text)
					}
				}
			}
			result := checkResult{args[0], len(found), append([]string{}, found...), compared}
			if err := a.result(cmd, result, func(p *printer) {
				for _, problem := range found {
					p.Printf("%s\n", problem)
				}
				if len(found) == 0 {
					p.Printf("%s is sound\n", args[0])
				}
				for _, c := range compared {
					if c.Result != compare.Differs {
						p.Printf("%s\n", c.Text)
					}
				}
			}); err != nil || len(found) == 0 {
				return err
			}
			return job.Errorf(job.CodeInternal, "before anything else, make a copy of the directory",
				"%s has %s", args[0], plural(len(found), "problem"))
		},
	}
	c.Flags().StringVar(&against, "against", "", "address of a running node to compare with")
	return c
}

type checkResult struct {
	DataDir  string           `json:"data_dir"`
	Problems int              `json:"problems"`
	Findings []string         `json:"findings"`
	Against  []compare.Result `json:"against,omitempty"`
}

// noDataDir is the answer to a command that was not told which directory to work on.
func noDataDir(remedy string) error {
	return job.Invalid("--data-dir", remedy, "which data directory?")
}

func (a *app) compactCmd() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use: "compact", Short: "Shrink the files of a stopped node by the space that deleted data left",
		Args: cobra.NoArgs,
		Long: `The node must not be running. Each file is rewritten next to the old one, compared with it, synced to disk and then put in its place, so the disk
needs room for a copy. You may interrupt the command at any time.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return noDataDir("give the directory of a node that is not running")
			}
			c, err := datadir.Compact(dir, nil)
			if err != nil {
				return err
			}
			return a.result(cmd, c, func(p *printer) {
				for _, f := range c.Files {
					if f.Kept {
						p.Printf("%s: %s, nothing to reclaim\n", f.Name, job.Bytes(f.Before))
					} else {
						p.Printf("%s: %s, was %s\n", f.Name, job.Bytes(f.After), job.Bytes(f.Before))
					}
				}
			})
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "directory of the node's state")
	return c
}

func (a *app) restoreCmd() *cobra.Command {
	var cfg datadir.RestoreConfig
	var withKeys bool
	var passphraseFile string
	c := &cobra.Command{
		Use: "restore FILE|-", Short: "Make a new cluster from a backup, on hold until it is released",
		Args: cobra.ExactArgs(1),
		Long: `Writes the data directory of the first node. Start it with ` + "`carillon server`" +
			` as usual, and let the others join it with empty data directories.

It is a new cluster with an id of its own, independent of the one that the backup was taken from, even if that still exists. It is on hold:
jobs can be read, edited, created and paused, but nothing runs. When you are certain that the old cluster no longer runs anything, run
` + "`carillon cluster release`" + `. What was due up to that moment is recorded as missed (restored), and the runs that were open in the backup as lost: the old cluster
may have done them. One-off jobs among them stay for at least 30 days and can be run by hand.

With --with-keys the keys of a secure cluster are restored too, from a backup that was taken with them: secrets can be read, and tokens (--keep-tokens)
and clients that know the old CA can connect to the new cluster, because the old CA vouches for the new one. Without them the cluster is plain until
` + "`carillon cluster init --data-dir`" + ` makes new keys; its secrets are listed as missing and have to be set again.

--epoch is needed only if the old cluster was itself recovered or restored after the backup was taken, or if the same backup is restored twice and
both clusters must give out different job ids and fences: give a number above the epoch of the other one.`,
		Example: "  carillon restore carillon.bak --data-dir /var/lib/carillon --node-id n1 --advertise n1:7400 \\\n" +
			"    --with-keys --passphrase-file pass.txt\n\n" +
			"  carillon restore carillon.bak --data-dir /var/lib/carillon --node-id n1 --advertise n1:7400\n" +
			"  carillon cluster init --data-dir /var/lib/carillon --out keys\n" +
			"  carillon server --node-id n1 --data-dir /var/lib/carillon --listen 10.0.0.1:7400 --keys-from keys\n" +
			"  carillon cluster release",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !withKeys && passphraseFile != "" {
				return usage("add --with-keys, or leave out --passphrase-file", "--passphrase-file needs --with-keys")
			}
			if withKeys {
				if args[0] == "-" && passphraseFile == "" {
					return job.Invalid("--passphrase-file", "give it in a file",
						"the passphrase cannot come from standard input: the backup does")
				}
				var err error
				if cfg.Passphrase, err = readPassphrase(cmd, passphraseFile, false); err != nil {
					return err
				}
			}
			return a.restore(cmd, args[0], cfg)
		},
	}
	c.Flags().StringVar(&cfg.DataDir, "data-dir", "", "directory to create; it must be empty or not exist")
	c.Flags().StringVar(&cfg.NodeID, "node-id", "", "id of the node")
	c.Flags().StringVar(&cfg.Advertise, "advertise", "",
		"host:port at which others will reach it (default 127.0.0.1:7400)")
	c.Flags().Uint64Var(&cfg.Epoch, "epoch", 0, "the lowest epoch to begin with (default: the one after the backup's)")
	c.Flags().BoolVar(&cfg.KeepTokens, "keep-tokens", false,
		"leave API tokens as they are in the backup: one that was revoked since then is valid again")
	c.Flags().BoolVar(&withKeys, "with-keys", false, "also restore the keys in the backup; needs their passphrase")
	c.Flags().StringVar(&passphraseFile, "passphrase-file", "",
		"with --with-keys: file with the passphrase (default: standard input)")
	return c
}

func (a *app) restore(cmd *cobra.Command, file string, cfg datadir.RestoreConfig) error {
	if cfg.DataDir == "" {
		return noDataDir("name a directory that does not exist or is empty")
	}
	if cfg.NodeID == "" {
		return job.Invalid("--node-id", "such as n1", "which node?")
	}
	cfg.Name, cfg.Version, cfg.Now = file, version().Version, a.now()
	var in io.Reader = cmd.InOrStdin()
	if file == "-" {
		cfg.Name = "standard input"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return job.Invalid("FILE", "give a file that `carillon backup` wrote", "%v", err)
		}
		defer f.Close()
		in = f
	}
	cfg.Backup, cfg.Advertise = in, cmp.Or(cfg.Advertise, client.DefaultAddr)
	r, err := datadir.Restore(cfg)
	if err != nil {
		return err
	}
	return a.result(cmd, r, func(p *printer) {
		p.Printf("%s is the data directory of %s, in the new cluster %s: %s as of %s, %s, epoch %d\n",
			r.DataDir, r.NodeID,
			r.ClusterID, plural(int(r.Jobs), "job"), p.When(r.At), plural(r.OpenRuns, "open run"), r.Epoch)
		secure := ""
		if r.Keys == datadir.KeysRestored {
			secure = " --secure --listen HOST:PORT"
		}
		carillon := output.Program()
		if r.Suspended > 0 { // until one is resumed, no token is good for anything
			carillon += " --addr unix:" + filepath.Join(r.DataDir, node.AdminSocket)
		}
		p.Printf("start it with `%s server --node-id %s --data-dir %s%s`; it is on hold until "+
			"`%s cluster release`\n", output.Program(), r.NodeID, r.DataDir, secure, carillon)
		p.renamed(r.Renamed)
		if r.Suspended > 0 {
			p.Printf("%s of the backup: suspended; `%s token resume ID` makes one valid again, or restore with "+
				"--keep-tokens\n", plural(r.Suspended, "token"), carillon)
		}
		switch {
		case r.Keys == datadir.KeysLeftOut:
			p.Printf("the keys in the backup were not restored; --with-keys restores them\n")
		case r.Keys == datadir.KeysNone && r.Secrets > 0:
			p.Printf("%s of the backup cannot be read without the keys of its cluster, and must be set again\n",
				plural(r.Secrets, "secret"))
		}
	})
}

// renamed are jobs whose name another one has.
func (p *printer) renamed(all []datadir.Renamed) {
	for _, x := range all {
		p.Printf("%s was renamed to %s and paused: %s has its name %s\n", x.Job, x.Name, x.Keeper, x.Was)
	}
}
