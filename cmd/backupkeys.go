package cmd

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

type backupOptions struct {
	force, withKeys         bool
	dataDir, passphraseFile string
}

const maxPassphrase = 1024

// prepareKeys gets ready to take the keys of the node on this machine along: how they are locked, and that it is
// recorded. Its backup comes by the admin socket beside them, so that both are of one node.
func (a *app) prepareKeys(cmd *cobra.Command, o *backupOptions) ([]byte, error) {
	switch {
	case !o.withKeys && (o.dataDir != "" || o.passphraseFile != ""):
		return nil, usage("add --with-keys, or leave out --data-dir and --passphrase-file",
			"--data-dir and --passphrase-file need --with-keys")
	case !o.withKeys:
		return nil, nil
	case o.dataDir == "":
		return nil, noDataDir("name the data directory of the node on this machine: the keys are read from there")
	}
	socket := "unix:" + filepath.Join(o.dataDir, node.AdminSocket)
	if f := cmd.Flag("addr"); f != nil && f.Changed && !strings.HasPrefix(a.addr, "unix:") {
		return nil, job.Invalid("--addr", "leave out --addr: the admin socket in --data-dir is used",
			"keys are only read on the node's own machine, never over the network")
	} else if f == nil || !f.Changed {
		a.addr = socket
	}
	passphrase, err := readPassphrase(cmd, o.passphraseFile, true)
	if err != nil {
		return nil, err
	}
	if len(passphrase) < keys.MinPassphrase {
		return nil, job.Invalid("--passphrase-file", "use a longer one, for example several words",
			"a passphrase needs at least %d bytes: anyone who has the file "+
				"can try as many as they like", keys.MinPassphrase)
	}
	if _, err := datadir.ReadKeys(o.dataDir); err != nil {
		return nil, err
	}
	c := a.client()
	s, err := c.Status(cmd.Context())
	if err != nil {
		return nil, err
	}
	if err := c.NoteBackup(cmd.Context(), client.BackupNote{NodeID: s.Node, Keys: true}); err != nil {
		// Who reads the files needs no leave, and has to get at them when no leader is left.
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: the audit log has no record of these keys being backed up: %v\n", err)
	}
	return passphrase, nil
}

// readPassphrase reads what locks keys. It is never an argument: those are seen by everybody on the machine.
func readPassphrase(cmd *cobra.Command, file string, twice bool) ([]byte, error) {
	in := cmd.InOrStdin()
	f, isFile := in.(*os.File)
	var data []byte
	var err error
	switch {
	case file != "":
		if data, err = os.ReadFile(file); err != nil {
			return nil, job.Invalid("--passphrase-file", "give a file that can be read", "%v", err)
		}
	case isFile && term.IsTerminal(int(f.Fd())):
		prompt := func(text string) ([]byte, error) {
			fmt.Fprint(cmd.ErrOrStderr(), text)
			defer fmt.Fprintln(cmd.ErrOrStderr())
			return term.ReadPassword(int(f.Fd()))
		}
		if data, err = prompt("passphrase (not shown): "); err == nil && twice {
			var again []byte
			if again, err = prompt("once more: "); err == nil && !bytes.Equal(data, again) {
				return nil, usage("type the same one twice", "the two passphrases differ")
			}
		}
	default:
		data, err = io.ReadAll(io.LimitReader(in, maxPassphrase+3))
	}
	if err != nil {
		return nil, job.Invalid("--passphrase-file", "give a file that can be read", "%v", err)
	}
	data = bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	switch {
	case len(data) == 0:
		return nil, job.Invalid("--passphrase-file", "give it in a file, or on standard input",
			"there is no passphrase")
	case len(data) > maxPassphrase:
		return nil, job.Invalid("--passphrase-file", "give the passphrase alone",
			"a passphrase has at most %d bytes", maxPassphrase)
	}
	return data, nil
}
