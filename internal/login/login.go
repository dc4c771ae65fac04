// Package login keeps what `carillon login` found out, for the commands that follow: named contexts, each of which says
// where a cluster is, how it is recognised, and the API token for it.
package login

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/carillon-scheduler/carillon/internal/jobfile"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	// EnvName names the context to use instead of the current one.
	EnvName = "CARILLON_CONTEXT"
	// EnvDir is the directory of the file, instead of the usual one.
	EnvDir = "CARILLON_CONFIG_DIR"
	// DefaultName is the context that a login writes if none is named.
	DefaultName = "default"

	fileName = "config.yaml"
	maxFile  = 64 << 10
	// maxNesting is how many lists and maps in brackets a file may have: the parser takes minutes for thousands in each
	// other, and no login writes any.
	maxNesting = 100
)

// Context is a cluster as the commands reach it. The fields are named like the flags.
type Context struct {
	Addr      string `yaml:"addr"`              // one address, or several: a,b,c
	CA        string `yaml:"ca,omitempty"`      // the hash of the cluster's CA
	CAFile    string `yaml:"ca-file,omitempty"` // its certificate
	Token     string `yaml:"token,omitempty"`
	TokenFile string `yaml:"token-file,omitempty"`
	Namespace string `yaml:"namespace,omitempty"`
}

// Config is the file.
type Config struct {
	Current  string             `yaml:"current,omitempty"`
	Contexts map[string]Context `yaml:"contexts"`
}

// For is a context with a token; its zero value is none.
func For(addr string, t keys.Token) Context {
	c := Context{Addr: addr}
	if t.ID != "" {
		c.Token = t.Text()
	}
	if t.CA != (keys.Hash{}) {
		c.CA = t.CA.String()
	}
	return c
}

// File is where the contexts are; empty: nowhere.
func File(env func(string) string) string {
	if dir := env(EnvDir); dir != "" {
		return filepath.Join(dir, fileName)
	}
	dir := env("XDG_CONFIG_HOME")
	if dir == "" {
		home := cmp.Or(env("HOME"), env("USERPROFILE"))
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "carillon", fileName)
}

// Read is what was kept; nothing before a login. A file that others can read or write is refused: its tokens may be
// known to them, and its addresses may be theirs.
func Read(env func(string) string) (c Config, err error) {
	path := File(env)
	if path == "" {
		return c, nil
	}
	data, err := readOwn(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	var e *job.Error
	if errors.As(err, &e) {
		return c, err
	}
	if err == nil && bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) > maxNesting {
		err = errors.New("it has too many brackets")
	}
	if err == nil && len(bytes.TrimSpace(data)) > 0 {
		if err = jobfile.Unmarshal(data, path, &c); errors.As(err, &e) {
			return Config{}, err
		}
	}
	if err != nil {
		// The message of the parser quotes the lines around the mistake, and one of them may be a token.
		what, _, _ := strings.Cut(err.Error(), "\n")
		return Config{}, job.Invalid(path, "correct the file; or remove it, and log in again", "it cannot be read: %s",
			what)
	}
	for name, kept := range c.Contexts {
		if err := kept.check(path, name); err != nil {
			return Config{}, err
		}
	}
	return c, nil
}

func readOwn(path string) ([]byte, error) {
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() { // to open a pipe would wait for a writer
		return nil, errors.New("it is not a file")
	}
	dir := filepath.Dir(path)
	if fi, err := os.Stat(dir); err == nil && runtime.GOOS != "windows" && fi.Mode()&0o022 != 0 &&
		fi.Mode()&os.ModeSticky == 0 {
		return nil, job.Invalid(dir, "make it private: chmod 700 "+dir,
			"other users of this machine can replace the files in it (mode %04o)", fi.Mode().Perm())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case fi.Size() > maxFile:
		return nil, errors.New("it is too large")
	case runtime.GOOS != "windows" && fi.Mode().Perm()&0o077 != 0:
		return nil, job.Invalid(path, "make it private: chmod 600 "+path+
			"; replace tokens that others may have read",
			"other users of this machine can read or write it (mode %04o)", fi.Mode().Perm())
	}
	data := make([]byte, fi.Size())
	n, err := f.Read(data)
	if n == len(data) {
		err = nil
	}
	return data[:n], err
}

