// Package enroll is what is decided and made before a node runs: whether its cluster is a secure one, the join token
// that it was given, and keys that are made beforehand.
package enroll

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

// Mode decides whether a node is started as one of a secure cluster: one that others reach is, unless --insecure is
// given. advertise may be empty. An address that is advertised counts too: a listener on the loopback interface with
// another one has something before it that passes on what comes from elsewhere.
func Mode(secure, insecure bool, listen, advertise string) (bool, error) {
	switch {
	case secure && insecure:
		return false, job.Invalid("--insecure", "give one of them", "--secure and --insecure exclude each other")
	case secure:
		return true, nil
	case insecure:
		return false, nil
	}
	return !loopback(listen) || advertise != "" && !loopback(advertise), nil
}

// loopback says whether only this machine reaches an address. A name is not looked up: it may have another address
// tomorrow, and elsewhere.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Flags are those of a node about keys.
type Flags struct {
	secure, insecure bool
	token, tokenFile string
	keysFrom         string
	tlsCert, tlsKey  string
}

func (f *Flags) Register(fl *pflag.FlagSet) {
	fl.BoolVar(&f.secure, "secure", false, "TLS, certificates between nodes, and tokens for everybody else (default "+
		"unless --listen and --advertise are loopback addresses)")
	fl.BoolVar(&f.insecure, "insecure", false, "no TLS and no tokens, on purpose: everybody who can reach the port "+
		"may do everything")
	fl.StringVar(&f.token, "token", "", "join token of a secure cluster; other users of this machine can see it, so "+
		"--token-file is better (or CARILLON_TOKEN)")
	fl.StringVar(&f.tokenFile, "token-file", "", "file with the join token (or CARILLON_TOKEN_FILE)")
	fl.StringVar(&f.keysFrom, "keys-from", "", "directory that carillon cluster init wrote, with the keys to found "+
		"a secure cluster or the token to join it")
	fl.StringVar(&f.tlsCert, "tls-cert", "", "certificate for browsers from another CA, with its chain; shown to "+
		"clients that ask for its hosts; reloaded when it changes")
	fl.StringVar(&f.tlsKey, "tls-key", "", "key of --tls-cert")
}

// Settings are what the flags of a node say.
type Settings struct {
	Secure, Insecure bool
	From             string     // directory with keys
	Token            keys.Token // of a node that joins
	TLSCert, TLSKey  string     // files with what browsers see
}

// Settings read the flags of a node that listens on an address and advertises another one or none, and joins others or
// not.
func (f *Flags) Settings(env func(string) string, listen, advertise string, joins bool) (s Settings, err error) {
	if s.Secure, err = Mode(f.secure, f.insecure, listen, advertise); err != nil {
		return s, err
	}
	s.Insecure = f.insecure
	s.TLSCert, s.TLSKey = f.tlsCert, f.tlsKey
	if !s.Secure {
		if f.token != "" || f.tokenFile != "" || f.keysFrom != "" {
			return s, job.Invalid("--secure", "give --secure (and not --insecure), or leave out --token, "+
				"--token-file and --keys-from", "only a secure cluster has keys and join tokens")
		}
		return s, nil
	}
	s.From = f.keysFrom
	if joins {
		s.Token, err = f.joinToken(env)
	}
	return s, err
}

// joinToken is the token that a new node was given; none is no error here: a node that has joined needs none.
func (f *Flags) joinToken(env func(string) string) (keys.Token, error) {
	text, file := f.token, f.tokenFile
	if text == "" && file == "" {
		text, file = env("CARILLON_TOKEN"), env("CARILLON_TOKEN_FILE")
	}
	if text == "" && file == "" && f.keysFrom != "" {
		file = filepath.Join(f.keysFrom, keys.JoinTokenFile)
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			file = ""
		}
	}
	switch {
	case text != "" && file != "":
		return keys.Token{}, job.Invalid("--token-file", "give one of them",
			"both a token and a token file are given")
	case file != "":
		return keys.ReadTokenFile(keys.JoinToken, file)
	case text != "":
		return keys.ParseToken(keys.JoinToken, text)
	}
	return keys.Token{}, nil
}

