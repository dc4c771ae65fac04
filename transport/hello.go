package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/internal/lineage"
)

// Hello is how a node introduces itself before any Raft message.
type Hello struct {
	ClusterID  string
	Group      uint32 // the Raft group that the connection is for
	GroupID    string // drawn when the group was begun; of group 0 it is the cluster's id
	Epoch      uint64 // of the group
	Recovery   string // that began the epoch
	NodeID     string
	Replica    uint64 // which of the node's replicas of the group this is
	InstanceID string // of the data directory: a wiped node has another one
	Address    string // that it advertises: two copies of a directory cannot both be where the cluster thinks it is
	// Certificate is who the node is by its certificate; zero without TLS. It is not sent: the receiver fills it in.
	Certificate keys.Peer
	Index       uint64 // the log entry that last changed what the node knows of its membership; 0: nothing known
}

// Cluster is the history that the replica is of.
func (h *Hello) Cluster() lineage.Cluster {
	return lineage.Cluster{ID: h.ClusterID, Epoch: h.Epoch, Recovery: h.Recovery}
}

// Handshake is what a node says of itself and what it demands of others.
type Handshake struct {
	// Local returns this node's hello. It is asked for every connection, since
	// a node learns its cluster only when it joins.
	Local func() Hello

	// Check refuses a peer by returning an error. Its text is sent to the peer.
	Check func(Hello) error

	// Expect, if set, returns the id of the node that the Raft configuration
	// has at an address, "" if unknown; a dial that reaches another node fails.
	// Raft itself addresses messages to an address and never asks who answers:
	// were two names to lead to one server, its vote and its disk would count
	// twice.
	Expect func(address string) (nodeID string)
}

// RefusedError says that one of two nodes would not talk to the other.
type RefusedError struct {
	Peer   Hello  // as far as it is known
	ByPeer bool   // the peer refused us
	Reason string // in the words of who refused
	At     string // the address that was dialled; empty: the peer dialled
	Err    error  // what Check returned, if we refused
}

func (e *RefusedError) Error() string {
	if e.ByPeer {
		return fmt.Sprintf("transport: node %q (cluster %q) refused this node: %s",
			e.Peer.NodeID, e.Peer.ClusterID, e.Reason)
	}
	return fmt.Sprintf("transport: refused node %q (cluster %q): %s", e.Peer.NodeID, e.Peer.ClusterID, e.Reason)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// On the wire a message is a length of two bytes and that many bytes. Each side
// sends a hello and a verdict on the other's; both numbers are big-endian:
//
//	dialler   hello
//	acceptor         hello verdict
//	dialler                        verdict, and then Raft
//
// The second verdict costs no round trip, and thanks to it the acceptor knows
// why a dialler that did not like what it found went away.
const (
	helloVersion = 1
	maxMessage   = 2048
	maxString    = 255
	maxReason    = 512

	verdictWelcome = 0
	verdictRefused = 1
)

var (
	errMalformed = errors.New("transport: malformed handshake")
	errVersion   = errors.New("transport: unknown handshake version")
)

// appendHello encodes h: version, group, epoch, replica, index, and the strings with a
// length byte each. A later version may only add at the end.
func appendHello(b []byte, h Hello) ([]byte, error) {
	b = append(b, helloVersion)
	b = binary.BigEndian.AppendUint32(b, h.Group)
	for _, n := range []uint64{h.Epoch, h.Replica, h.Index} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	for _, s := range []string{h.ClusterID, h.Recovery, h.GroupID, h.NodeID, h.InstanceID, h.Address} {
		if len(s) > maxString {
			return nil, fmt.Errorf("transport: id of %d bytes in handshake", len(s))
		}
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	return b, nil
}

func decodeHello(b []byte) (Hello, error) {
	var h Hello
	if len(b) == 0 {
		return h, errMalformed
	}
	if b[0] != helloVersion {
		return h, fmt.Errorf("%w %d", errVersion, b[0])
	}
	if b = b[1:]; len(b) < 4+3*8 {
		return h, errMalformed
	}
	h.Group, b = binary.BigEndian.Uint32(b), b[4:]
	for _, n := range []*uint64{&h.Epoch, &h.Replica, &h.Index} {
		*n, b = binary.BigEndian.Uint64(b), b[8:]
	}
	for _, s := range []*string{&h.ClusterID, &h.Recovery, &h.GroupID, &h.NodeID, &h.InstanceID, &h.Address} {
		if len(b) == 0 || len(b)-1 < int(b[0]) {
			return Hello{}, errMalformed
		}
		n := 1 + int(b[0])
		*s, b = string(b[1:n]), b[n:]
	}
	return h, nil
}

// appendVerdict encodes what Check said.
func appendVerdict(b []byte, err error) []byte {
	if err == nil {
		return append(b, verdictWelcome)
	}
	b = append(b, verdictRefused)
	reason := strings.ToValidUTF8(err.Error(), "?")
	return append(b, reason[:min(len(reason), maxReason)]...)
}

func decodeVerdict(b []byte) (refused bool, reason string, err error) {
	switch {
	case len(b) == 1 && b[0] == verdictWelcome:
		return false, "", nil
	case len(b) >= 1 && b[0] == verdictRefused:
		// A stranger's words end up in a log.
		return true, strings.Map(printable, strings.ToValidUTF8(string(b[1:]), "?")), nil
	}
	return false, "", errMalformed
}

func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}

func appendMessage(b, msg []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(msg)))
	return append(b, msg...)
}

