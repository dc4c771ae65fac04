// Package store is the state of one group on disk: bbolt buckets, the due index, the open runs and the history log, with the
// small index in memory that is derived from them. It knows no raft, reads no clock and decides nothing: package fsm does.
package store

import (
	"encoding/binary"
	"errors"

	"github.com/carillon-scheduler/carillon/job"
)

// Format is the version of the file layout. A file with another one is refused: this binary would misread it.
const Format = 1

// The buckets, declared once.
var (
	bucketMeta       = []byte("meta")
	bucketJobs       = []byte("jobs")       // job(8) -> Definition
	bucketNames      = []byte("names")      // name -> job(8), of jobs that are not new
	bucketDue        = []byte("due")        // DueKey -> State (occurrence) or class(4) (retry, extra) or nothing (clean-up)
	bucketParked     = []byte("parked")     // job(8) -> State
	bucketRuns       = []byte("runs")       // at(8) job(8) origin(1) -> Row
	bucketHistory    = []byte("history")    // seq(8) -> Record
	bucketDead       = []byte("dead")       // seq(8) -> Dead
	bucketRequests   = []byte("requests")   // request id -> outcome
	bucketRequestExp = []byte("requestexp") // expires(8) request id -> nothing
	bucketClasses    = []byte("classes")    // class(4) -> text of job.Spec.Class
	bucketNotes      = []byte("notes")      // job(8) -> why it is in quarantine
	bucketCalendars  = []byte("calendars")  // name -> JSON
	bucketNodes      = []byte("nodes")      // node id -> Node, as JSON
	bucketQueues     = []byte("queues")     // name -> Queue, as JSON
	bucketOutbox     = []byte("outbox")     // job(8) seq(8) -> Notice that is to be sent
	bucketNotified   = []byte("notified")   // job(8) -> seq(8) Notice: the newest that is done with

	allBuckets = [][]byte{bucketMeta, bucketJobs, bucketNames, bucketDue, bucketParked, bucketRuns, bucketHistory, bucketDead,
		bucketRequests, bucketRequestExp, bucketClasses, bucketNotes, bucketCalendars, bucketNodes, bucketQueues, bucketOutbox, bucketNotified}
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
		return DueKey{}, errCorrupt
	}
	return DueKey{Lane: job.Lane(b[0]), Ready: parseTime(b[1:]), Job: job.ID(binary.BigEndian.Uint64(b[9:])),
		Kind: Kind(b[17] >> 4), Origin: job.Origin(b[17] & 15), At: parseTime(b[18:])}, nil
}

// appendTime flips the sign bit so that times before 1970 sort first.
func appendTime(b []byte, ms int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(ms)^1<<63)
}

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
		return job.RunKey{}, errCorrupt
	}
	return job.RunKey{At: parseTime(b), Job: job.ID(binary.BigEndian.Uint64(b[8:])), Origin: job.Origin(b[16])}, nil
}

// errCorrupt is returned for bytes that this package did not write.
var errCorrupt = errors.New("store: corrupt record; run `carillon check DATA-DIR`, then restore a backup or let the node rejoin")

func parseU64(b []byte) uint64 { return binary.BigEndian.Uint64(b) }
func parseU32(b []byte) uint32 { return binary.BigEndian.Uint32(b) }