// check refuses what no login writes.
func (c Context) check(path, name string) error {
	wrong := func(remedy, what string) error {
		return job.Invalid(path, remedy, "context %q: %s", name, what)
	}
	switch {
	case !validName.MatchString(name):
		return wrong(nameRemedy, "it is not a valid name")
	case c.Token != "" && c.TokenFile != "":
		return wrong("keep one of them", "it has token and token-file")
	case c.CA != "" && c.CAFile != "":
		return wrong("keep one of them", "it has ca and ca-file")
	}
	for _, addr := range addresses(c.Addr) {
		if path, ok := strings.CutPrefix(addr, "unix:"); ok && !filepath.IsAbs(path) {
			return wrong("write the whole path", "addr: the socket of "+addr+" would depend on the current directory")
		}
	}
	for field, path := range map[string]string{"ca-file": c.CAFile, "token-file": c.TokenFile} {
		if path != "" && !filepath.IsAbs(path) {
			return wrong("write the whole path", field+": the file would depend on the current directory")
		}
	}
	if c.CA != "" {
		if _, err := keys.ParseHash(c.CA); err != nil {
			return wrong("log in again, or give ca-file", "ca: "+err.Error())
		}
	}
	if c.Namespace != "" {
		if err := job.CheckNamespace(c.Namespace); err != nil {
			return wrong("correct it", err.Error())
		}
	}
	return nil
}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

const nameRemedy = "use letters, digits, dots, dashes and underscores, at most 63"

// CheckName refuses what no context can be called. field is where the name was given.
func CheckName(field, name string) error {
	if !validName.MatchString(name) {
		return job.Invalid(field, nameRemedy, "%q cannot be the name of a context", name)
	}
	return nil
}

// Names are those of all contexts, in order.
func (c Config) Names() []string { return slices.Sorted(maps.Keys(c.Contexts)) }

// Get is the context of a name.
func (c Config) Get(name string) (Context, error) {
	kept, ok := c.Contexts[name]
	if !ok {
		return kept, job.Errorf(job.CodeNotFound, c.remedy(name), "there is no context %q", name)
	}
	return kept, nil
}

// Choose is the context that a command uses: the one that is named, or else the current one, or none.
func (c Config) Choose(name string) (Context, error) {
	if name == "" && c.Current == "" {
		return Context{}, nil
	}
	kept, err := c.Get(cmp.Or(name, c.Current))
	if err != nil { // that a thing was not found would be said of what the command asked for
		return kept, job.Invalid("--context", c.remedy(cmp.Or(name, c.Current)), "there is no context %q",
			cmp.Or(name, c.Current))
	}
	return kept, nil
}

func (c Config) remedy(name string) string {
	how := "`carillon login ADDR --context " + name + "` makes it"
	if len(c.Contexts) == 0 {
		return how
	}
	return "there are " + strings.Join(c.Names(), ", ") + "; " + how
}

// Covers says whether all of some addresses are the context's: a token is shown to no other.
func (c Context) Covers(addr string) bool {
	own := addresses(c.Addr)
	return addr != "" && !slices.ContainsFunc(addresses(addr), func(s string) bool { return !slices.Contains(own, s) })
}

// Absolute is a list of addresses with the whole paths of its sockets: a context is used in every directory.
func Absolute(addr string) (string, error) {
	all := addresses(addr)
	for i, s := range all {
		if path, ok := strings.CutPrefix(s, "unix:"); ok {
			path, err := filepath.Abs(path)
			if err != nil {
				return "", err
			}
			all[i] = "unix:" + path
		}
	}
	return strings.Join(all, ","), nil
}

func addresses(list string) (all []string) {
	for s := range strings.SplitSeq(list, ",") {
		all = append(all, strings.TrimSpace(s))
	}
	return all
}

// Write keeps the contexts, readable for their owner only. The file is the old or the new one, never a part of either.
func (c Config) Write(path string) (err error) {
	data, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, fileName+".*") // for its owner only; two logins at a time have one each
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name()) //nolint:errcheck // the first error counts
	}
	return err
}
