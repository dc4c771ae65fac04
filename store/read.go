package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	bolt "go.etcd.io/bbolt"

	"github.com/carillon-scheduler/carillon/job"
)

// reads are the look-ups that views and batches share.
type reads struct {
	tx  *bolt.Tx
	idx *index
	*scratch
}

// scratch spares the hot look-ups their allocations.
type scratch struct {
	buf       [32]byte // the key of the look-up under way: bbolt keeps none of those that it is given
	due, runs *bolt.Cursor
}

func newReads(tx *bolt.Tx, idx *index) reads { return reads{tx, idx, new(scratch)} }

func (r reads) dueKey(k DueKey) []byte     { return k.Append(r.buf[:0]) }
func (r reads) runKey(k job.RunKey) []byte { return appendRunKey(r.buf[:0], k) }
func (r reads) num(n uint64) []byte        { return binary.BigEndian.AppendUint64(r.buf[:0], n) }

// get is Bucket.Get with a cursor that is kept: every Seek starts from the root, so what was written since is seen.
func (r reads) get(c **bolt.Cursor, bucket, key []byte) []byte {
	if *c == nil {
		*c = r.tx.Bucket(bucket).Cursor()
	}
	if k, v := (*c).Seek(key); bytes.Equal(k, key) {
		return v
	}
	return nil
}

// decoded is the record that a value holds; false if there is no value.
func decoded[T any](v []byte, decode func([]byte) (T, error)) (rec T, ok bool, err error) {
	if v != nil {
		rec, err = decode(v)
		ok = err == nil
	}
	return rec, ok, err
}

// walk calls fn for records from k and v on until it says false.
func walk[T any](k, v []byte, step func() (k, v []byte), decode func([]byte) (T, error),
	fn func(n uint64, rec T) bool) error {
	for ; k != nil; k, v = step() {
		rec, err := decode(v)
		if err != nil || !fn(parseU64(k), rec) {
			return err
		}
	}
	return nil
}

// Definition reads a job.
func (r reads) Definition(id job.ID) (Definition, bool, error) {
	return decoded(r.tx.Bucket(bucketJobs).Get(r.num(uint64(id))), DecodeDefinition)
}

// Run reads an open run.
func (r reads) Run(k job.RunKey) (Row, bool, error) {
	return decoded(r.get(&r.runs, bucketRuns, r.runKey(k)), decodeRow)
}

// Record reads a line of the history.
func (r reads) Record(seq uint64) (Record, bool, error) {
	if seq == 0 {
		return Record{}, false, nil
	}
	return decoded(r.tx.Bucket(bucketHistory).Get(r.num(seq)), decodeRecord)
}

// Dead reads a dead letter.
func (r reads) Dead(seq uint64) (Dead, bool, error) {
	return decoded(r.tx.Bucket(bucketDead).Get(r.num(seq)), decodeDead)
}

// EachDead calls fn for dead letters with a number below before (0: all), newest first, until it says false.
func (r reads) EachDead(before uint64, fn func(seq uint64, d Dead) bool) error {
	c := r.tx.Bucket(bucketDead).Cursor()
	k, v := lastBelow(c, before)
	return walk(k, v, c.Prev, decodeDead, fn)
}

// lastBelow seeks the last key below a number; 0 means the last of all.
func lastBelow(c *bolt.Cursor, before uint64) (k, v []byte) {
	if before == 0 {
		return c.Last()
	}
	if k, _ = c.Seek(u64(before)); k == nil {
		return c.Last()
	}
	return c.Prev()
}

// Note is why a job is in quarantine.
func (r reads) Note(id job.ID) string { return string(r.tx.Bucket(bucketNotes).Get(r.num(uint64(id)))) }

// Request is the stored outcome of a mutating request.
func (r reads) Request(id string) []byte {
	return bytes.Clone(r.tx.Bucket(bucketRequests).Get([]byte(id)))
}

// Calendar reads a blackout calendar of a namespace, as JSON.
func (r reads) Calendar(namespace, name string) []byte {
	return bytes.Clone(r.tx.Bucket(bucketCalendars).Get([]byte(scoped(namespace, name))))
}

// stateAt reads a job's state at a place, which must be right: the index and the file have drifted apart otherwise, and
// nothing built on either can be trusted.
func (r reads) stateAt(id job.ID, p Place) (State, error) {
	var v []byte
	if p.Parked {
		v = r.tx.Bucket(bucketParked).Get(r.num(uint64(id)))
	} else {
		v = r.get(&r.due, bucketDue, r.dueKey(p.Due(id)))
	}
	if v == nil {
		return State{}, fmt.Errorf("%w: the state of %s is not where the index says", ErrCorrupt, id)
	}
	return DecodeState(v)
}

// View is a short, consistent look at the store.
type View struct {
	reads
	C    Counters
	Info Info
}

