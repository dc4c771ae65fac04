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

// Outage is a time in which nobody stamped: after the last committed stamp of a leadership and before the next takeover.
// Occurrences that fell into it follow their job's missed rule, whichever leader gets to them.
type Outage struct {
	From int64 `json:"from"` // exclusive
	To   int64 `json:"to"`   // the takeover
}

// Info is the slow part of the meta data.
type Info struct {
	Format    int      `json:"format"`
	Level     int      `json:"level"` // committed feature level
	ClusterID string   `json:"cluster_id,omitempty"`
	Epoch     uint64   `json:"epoch"`
	Outages   []Outage `json:"outages,omitempty"`
}

var (
	keyCounters = []byte("counters")
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