// readMessage reads exactly one message: what follows the last is Raft's.
func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint16(size[:])
	if n == 0 || n > maxMessage {
		return nil, errMalformed
	}
	msg := make([]byte, n)
	_, err := io.ReadFull(r, msg)
	return msg, err
}

// certified says whether a hello is that of the node whose certificate was
// shown. Without TLS there is nothing to compare.
func (h *Hello) certified(id keys.Peer) error {
	h.Certificate = id
	switch {
	case id == keys.Peer{}:
		return nil
	case h.NodeID != id.Node:
		return fmt.Errorf("it claims to be node %q, but its certificate is for node %q", h.NodeID, id.Node)
	case h.InstanceID != id.Instance:
		return fmt.Errorf("its certificate is for another data directory of node %q", id.Node)
	case h.ClusterID != id.Cluster:
		return fmt.Errorf("it claims to be in cluster %q, but its certificate is for cluster %q", h.ClusterID,
			id.Cluster)
	}
	return nil
}

// greet does the dialler's part of the handshake with the node whose
// certificate was shown, if any was. first, if any, is written before it in the
// same packet.
func greet(rw io.ReadWriter, first []byte, address string, shown keys.Peer, hs Handshake) error {
	hello, err := appendHello(nil, hs.Local())
	if err != nil {
		return err
	}
	if _, err := rw.Write(appendMessage(first, hello)); err != nil {
		return err
	}
	msg, err := readMessage(rw)
	if err != nil {
		return fmt.Errorf("transport: no handshake from %s: %w", address, err)
	}
	peer, helloErr := decodeHello(msg)
	if msg, err = readMessage(rw); err != nil {
		return fmt.Errorf("transport: no handshake from %s: %w", address, err)
	}
	refused, reason, err := decodeVerdict(msg)
	switch {
	case err != nil:
		return err
	case refused:
		if helloErr != nil || peer.certified(shown) != nil {
			peer.Certificate = keys.Peer{} // what it says of itself is nothing that its certificate bears out
		}
		return &RefusedError{Peer: peer, ByPeer: true, Reason: reason, At: address}
	}
	err = helloErr
	if err == nil {
		err = peer.certified(shown)
	}
	if err == nil && hs.Expect != nil {
		if want := hs.Expect(address); want != "" && want != peer.NodeID {
			err = fmt.Errorf("%s should be node %q", address, want)
		}
	}
	if err == nil {
		err = hs.Check(peer)
	}
	if _, werr := rw.Write(appendMessage(nil, appendVerdict(nil, err))); werr != nil && err == nil {
		return werr
	}
	if err != nil {
		return &RefusedError{Peer: peer, Reason: err.Error(), Err: err, At: address}
	}
	return nil
}

// readHello reads how a dialler introduces itself. It answers nothing.
func readHello(r io.Reader) (Hello, error) {
	msg, err := readMessage(r)
	if err != nil {
		return Hello{}, err
	}
	return decodeHello(msg)
}

// reply answers a hello with this node's own and with the verdict, which is err.
func reply(w io.Writer, local, peer Hello, err error) error {
	hello, lerr := appendHello(nil, local)
	if lerr != nil {
		return lerr
	}
	answer := appendMessage(nil, hello)
	answer = appendMessage(answer, appendVerdict(nil, err))
	_, werr := w.Write(answer)
	if err != nil {
		return &RefusedError{Peer: peer, Reason: err.Error(), Err: err}
	}
	return werr
}

// receive does the acceptor's part with a peer that said hello.
func receive(rw io.ReadWriter, peer Hello, shown keys.Peer, hs Handshake) error {
	err := peer.certified(shown)
	if err == nil {
		err = hs.Check(peer)
	}
	if err := reply(rw, hs.Local(), peer, err); err != nil {
		return err
	}
	msg, err := readMessage(rw)
	if err != nil {
		return err
	}
	refused, reason, err := decodeVerdict(msg)
	switch {
	case err != nil:
		return err
	case refused:
		return &RefusedError{Peer: peer, ByPeer: true, Reason: reason}
	}
	return nil
}