// State reads a job's runtime state and where it is.
func (v *View) State(id job.ID) (State, Place, bool, error) {
	p, ok := v.idx.get(id).place()
	if !ok {
		return State{}, Place{}, false, nil
	}
	s, err := v.stateAt(id, p)
	return s, p, err == nil, err
}

// Place is where the index has a job's state.
func (v *View) Place(id job.ID) (Place, bool) { return v.idx.get(id).place() }

// IsParked says whether a job has a state among those that are parked, wherever the index has it.
func (v *View) IsParked(id job.ID) bool {
	return v.tx.Bucket(bucketParked).Get(v.num(uint64(id))) != nil
}

// EachJobID calls fn for the numbers of jobs above after, in order, until it says false. It reads no definition.
func (v *View) EachJobID(after job.ID, fn func(job.ID) bool) error {
	c := v.tx.Bucket(bucketJobs).Cursor()
	for k, _ := c.Seek(u64(uint64(after) + 1)); k != nil; k, _ = c.Next() {
		if len(k) != 8 {
			return ErrCorrupt
		}
		if !fn(job.ID(parseU64(k))) {
			return nil
		}
	}
	return nil
}

// Open are the open runs of a job, by scheduled time. The slice is shared: do not change it.
func (v *View) Open(id job.ID) []OpenRef { return v.idx.open[id] }

// Class is the text of a class number.
func (v *View) Class(n uint32) string {
	if int(n) < len(v.idx.classes) {
		return v.idx.classes[n]
	}
	return ""
}

// Namespace is the one that the jobs of a class number are in.
func (v *View) Namespace(class uint32) string { return v.idx.spaces.of(class) }

// Namespaces are those that have or had jobs, in the order in which they came. The slice is shared: do not change it.
func (v *View) Namespaces() []string { return v.idx.spaces.all }

// NamespacesInUse is how many namespaces have jobs.
func (v *View) NamespacesInUse() int { return v.idx.spaces.inUse }

// DueEntry is one entry of the due index. State is set for occurrences; Class for all but clean-ups.
type DueEntry struct {
	DueKey
	Class uint32
	State State
}

// ScanDue calls fn for the entries of a lane from key from (inclusive; the zero DueKey with the lane set is the left
// edge) with Ready <= until, in order, until it says false.
func (v *View) ScanDue(from DueKey, until int64, fn func(DueEntry) bool) error {
	c := v.tx.Bucket(bucketDue).Cursor()
	start := []byte{byte(from.Lane)}
	if from != (DueKey{Lane: from.Lane}) {
		start = from.Append(nil)
	}
	for k, val := c.Seek(start); k != nil && k[0] == byte(from.Lane); k, val = c.Next() {
		d, err := parseDueKey(k)
		if err != nil {
			return err
		}
		if d.Ready > until {
			return nil
		}
		e := DueEntry{DueKey: d}
		switch d.Kind {
		case KindOccurrence:
			if e.State, err = DecodeState(val); err != nil {
				return err
			}
			e.Class = e.State.Class
		case KindRetry, KindExtra:
			if len(val) != 4 {
				return ErrCorrupt
			}
			e.Class = parseU32(val)
		}
		if !fn(e) {
			return nil
		}
	}
	return nil
}

// NextDue is the time of a lane's first entry after a time.
func (v *View) NextDue(lane job.Lane, after int64) (int64, bool) {
	if after == math.MaxInt64 {
		return 0, false
	}
	k, _ := v.tx.Bucket(bucketDue).Cursor().Seek(appendTime([]byte{byte(lane)}, after+1))
	if k == nil || k[0] != byte(lane) || len(k) != dueKeyLen {
		return 0, false
	}
	return parseTime(k[1:]), true
}

// NextWork is the time of a lane's first entry after a time that is more than the clean-up of a job. Of clean-ups there
// may be millions in front of it: it looks at so many entries at most, and says no if that is not enough.
func (v *View) NextWork(lane job.Lane, after int64, look int) (int64, bool) {
	if after == math.MaxInt64 {
		return 0, false
	}
	c := v.tx.Bucket(bucketDue).Cursor()
	k, _ := c.Seek(appendTime([]byte{byte(lane)}, after+1))
	for ; k != nil && k[0] == byte(lane) && look > 0; k, _ = c.Next() {
		d, err := parseDueKey(k)
		if err != nil {
			return 0, false
		}
		if d.Kind != KindCleanup {
			return d.Ready, true
		}
		look--
	}
	return 0, false
}

// EachRun calls fn for open runs by scheduled time from key from (inclusive; zero: all) until it says false.
func (v *View) EachRun(from job.RunKey, fn func(job.RunKey, Row) bool) error {
	c := v.tx.Bucket(bucketRuns).Cursor()
	var start []byte
	if from != (job.RunKey{}) {
		start = appendRunKey(nil, from)
	}
	k, val := c.Seek(start)
	return eachRun(k, val, c.Next, fn)
}

