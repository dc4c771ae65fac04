package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Identity is who a node's certificate says that it is. Every part of it was checked by the leader that signed.
type Identity struct {
	Cluster  string
	Node     string
	Instance string // of the data directory: a wiped node has another one
	// Joined is a log entry at which the cluster had this instance under the id; 0: it began the cluster. Of two
	// instances of one id the one with the higher entry is the later one, which lets a node that was away while one was
	// replaced take the word of the certificate.
	Joined uint64
	// Voter is the log entry at which the cluster last said that this instance may vote; 0: it never did, or not to the
	// signer's knowledge. Raft's requests are accepted from certificates with it only. A voter signs its own: it is
	// never in one that a leader signs for a member that asks.
	Voter uint64
}

// FirstVoter is Voter of a node that begins a cluster. There is no log yet; its first entry is the configuration that
// the cluster begins with.
const FirstVoter = 1

const scheme = "carillon"

// URI is the identity as a certificate has it.
func (i Identity) URI() string {
	s := scheme + "://" + i.Cluster + "/node/" + url.PathEscape(i.Node) + "/" + url.PathEscape(i.Instance)
	mark := byte('?')
	for _, p := range i.params() {
		if *p.value != 0 {
			s += string(mark) + p.name + "=" + strconv.FormatUint(*p.value, 10)
			mark = '&'
		}
	}
	return s
}

type param struct {
	name  string
	value *uint64
}

// params are what comes behind the path of the URI if it is not 0, in this order.
func (i *Identity) params() []param { return []param{{"joined", &i.Joined}, {"voter", &i.Voter}} }

// ParseURI reads what URI wrote, and nothing else: there is one text for an identity.
func ParseURI(text string) (Identity, error) {
	bad := fmt.Errorf("%q does not name a node of a cluster", text)
	rest, ok := strings.CutPrefix(text, scheme+"://")
	if !ok {
		return Identity{}, bad
	}
	path, query, _ := strings.Cut(rest, "?")
	parts := strings.Split(path, "/")
	if len(parts) != 4 || parts[1] != "node" {
		return Identity{}, bad
	}
	i := Identity{Cluster: parts[0]}
	var err, err2 error
	i.Node, err = url.PathUnescape(parts[2])
	i.Instance, err2 = url.PathUnescape(parts[3])
	if err != nil || err2 != nil {
		return Identity{}, bad
	}
	for part := range strings.SplitSeq(query, "&") {
		name, text, _ := strings.Cut(part, "=")
		for _, p := range i.params() {
			if name == p.name {
				if *p.value, err = strconv.ParseUint(text, 10, 64); err != nil {
					return Identity{}, bad
				}
			}
		}
	}
	if i.check() != nil || i.URI() != text {
		return Identity{}, bad
	}
	return i, nil
}

// DNSName is the name that a TLS client asks a node for. It is a hash: ids may hold what no name may, and differ in
// case only.
func (i Identity) DNSName() string {
	sum := sha256.Sum256([]byte("carillon node\x00" + i.Node))
	return hex.EncodeToString(sum[:16]) + ".node.carillon.internal"
}

// check refuses what could not be written into a certificate.
func (i Identity) check() error {
	if err := checkCluster(i.Cluster); err != nil {
		return err
	}
	for _, s := range []string{i.Node, i.Instance} {
		if s == "" || len(s) > 255 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("%q cannot be the id or the instance of a node", s)
		}
	}
	return nil
}

// checkCluster: a cluster's id is the host of a URI, and x509 parses only what could be a name.
func checkCluster(id string) error {
	if id == "" || len(id) > 63 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" ||
		strings.HasPrefix(id, "-") || strings.HasSuffix(id, "-") {
		return errors.New("a cluster's id has up to 63 lower case letters, digits and dashes")
	}
	return nil
}
