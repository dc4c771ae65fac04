package store

import (
	"encoding/json"
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// Counters are the numbers that almost every batch moves; they are one record.
type Counters struct {
	Index, Term uint64 // the last raft entry that is in this state
	NextJob     uint64 // the highest job number given out
	Fence       uint64 // the highest fence given out
	HistSeq     uint64 // the newest history record
	HistFloor   uint64 // records up to here are trimmed, except for the newest of a job
	Mark        int64  // the highest stamp that was committed
	Jobs        uint64
	Dead        uint64
}

func (c *Counters) encode() []byte {
	w := writer{b: make([]byte, 0, 96)}
	for _, v := range [...]uint64{c.Index, c.Term, c.NextJob, c.Fence, c.HistSeq, c.HistFloor, uint64(c.Mark), c.Jobs, c.Dead} {
		w.u64(v)
	}
	return w.b
}

func decodeCounters(b []byte) (c Counters, err error) {
	r := reader{b: b}
	var mark uint64
	for _, p := range []*uint64{&c.Index, &c.Term, &c.NextJob, &c.Fence, &c.HistSeq, &c.HistFloor, &mark, &c.Jobs, &c.Dead} {
		*p = r.u64()
	}
	c.Mark = int64(mark)
	return c, r.end()
}

// Outage is a time without a stamp: after the last committed stamp of a leadership and before the next takeover.
// Occurrences that fell into it follow their job's missed rule, whichever leader gets to them.
type Outage struct {
	From int64 `json:"from"` // exclusive
	To   int64 `json:"to"`   // the takeover
}

// Hold says that nothing is claimed, moved on or cleaned up: the state came from a backup, and the operator has not yet said that the
// cluster it was taken from is gone.
type Hold struct {
	On        bool   `json:"on"`
	Releasing bool   `json:"releasing,omitempty"` // it was released; the open runs of the backup are being closed
	Since     int64  `json:"since"`               // ms; when the backup was restored
	Cluster   string `json:"cluster,omitempty"`   // the cluster that the backup was taken from
	Index     uint64 `json:"index,omitempty"`     // the last entry in the backup
}

// Info is the slow part of the meta data.
type Info struct {
	Format    int      `json:"format"`
	Level     int      `json:"level"` // committed feature level
	ClusterID string   `json:"cluster_id,omitempty"`
	Group     uint32   `json:"group"` // which Raft group of the cluster this is the state of
	Epoch     uint64   `json:"epoch"`
	Outages   []Outage `json:"outages,omitempty"`
	Hold      Hold     `json:"hold,omitzero"`
	// Released is when a restored cluster was last released. Occurrences up to then, of jobs that are older, do not run: the cluster that the
	// backup was taken from may have run them.
	Released int64 `json:"released,omitempty"`
}

var (
	keyCounters = []byte("counters")
	keySweep    = []byte("names") // which names are in their bucket
	keyInfo     = []byte("info")
)

func readMeta(tx *bolt.Tx) (c Counters, info Info, err error) {
	b := tx.Bucket(bucketMeta)
	if b == nil {
		return c, info, errCorrupt
	}
	if v := b.Get(keyCounters); v != nil {
		if c, err = decodeCounters(v); err != nil {
			return c, info, err
		}
	}
	v := b.Get(keyInfo)
	if v == nil {
		return c, info, errCorrupt
	}
	if err := json.Unmarshal(v, &info); err != nil {
		return c, info, fmt.Errorf("%w: meta: %w", errCorrupt, err)
	}
	return c, info, nil
}
