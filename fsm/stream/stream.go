// Package stream is the state of a group on its way: what stands before it, and how what arrives is held against that.
package stream

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/store"
)

// Header stands before the state in a snapshot stream.
type Header struct {
	Format    int    `json:"format"`
	Index     uint64 `json:"index"` // the last entry in the state: at or past the last command of the snapshot
	Term      uint64 `json:"term"`
	Chain     uint64 `json:"chain"` // the hash over all entries in it
	ClusterID string `json:"cluster_id"`
	Group     uint32 `json:"group"`
	Epoch     uint64 `json:"epoch"`
	Recovery  string `json:"recovery,omitempty"`
	Size      int64  `json:"size"` // of the state that follows
	Sum       uint32 `json:"sum"`  // its CRC-32C

	// Groups is how many groups of jobs a cluster with several has. In a backup their states follow, in order.
	Groups uint32 `json:"groups,omitempty"`

	// For people, and to refuse early; the state itself says the same.
	Level int    `json:"level,omitempty"`
	Jobs  uint64 `json:"jobs,omitempty"`
	Mark  int64  `json:"mark,omitempty"` // the highest stamp in it, ms: of what time it is
}

var magic = [8]byte{'C', 'A', 'R', 'I', 'L', 'L', 'O', 'N'}

const maxHeader = 1 << 16

// Cluster is the history that the state is of.
func (h *Header) Cluster() lineage.Cluster {
	return lineage.Cluster{ID: h.ClusterID, Epoch: h.Epoch, Recovery: h.Recovery}
}

// Encode is the header as it stands in a stream: the magic, its length, its JSON, and the CRC-32C of length and JSON.
func (h Header) Encode() []byte {
	data, err := json.Marshal(h)
	if err != nil {
		panic(err) // plain fields only
	}
	b := binary.BigEndian.AppendUint32(magic[:], uint32(len(data)))
	b = append(b, data...)
	return binary.BigEndian.AppendUint32(b, headerSum(b[len(magic):]))
}

func headerSum(b []byte) uint32 {
	sum := store.NewSum()
	sum.Write(b)
	return sum.Sum32()
}

// ReadHeader takes the header off a snapshot stream.
func ReadHeader(r io.Reader) (Header, error) {
	var h Header
	var fixed [12]byte
	if _, err := io.ReadFull(r, fixed[:]); err != nil {
		return h, fmt.Errorf("fsm: snapshot header: %w", err)
	}
	n := binary.BigEndian.Uint32(fixed[8:])
	if [8]byte(fixed[:8]) != magic || n > maxHeader {
		return h, errors.New("fsm: this is not a Carillon snapshot")
	}
	data := make([]byte, n+4)
	if _, err := io.ReadFull(r, data); err != nil {
		return h, fmt.Errorf("fsm: snapshot header: %w", err)
	}
	said := binary.BigEndian.Uint32(data[n:])
	data = data[:n]
	if sum := headerSum(slices.Concat(fixed[len(magic):], data)); sum != said {
		return h, fmt.Errorf("fsm: the snapshot header is damaged: its checksum is %08x, and it says %08x", sum, said)
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return h, fmt.Errorf("fsm: snapshot header: %w", err)
	}
	if h.Format != store.Format {
		return h, fmt.Errorf("fsm: the snapshot has format %d, and this binary reads format %d: use the carillon "+
			"that wrote it", h.Format, store.Format)
	}
	return h, nil
}

// Body copies the state that follows a header and holds it against that: a stream that was cut off or changed on
// its way never gets to bbolt, which would not survive it.
func (h Header) Body(w io.Writer, r io.Reader) error {
	sum := store.NewSum()
	n, err := io.Copy(io.MultiWriter(w, sum), r)
	if err != nil {
		return err
	}
	if n != h.Size || sum.Sum32() != h.Sum {
		return fmt.Errorf("the snapshot is damaged: it has %d bytes with checksum %08x, and its header says %d with "+
			"%08x",
			n, sum.Sum32(), h.Size, h.Sum)
	}
	return nil
}

// Copy copies a snapshot stream whole and verifies it on the way.
func Copy(w io.Writer, r io.Reader) (Header, error) {
	h, err := ReadHeader(io.TeeReader(r, w))
	if err != nil {
		return h, err
	}
	return h, h.Body(w, r)
}

// WriteState makes a state file of what follows a header in a stream. It is verified and durable, or it is not there.
func (h Header) WriteState(path string, r io.Reader) error {
	return WriteSynced(path, func(w io.Writer) error { return h.Body(w, r) })
}

// WriteSynced makes a file durable, or leaves none.
func WriteSynced(path string, write func(io.Writer) error) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		err = cmp.Or(err, f.Close())
		if err != nil {
			os.Remove(path)
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	return f.Sync()
}

// Open makes a pinned copy of the state and returns it as a snapshot stream of exactly size bytes: for a follower, or
// for a backup. dir is where the copy lies until it is closed; it has no name there, so that a crash leaves nothing
// behind.
func Open(st *store.Store, dir string) (h Header, size int64, rc io.ReadCloser, err error) {
	f, err := os.CreateTemp(dir, "copy-*.tmp")
	if err != nil {
		return h, 0, nil, err
	}
	os.Remove(f.Name()) // the open file stays
	c, err := st.CopyTo(f)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return h, 0, nil, err
	}
	h = Header{Format: c.Info.Format, Index: c.Counters.Index, Term: c.Counters.Term, Chain: c.Counters.Chain,
		ClusterID: c.Info.ClusterID, Group: c.Info.Group, Epoch: c.Info.Epoch,
		Recovery: c.Info.Recovery, Size: c.Size, Sum: c.Sum,
		Level: c.Info.Level, Jobs: c.Counters.Jobs, Mark: c.Counters.Mark}
	if c.Info.Group == 0 {
		h.Groups = c.Info.Groups
	}
	head := h.Encode()
	return h, int64(len(head)) + c.Size, &opened{Reader: io.MultiReader(bytes.NewReader(head), f), f: f}, nil
}

type opened struct {
	io.Reader
	f *os.File
}

func (s *opened) Close() error { return s.f.Close() }
