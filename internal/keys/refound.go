package keys

import (
	"errors"
	"path/filepath"
	"time"
)

// Refound makes the keys of a cluster that a backup founded, out of those of the cluster that the backup is from, whose
// CA has the hash of. They are new: nodes of the two must not take each other for members. But the old CA signs the new
// one, in DER, so that clients and tokens that know the old one find the new cluster; and what was sealed with the old
// cluster keys opens, which is all that those are good for.
func (s Authorities) Refound(cluster string, of Hash, now time.Time) (out Authorities, cross []byte, err error) {
	old := s.Of(of)
	if old == nil || old.key == nil {
		return out, nil, errors.New("the keys do not belong to the state: take another backup")
	}
	next, err := NewAuthority(cluster, now)
	if err != nil {
		return out, nil, err
	}
	if cross, err = old.cross(next.Cert); err != nil {
		return out, nil, err
	}
	out = Authorities{Current: next, Former: []*Authority{old.retired(true)}}
	for _, a := range append([]*Authority{s.Current, s.Next}, s.Former...) {
		if a != nil && a != old && len(out.Former) < MaxFormer {
			out.Former = append(out.Former, a.retired(true))
		}
	}
	return out, cross, nil
}

// Write puts the authorities into a keys directory that has none.
func (s Authorities) Write(dir string) error {
	if err := s.write(dir, nil); err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, CAFile), encode(blockCert, s.Current.Cert.Raw), nil)
}
