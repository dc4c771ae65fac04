// Package store is the state of one group on disk: bbolt buckets, the due index, the open runs and the history log,
// with the small index in memory that is derived from them. It knows no raft, reads no clock and decides nothing:
// package fsm does.
package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/internal/lineage"
	"github.com/carillon-scheduler/carillon/job"
)

// Format is the version of the file layout. A file with another one is refused: this binary would misread it.
const Format = 1

// The buckets, declared once.
var (
	bucketMeta       = []byte("meta")
	bucketJobs       = []byte("jobs")       // job(8) -> Definition
	bucketNames      = []byte("names")      // namespace 0 name -> job(8), of jobs that are not new
	bucketDue        = []byte("due")        // DueKey -> State (occurrence), class(4) (retry, extra), nothing (clean-up)
	bucketParked     = []byte("parked")     // job(8) -> State
	bucketRuns       = []byte("runs")       // at(8) job(8) origin(1) -> Row
	bucketHistory    = []byte("history")    // seq(8) -> Record
	bucketDead       = []byte("dead")       // seq(8) -> Dead
	bucketRequests   = []byte("requests")   // request id -> outcome
	bucketRequestExp = []byte("requestexp") // expires(8) request id -> nothing
	bucketClasses    = []byte("classes")    // class(4) -> text of job.Spec.Class
	bucketNotes      = []byte("notes")      // job(8) -> why it is in quarantine
	bucketCalendars  = []byte("calendars")  // namespace 0 name -> JSON
	bucketNodes      = []byte("nodes")      // node id -> Node, as JSON
	bucketQueues     = []byte("queues")     // name -> Queue, as JSON
	bucketTokens     = []byte("tokens")     // token id -> Token, as JSON
	bucketAudit      = []byte("audit")      // seq(8) -> Audit
	bucketGuarded    = []byte("guarded")    // seq(8) -> Audit, of what gives access
	bucketSecretLog  = []byte("secretlog")  // seq(8) -> Audit, of secrets
	bucketSecrets    = []byte("secrets")    // namespace 0 name -> Secret, as JSON
	bucketOutbox     = []byte("outbox")     // job(8) seq(8) -> Notice that is to be sent
	bucketNotified   = []byte("notified")   // job(8) -> seq(8) Notice: the newest that is done with

	allBuckets = [][]byte{bucketMeta, bucketJobs, bucketNames, bucketDue, bucketParked, bucketRuns, bucketHistory,
		bucketDead, bucketRequests, bucketRequestExp, bucketClasses, bucketNotes, bucketCalendars, bucketNodes,
		bucketQueues, bucketTokens, bucketSecrets, bucketAudit, bucketGuarded, bucketSecretLog, bucketOutbox,
		bucketNotified}

	// Those of a cluster with several groups are made when they are first written to.
	bucketGroups   = []byte("groups")   // group(4) -> GroupRow, as JSON
	bucketReserved = []byte("reserved") // kind(1) namespace 0 name -> Reservation
	bucketPending  = []byte("pending")  // number(8) -> key of the reservation, until that is confirmed
	bucketHeld     = []byte("held")     // home(4) number(8) -> job(8) kind(1) namespace 0 name
	bucketHeldBy   = []byte("heldby")   // job(8) kind(1) -> home(4) number(8)
	bucketOwed     = []byte("owed")     // home(4) number(8) -> kind(1) namespace 0 name
	bucketSpent    = []byte("spent")    // home(4) number(8) -> 1
	bucketSettled  = []byte("settled")  // home(4) -> number(8)

	groupBuckets = [][]byte{bucketGroups, bucketReserved, bucketPending, bucketHeld, bucketHeldBy, bucketOwed,
		bucketSpent, bucketSettled}
)

// Kind says what a due entry is.
type Kind uint8

// The kinds. Numbers are part of the stored format.
const (
	KindOccurrence Kind = 1
	KindRetry      Kind = 2
	KindExtra      Kind = 3 // manual, backfill, redriven, released from waiting
	KindCleanup    Kind = 4 // a one-off job whose retention ends
)

// DueKey is a key of the due index: what is to happen, ordered by lane and time.
type DueKey struct {
	Lane   job.Lane
	Ready  int64 // ms; when it may be claimed
	Job    job.ID
	Kind   Kind
	Origin job.Origin
	At     int64 // ms; the nominal time. Differs from Ready by jitter or a retry's delay
}

const dueKeyLen = 26

// Append adds the key's bytes to b; they sort like (Lane, Ready, Job, Kind, Origin, At).
func (k DueKey) Append(b []byte) []byte {
	b = append(b, byte(k.Lane))
	b = appendTime(b, k.Ready)
	b = binary.BigEndian.AppendUint64(b, uint64(k.Job))
	b = append(b, byte(k.Kind)<<4|byte(k.Origin))
	return appendTime(b, k.At)
}

// Run is the identity of the run that the entry is about.
func (k DueKey) Run() job.RunKey { return job.RunKey{Job: k.Job, At: k.At, Origin: k.Origin} }

func parseDueKey(b []byte) (DueKey, error) {
	if len(b) != dueKeyLen {
		return DueKey{}, ErrCorrupt
	}
	return DueKey{Lane: job.Lane(b[0]), Ready: parseTime(b[1:]), Job: job.ID(binary.BigEndian.Uint64(b[9:])),
		Kind: Kind(b[17] >> 4), Origin: job.Origin(b[17] & 15), At: parseTime(b[18:])}, nil
}

