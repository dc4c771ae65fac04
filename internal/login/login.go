// Package login keeps what `carillon login` found out, for the commands that follow: where a cluster is, and the API
// token for it.
package login

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

// Env names another file than the usual one.
const Env = "CARILLON_CONTEXT"

// Context is what is kept.
type Context struct {
	Addr  string `json:"addr"`
	CA    string `json:"ca,omitempty"` // the hash of the cluster's CA
	Token string `json:"token,omitempty"`
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

// File is where the context is; empty: nowhere.
func File(env func(string) string) string {
	if path := env(Env); path != "" {
		return path
	}
	dir := env("XDG_CONFIG_HOME")
	if dir == "" {
		home := cmp.Or(env("HOME"), env("USERPROFILE"))
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "carillon", "context.json")
}

// Read is what was kept; nothing before a login.
func Read(env func(string) string) (c Context, err error) {
	path := File(env)
	if path == "" {
		return c, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		return c, job.Invalid(Env, "remove the file, and log in again", "%s cannot be read: %v", path, err)
	}
	return c, nil
}

// Write keeps a context, readable for its owner only.
func Write(path string, c Context) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return keys.WriteFile(path, append(data, '\n'), nil)
}
