package cmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/carillon-scheduler/carillon/cmd/output"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/terminal"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/store"
)

// backupResult is what --json prints.
type backupResult struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	datadir.Backup
	AgeMS int64 `json:"age_ms"`
	Keys  bool  `json:"keys,omitempty"` // it has those of the cluster
}

func (a *app) backupCmd() *cobra.Command {
	var o backupOptions
	c := &cobra.Command{
		Use: "backup FILE|-", Short: "Back up the state of a running node",
		Args: cobra.ExactArgs(1),
		Long: `Takes a consistent copy of the state of the node at --addr, which may be the leader or not and keeps working meanwhile. The file appears under
its name only when it is complete, verified and synced to disk. With - the copy goes to standard output and the summary to standard error: check
the exit code.

A secure cluster keeps its keys in files on its voters, and its secrets are encrypted with them. --with-keys includes the keys in the backup,
encrypted with a passphrase. They are read from the data directory and never go over the network, so run this on the machine of a voter, as a
user who may read them.

Restore it with ` + "`carillon restore`.",
		Example: "  carillon backup /backup/carillon-$(date +%F).bak\n" +
			"  carillon backup - --addr n2:7400 | zstd > carillon.bak.zst\n" +
			"  carillon backup carillon.bak --with-keys --data-dir /var/lib/carillon --passphrase-file pass.txt",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.backup(cmd, args[0], &o)
		},
	}
	c.Flags().BoolVar(&o.force, "force", false, "replace FILE if it exists")
	c.Flags().BoolVar(&o.withKeys, "with-keys", false,
		"include the keys of a secure cluster, encrypted with a passphrase; only on the machine of a voter")
	c.Flags().StringVar(&o.dataDir, "data-dir", "", "with --with-keys: the data directory of the node on this machine")
	c.Flags().StringVar(&o.passphraseFile, "passphrase-file", "",
		"with --with-keys: file with the passphrase (default: standard input)")
	return c
}

func (a *app) backup(cmd *cobra.Command, file string, o *backupOptions) error {
	force := o.force
	summary := cmd.OutOrStdout()
	if file == "-" {
		if terminal.Is(summary) {
			return usage("name a file, or pipe it into another command", "a backup is not written to a terminal")
		}
		summary = cmd.ErrOrStderr()
	} else if err := free(file, force); err != nil {
		return err
	}
	passphrase, err := a.prepareKeys(cmd, o)
	if err != nil {
		return err
	}
	info, body, err := a.client().Backup(cmd.Context())
	if err != nil {
		return err
	}
	defer body.Close()
	r := backupResult{File: file, Bytes: info.Size, AgeMS: info.Age.Milliseconds(), Keys: o.withKeys}
	take := func(w io.Writer) (err error) {
		if o.withKeys {
			same, err := datadir.WriteKeys(w, o.dataDir, passphrase, keys.DefaultCost)
			if err != nil {
				return err
			}
			if r.Backup, err = datadir.CopyBackup(w, body); err == nil {
				return same()
			}
		} else {
			r.Backup, err = datadir.CopyBackup(w, body)
		}
		if err != nil && cmd.Context().Err() != nil {
			return cmd.Context().Err()
		}
		var disk *fs.PathError
		switch {
		case errors.As(err, &disk):
			return job.Errorf(job.CodeInternal, "make room, or write it elsewhere",
				"the backup is not complete: %v", err)
		case err != nil:
			return job.Errorf(job.CodeUnavailable, "try again", "the backup is not complete: %v", err)
		}
		return nil
	}
	if file == "-" {
		err = take(cmd.OutOrStdout())
	} else {
		err = writeWhole(file, force, take)
	}
	if err != nil {
		return err
	}
	if a.json {
		return output.JSON(summary, r)
	}
	_, err = fmt.Fprintf(summary, "%s: %s, %s, entry %d of cluster %s, %s\n", file, plural(int(r.Jobs), "job"),
		job.Bytes(r.Bytes), r.Index, r.ClusterID, ageOf(info.Age))
	return err
}

func ageOf(d time.Duration) string {
	if d < time.Second {
		return "current"
	}
	return output.Coarse(d) + " behind the leader"
}

// free refuses a name that is taken.
func free(file string, force bool) error {
	fi, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if dir, err := os.Stat(filepath.Dir(file)); err != nil || !dir.IsDir() {
			return usage("create it first", "there is no directory %s", filepath.Dir(file))
		}
		return nil
	case err != nil:
		return err
	case fi.Mode().IsRegular() && force:
		return nil
	case fi.Mode().IsRegular():
		return job.Errorf(job.CodeState, "choose another name, or replace it with --force", "%s exists already", file)
	}
	return usage("name a file, or - for standard output", "%s is not a regular file", file)
}

// writeWhole puts a file in place when it is complete and durable, or leaves nothing. The file has a name of its own
// until then: two backups at a time must not write into one.
func writeWhole(file string, force bool, write func(io.Writer) error) (err error) {
	dir := filepath.Dir(file)
	f, err := os.CreateTemp(dir, filepath.Base(file)+".*.tmp")
	if err != nil {
		return err
	}
	tmp := f.Name()
	defer os.Remove(tmp) // gone already if all went well
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = cmp.Or(err, f.Close()); err == nil {
		err = place(tmp, file, force)
	}
	if err != nil {
		return err
	}
	return store.SyncDir(dir)
}

// place gives a file its name. Without force it never takes the place of one that appeared meanwhile.
func place(tmp, file string, force bool) error {
	if force {
		return os.Rename(tmp, file)
	}
	err := os.Link(tmp, file)
	if err == nil {
		return nil
	}
	if err := free(file, false); err != nil {
		return err
	}
	return os.Rename(tmp, file) // a file system without links
}