// appendTime flips the sign bit so that times before 1970 sort first.
func appendTime(b []byte, ms int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(ms)^1<<63) }

func parseTime(b []byte) int64 { return int64(binary.BigEndian.Uint64(b) ^ 1<<63) }

func u64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

const runKeyLen = 17

func appendRunKey(b []byte, k job.RunKey) []byte {
	b = appendTime(b, k.At)
	b = binary.BigEndian.AppendUint64(b, uint64(k.Job))
	return append(b, byte(k.Origin))
}

func parseRunKey(b []byte) (job.RunKey, error) {
	if len(b) != runKeyLen {
		return job.RunKey{}, ErrCorrupt
	}
	return job.RunKey{At: parseTime(b), Job: job.ID(binary.BigEndian.Uint64(b[8:])), Origin: job.Origin(b[16])}, nil
}

// ErrCorrupt is returned for bytes that this package did not write.
var ErrCorrupt = errors.New("store: corrupt record; run `carillon check DATA-DIR`, then restore a " +
	"backup or let the node rejoin")

func parseU64(b []byte) uint64 { return binary.BigEndian.Uint64(b) }
func parseU32(b []byte) uint32 { return binary.BigEndian.Uint32(b) }

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

	AuditSeq      uint64 // the newest audit record
	Audits        uint64 // how many there are in the ordinary ring
	GuardedAudits uint64 // how many there are of what gives access
	SecretAudits  uint64 // how many there are of secrets

	Chain uint64 // a hash over all entries in this state, each with the one before it; see package fsm
}

func (c *Counters) encode() []byte {
	w := writer{b: make([]byte, 0, 120)}
	for _, v := range [...]uint64{c.Index, c.Term, c.NextJob, c.Fence, c.HistSeq, c.HistFloor, uint64(c.Mark), c.Jobs,
		c.Dead, c.AuditSeq, c.Audits, c.GuardedAudits, c.SecretAudits, c.Chain} {
		w.u64(v)
	}
	return w.b
}

func decodeCounters(b []byte) (c Counters, err error) {
	r := reader{b: b}
	var mark uint64
	for _, p := range []*uint64{&c.Index, &c.Term, &c.NextJob, &c.Fence, &c.HistSeq, &c.HistFloor, &mark, &c.Jobs,
		&c.Dead, &c.AuditSeq, &c.Audits, &c.GuardedAudits, &c.SecretAudits, &c.Chain} {
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

// NoteOutage adds an outage and keeps so many at most. That nothing is due which fell into one does not make it
// pointless: what waits for the resume of its job is in no index.
func (i *Info) NoteOutage(o Outage, most int) {
	all := append(slices.Clone(i.Outages), o)
	i.Outages = all[max(0, len(all)-most):]
}

// Hold says that nothing is claimed, moved on or cleaned up: the state came from a backup, and the operator has not yet
// said that the cluster it was taken from is gone.
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
	Group     uint32   `json:"group"`              // which Raft group of the cluster this is the state of
	GroupID   string   `json:"group_id,omitempty"` // random; empty for group 0
	Homes     uint32   `json:"homes,omitempty"`    // see job.HomeOf
	Groups    uint32   `json:"groups,omitempty"`   // see job.PlaceOf
	Listed    uint32   `json:"listed,omitempty"`   // group 0: what is asked about jobs; before Groups, never less
	Known     uint32   `json:"known,omitempty"`    // group 0: how many all nodes know to take jobs; after Groups
	Want      uint32   `json:"want,omitempty"`     // group 0: how many there are to be
	Row       GroupRow `json:"row,omitzero"`       // of a group of jobs: a copy of its row in the table of groups
	Epoch     uint64   `json:"epoch"`
	Recovery  string   `json:"recovery,omitempty"` // see lineage.Cluster
	Outages   []Outage `json:"outages,omitempty"`
	Hold      Hold     `json:"hold,omitzero"`
	// Released is when a restored cluster was last released. Occurrences up to then, of jobs that are older, do not
	// run: the cluster that the backup was taken from may have run them.
	Released int64    `json:"released,omitempty"`
	Security Security `json:"security,omitzero"`
}

// Cluster is the history that the state is of.
func (i *Info) Cluster() lineage.Cluster {
	return lineage.Cluster{ID: i.ClusterID, Epoch: i.Epoch, Recovery: i.Recovery}
}

var (
	keyCounters = []byte("counters")
	keySweep    = []byte("names") // which names are in their bucket
	keyInfo     = []byte("info")
	keyReserved = []byte("reserved") // the highest number of a reservation
)

func readMeta(tx *bolt.Tx) (c Counters, info Info, err error) {
	b := tx.Bucket(bucketMeta)
	if b == nil {
		return c, info, ErrCorrupt
	}
	if v := b.Get(keyCounters); v != nil {
		if c, err = decodeCounters(v); err != nil {
			return c, info, err
		}
	}
	v := b.Get(keyInfo)
	if v == nil {
		return c, info, ErrCorrupt
	}
	if err := json.Unmarshal(v, &info); err != nil {
		return c, info, fmt.Errorf("%w: meta: %w", ErrCorrupt, err)
	}
	return c, info, nil
}