// EachRunBack is EachRun from the newest scheduled time down, starting below a key (zero: all).
func (v *View) EachRunBack(below job.RunKey, fn func(job.RunKey, Row) bool) error {
	c := v.tx.Bucket(bucketRuns).Cursor()
	k, val := c.Last()
	if below != (job.RunKey{}) {
		if k, _ = c.Seek(appendRunKey(nil, below)); k == nil {
			k, val = c.Last()
		} else {
			k, val = c.Prev()
		}
	}
	return eachRun(k, val, c.Prev, fn)
}

func eachRun(k, val []byte, step func() (k, val []byte), fn func(job.RunKey, Row) bool) error {
	for ; k != nil; k, val = step() {
		rk, err := parseRunKey(k)
		if err != nil {
			return err
		}
		row, err := decodeRow(val)
		if err != nil || !fn(rk, row) {
			return err
		}
	}
	return nil
}

// EachJob calls fn for jobs with a number above after, in order, until it says false.
func (v *View) EachJob(after job.ID, fn func(job.ID, Definition) bool) error {
	c := v.tx.Bucket(bucketJobs).Cursor()
	k, val := c.Seek(u64(uint64(after) + 1))
	return walk(k, val, c.Next, DecodeDefinition, func(n uint64, d Definition) bool { return fn(job.ID(n), d) })
}

// JobsWith looks at up to n jobs with a number above after and calls fn for those whose stored form contains a text;
// the others are not decoded, which makes this twenty times as fast as EachJob. fn may say false to go no further. It
// returns the last one it looked at, at how many it looked, and whether there are no more.
func (v *View) JobsWith(text string, after job.ID, n int,
	fn func(job.ID, Definition) bool) (last job.ID, looked int, end bool, err error) {
	c := v.tx.Bucket(bucketJobs).Cursor()
	for k, val := c.Seek(u64(uint64(after) + 1)); k != nil; k, val = c.Next() {
		if looked == n {
			return after, looked, false, nil
		}
		looked++
		after = job.ID(parseU64(k))
		if !bytes.Contains(val, []byte(text)) {
			continue
		}
		d, err := DecodeDefinition(val)
		if err != nil || !fn(after, d) {
			return after, looked, false, err
		}
	}
	return after, looked, true, nil
}

// EachRecord calls fn for history records with a number above after, oldest first, until it says false.
func (v *View) EachRecord(after uint64, fn func(seq uint64, r Record) bool) error {
	c := v.tx.Bucket(bucketHistory).Cursor()
	k, val := c.Seek(u64(after + 1))
	return walk(k, val, c.Next, decodeRecord, fn)
}

// EachRecordBack calls fn for history records with a number below before (0: all), newest first, until it says false.
func (v *View) EachRecordBack(before uint64, fn func(seq uint64, r Record) bool) error {
	c := v.tx.Bucket(bucketHistory).Cursor()
	k, val := lastBelow(c, before)
	return walk(k, val, c.Prev, decodeRecord, fn)
}

// EachOfJob walks a job's own history, newest first, from record seq on, until fn says false or the chain meets the
// trimmed part of the log.
func (v *View) EachOfJob(seq uint64, fn func(seq uint64, r Record) bool) error {
	for seq != 0 {
		rec, ok, err := v.Record(seq)
		if err != nil || !ok || !fn(seq, rec) {
			return err
		}
		if rec.Prev >= seq {
			return ErrCorrupt // a chain only leads back; anything else would walk for ever
		}
		seq = rec.Prev
	}
	return nil
}

// CalendarSize is how many calendars there are, and how many bytes they have together.
type CalendarSize struct{ Count, Bytes int }

func (s *CalendarSize) add(data []byte) { s.Count, s.Bytes = s.Count+1, s.Bytes+len(data) }

// CalendarSizes are those of a namespace and of all, each without one calendar of the namespace.
func (v *View) CalendarSizes(namespace, without string) (in, all CalendarSize, err error) {
	skip := scoped(namespace, without)
	space, _, _ := strings.Cut(skip, "\x00")
	err = v.tx.Bucket(bucketCalendars).ForEach(func(k, val []byte) error {
		if string(k) == skip {
			return nil
		}
		all.add(val)
		if of, _, _ := bytes.Cut(k, []byte{0}); string(of) == space {
			in.add(val)
		}
		return nil
	})
	return in, all, err
}

// EachCalendar calls fn for every blackout calendar, as JSON, by namespace, the usual one first, and name.
func (v *View) EachCalendar(fn func(namespace, name string, data []byte)) error {
	return v.tx.Bucket(bucketCalendars).ForEach(func(k, val []byte) error {
		namespace, name := unscoped(string(k))
		fn(namespace, name, bytes.Clone(val))
		return nil
	})
}

func appendClass(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
