package datadir

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// unlock takes the keys off the beginning of a backup, and opens them if they are asked for. had says what becomes of
// them otherwise.
func (c *RestoreConfig) unlock(in *bufio.Reader) (held *keys.Authorities, had string, err error) {
	locked, err := keys.ReadLocked(in)
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("%s: %w; get another copy of it", c.Name, err)
	case locked == nil && c.Passphrase == nil:
		return nil, KeysNone, nil
	case locked == nil:
		return nil, "", job.Invalid("--passphrase-file", "leave it out, or give a backup that was taken with "+
			"--with-keys", "%s has no keys", c.Name)
	case c.Passphrase == nil:
		return nil, KeysLeftOut, nil
	}
	all, err := locked.Open(c.Passphrase)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", c.Name, err)
	}
	return &all, "", nil
}

// refoundKeys makes the keys of the new cluster, and what its state says of them. The CA of the old cluster vouches for
// the new one, and its former ones for it.
func (d *Dir) refoundKeys(held keys.Authorities, old store.Security, now time.Time,
	r *Restored) (s store.Security, err error) {
	text := old.CA
	if old.Rotation != nil && old.Rotation.Distrust { // then that one is not trusted any more, and this is final
		text = old.Rotation.CA
	}
	of, err := keys.ParseHash(text)
	if err != nil {
		return s, err
	}
	all, cross, err := held.Refound(r.ClusterID, of, now)
	if err != nil {
		return s, err
	}
	if err := all.Write(d.File(keys.Dir)); err != nil {
		return s, withRoom(err)
	}
	if err := d.newKey(); err != nil {
		return s, withRoom(err)
	}
	was := all.Former[0].Cert
	s = store.Security{CA: keys.HashOf(all.Current.Cert).String(), Cert: all.Current.Cert.Raw,
		Former: []store.FormerCA{{CA: keys.HashOf(was).String(), Cert: was.Raw, Cross: cross}}}
	if text == old.CA {
		s.Former = append(s.Former, slices.DeleteFunc(slices.Clone(old.Former),
			func(f store.FormerCA) bool { return f.Aborted })...)
		s.Former = s.Former[:min(len(s.Former), keys.MaxFormer)]
	}
	r.Keys, r.CA = KeysRestored, s.CA
	return s, nil
}

// newKey gives the node a key where it has none: one that has a cluster does not start without.
func (d *Dir) newKey() error {
	ring, err := keys.OpenRing(d.File(keys.Dir), nil)
	if err != nil {
		return err
	}
	_, err = ring.Key()
	return err
}

// ReadKeys reads the keys of the cluster from the data directory of a voter, which may be running.
func ReadKeys(dir string) (keys.Authorities, error) {
	s, err := keys.ReadAuthorities(filepath.Join(dir, keys.Dir))
	if err != nil {
		return s, job.Invalid("--data-dir", "name the data directory of a secure cluster's voter on this machine, "+
			"and run this as a user who may read it", "its keys cannot be read: %v", err)
	}
	return s, nil
}

// WriteKeys puts the keys of a running node, locked by a passphrase, in front of its backup. It takes them from the
// files of its data directory; again says whether they are still the same when the backup is complete.
func WriteKeys(w io.Writer, dir string, passphrase []byte, cost keys.Cost) (again func() error, err error) {
	read := func() (keys.Authorities, []byte, error) {
		s, err := ReadKeys(dir)
		if err != nil {
			return s, nil, err
		}
		data, err := s.Encode()
		return s, data, err
	}
	s, before, err := read()
	if err != nil {
		return nil, err
	}
	text, err := s.Lock(passphrase, cost)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	return func() error {
		if _, after, err := read(); err != nil || !slices.Equal(before, after) {
			return job.Errorf(job.CodeUnavailable, "try again when `carillon status` shows no rotation",
				"the keys of the cluster changed while the backup was taken")
		}
		return nil
	}, nil
}