// JoinLine is how the next node joins the cluster that a node with a data directory has begun, "" if that is over. The
// secret is for a terminal only: logs are kept.
func JoinLine(dir, addr string, terminal bool) string {
	path := filepath.Join(dir, keys.JoinTokenFile)
	fi, err := os.Stat(path)
	if err != nil || time.Since(fi.ModTime()) > time.Hour {
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
	if loopback(addr) { // then the others are on this machine, too
		how = "--secure " + how
	}
	return fmt.Sprintf("within the next hour, other nodes can join with: carillon server --node-id ID --listen "+
		"HOST:PORT --data-dir DIR --join %s %s", reached(addr), how)
}

// reached is an address that others can dial: this machine's name stands for a listener on all interfaces.
func reached(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return addr
	}
	name, err := os.Hostname()
	if err != nil {
		return addr
	}
	return net.JoinHostPort(name, port)
}

// Made is what `cluster init` did.
type Made struct {
	Dir     string `json:"dir"`
	Cluster string `json:"cluster_id"`
	CA      string `json:"ca"` // hash
}

// KeepKeys is what `cluster init --once` finds in a directory that holds keys already. What a crash left undone of them
// is done.
func KeepKeys(out string) (Made, bool, error) {
	if _, err := os.Stat(filepath.Join(out, keys.ClusterFile)); errors.Is(err, fs.ErrNotExist) {
		return Made{}, false, nil
	}
	a, err := keys.ReadAuthority(out)
	if err == nil {
		if _, missing := os.Stat(filepath.Join(out, keys.CAFile)); errors.Is(missing, fs.ErrNotExist) {
			err = a.Write(out, nil)
		}
	}
	if err != nil {
		return Made{}, false, job.Invalid("--out", "choose another directory, or put the keys back", "%v", err)
	}
	return Made{Dir: out, Cluster: a.Cluster(), CA: keys.HashOf(a.Cert).String()}, true, nil
}

// vacant refuses a directory that holds keys.
func vacant(out string) error {
	if _, err := os.Stat(filepath.Join(out, keys.ClusterFile)); !errors.Is(err, fs.ErrNotExist) {
		return job.Invalid("--out", "choose another directory: keys that are overwritten are lost",
			"%s holds keys already", out)
	}
	return nil
}

// KeysOfBackup writes the keys of a backup into a directory that has none.
func KeysOfBackup(backup io.Reader, passphrase []byte, out string) (Made, error) {
	var none Made
	locked, err := keys.ReadLocked(bufio.NewReader(backup))
	switch {
	case err == nil && locked == nil:
		err = errors.New("the backup contains no keys")
	case err == nil:
		if err := vacant(out); err != nil {
			return none, err
		}
	}
	if err != nil {
		return none, job.Invalid("--from-backup", "give a file that `carillon backup --with-keys` wrote", "%v", err)
	}
	all, err := locked.Open(passphrase)
	if err != nil {
		return none, err
	}
	if err := os.MkdirAll(out, 0o700); err != nil {
		return none, job.Invalid("--out", "choose another directory", "%v", err)
	}
	return Made{Dir: out, Cluster: locked.Cluster, CA: keys.HashOf(all.Current.Cert).String()},
		all.Write(out)
}

// MakeKeys makes the keys of a cluster and a join token in a directory that has none. The key of the CA comes after the
// token: with it the directory holds keys.
func MakeKeys(out, cluster string, now time.Time) (Made, error) {
	var none Made
	if err := vacant(out); err != nil {
		return none, err
	}
	if err := os.MkdirAll(out, 0o700); err != nil {
		return none, job.Invalid("--out", "choose another directory", "%v", err)
	}
	a, err := keys.NewAuthority(cluster, now)
	if err != nil {
		return none, err
	}
	t := a.JoinToken(keys.NewToken(keys.JoinToken, keys.Hash{}).ID)
	if err := keys.WriteFile(filepath.Join(out, keys.JoinTokenFile), []byte(t.Text()+"\n"), nil); err != nil {
		return none, err
	}
	if err := a.Write(out, nil); err != nil {
		return none, err
	}
	return Made{Dir: out, Cluster: cluster, CA: keys.HashOf(a.Cert).String()}, nil
}
