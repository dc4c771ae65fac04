package store

import (
	"encoding/json"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// Batch is one write transaction. What it changes of the index is staged and published after the commit, so that a
// batch that fails leaves memory as it was. It sees its own changes.
//
// Any error from a batch means that the file could not be read or written: the process ends, because memory, log and
// state must not drift apart.
type Batch struct {
	reads
	s *Store
	C Counters // move these; they are written at Commit

	info    Info
	infoSet bool
	stage   *stage            // what changes of the index of jobs
	classes []string          // new ones
	notices int               // how many more are in the outbox than before it
	inHand  int               // how many more runs workers have than before it
	names   map[string]job.ID // what changes in memory; 0: the name goes
	swept   []string          // names that moved to the bucket
	sweep   sweep             // how far that got
	changes Changes
	arena   []byte // where values are: bbolt wants each to stay until the end of the transaction

	queues      map[uint32]*QueueUse // those that it touched, by number
	newQueues   map[job.QueueKey]uint32
	classQueues []uint32       // the queues of the new classes
	classSpaces []string       // their namespaces
	classJobs   map[uint32]int // how many more jobs there are of each
	queueRows   int            // how many more queues have a row than before it

	tokens tokenIndex // as they will be; nil: as they are

	secrets secretIndex // likewise
}

// Begin starts a batch. There is one at a time.
func (s *Store) Begin() (*Batch, error) {
	s.mu.RLock()
	db, idx, count, info := s.db, s.idx, s.count, s.info
	s.mu.RUnlock()
	if db == nil {
		return nil, ErrClosed
	}
	tx, err := db.Begin(true)
	if err != nil {
		return nil, err
	}
	// Keys only ever come at the end of these, where bbolt would leave every page half empty. An edit that makes a
	// definition longer may split its page; that costs what it saves once.
	tx.Bucket(bucketHistory).FillPercent = 0.95
	tx.Bucket(bucketJobs).FillPercent = 0.95
	s.stage.clear() // of the batch before
	return &Batch{reads: newReads(tx, idx), s: s, C: count, info: info, stage: &s.stage}, nil
}

// room is a writer for a value of at most size bytes, which is put with what taken gives. Not through an interface: the
// records would all move to the heap.
func (b *Batch) room(size int) writer {
	if cap(b.arena)-len(b.arena) < size {
		b.arena = make([]byte, 0, max(32<<10, size))
	}
	return writer{b: b.arena[len(b.arena):]}
}

func (b *Batch) taken(w *writer) []byte {
	b.arena = b.arena[:min(len(b.arena)+len(w.b), cap(b.arena))]
	return w.b[:len(w.b):len(w.b)]
}

func (b *Batch) state(s *State) []byte {
	w := b.room(maxState)
	s.encodeTo(&w)
	return b.taken(&w)
}

func (b *Batch) row(r *Row) []byte {
	w := b.room(r.size())
	r.encodeTo(&w)
	return b.taken(&w)
}

func (b *Batch) record(r *Record) []byte {
	w := b.room(r.size())
	r.encodeTo(&w)
	return b.taken(&w)
}

// Rollback drops the batch.
func (b *Batch) Rollback() { b.tx.Rollback() }

// Commit writes the counters, syncs, publishes the index and tells the listeners. A batch that fails to commit is
// rolled back.
func (b *Batch) Commit() error {
	err := b.sweepNames()
	if err == nil {
		err = b.putMeta()
	}
	if err != nil {
		b.Rollback()
		return err
	}
	s := b.s
	if before := s.opts.BeforeCommit; before != nil {
		if err := before(); err != nil {
			b.Rollback()
			return err
		}
	}
	s.mu.Lock()
	if err := b.tx.Commit(); err != nil {
		s.mu.Unlock()
		b.Rollback() // where bbolt has not done so itself
		return err
	}
	b.publishJobs()
	for _, c := range b.classes {
		b.idx.classOf[c] = uint32(len(b.idx.classes))
		b.idx.classes = append(b.idx.classes, c)
	}
	b.publishQueues()
	b.publishTokens()
	b.publishSecrets()
	b.publishNames()
	b.publishActivity()
	b.idx.notices += b.notices
	b.idx.inHand += b.inHand
	s.count, s.info = b.C, b.info
	s.mu.Unlock()
	s.notify(&b.changes)
	return nil
}

func (b *Batch) putMeta() error {
	meta := b.tx.Bucket(bucketMeta)
	if b.infoSet {
		v, err := json.Marshal(b.info)
		if err != nil {
			return err
		}
		if err := meta.Put(keyInfo, v); err != nil {
			return err
		}
	}
	return meta.Put(keyCounters, b.C.encode())
}

// Info is the slow meta data; SetInfo replaces it.
func (b *Batch) Info() Info { return b.info }

// SetInfo replaces the slow meta data.
func (b *Batch) SetInfo(i Info) {
	b.changes.Groups = true // or something else of it
	b.info, b.infoSet = i, true
}

// State reads a job's runtime state and where it is.
func (b *Batch) State(id job.ID) (State, Place, bool, error) {
	p, ok := b.spot(id).place()
	if !ok {
		return State{}, Place{}, false, nil
	}
	s, err := b.stateAt(id, p)
	return s, p, err == nil, err
}

// PutState writes a job's state at a place and removes it from where it was.
func (b *Batch) PutState(id job.ID, s *State, p Place) error {
	if p.Parked {
		p = Place{Parked: true}
	}
	old, had := b.spot(id).place()
	if had && old != p {
		if err := b.dropPlace(id, old); err != nil {
			return err
		}
	}
	if p.Parked {
		if err := b.tx.Bucket(bucketParked).Put(b.num(uint64(id)), b.state(s)); err != nil {
			return err
		}
	} else if err := b.tx.Bucket(bucketDue).Put(b.dueKey(p.Due(id)), b.state(s)); err != nil {
		return err
	} else if !had || old != p {
		b.changes.Due = append(b.changes.Due, DueMark{p.Lane, p.Ready})
	}
	if !had {
		b.countJob(s.Class, 1)
	}
	b.setSpot(id, packSpot(p, s))
	return nil
}

func (b *Batch) dropPlace(id job.ID, p Place) error {
	if p.Parked {
		return b.tx.Bucket(bucketParked).Delete(b.num(uint64(id)))
	}
	return b.tx.Bucket(bucketDue).Delete(b.dueKey(p.Due(id)))
}

// DeleteState removes a job's state, and with it the history record that was kept beyond its time for the state's sake.
func (b *Batch) DeleteState(id job.ID) error {
	s, p, ok, err := b.State(id)
	if err != nil || !ok {
		return err
	}
	if s.HistHead != 0 && s.HistHead <= b.C.HistFloor {
		if err := b.tx.Bucket(bucketHistory).Delete(b.num(s.HistHead)); err != nil {
			return err
		}
	}
	b.countJob(s.Class, -1)
	b.setSpot(id, spot{})
	return b.dropPlace(id, p)
}

// PutDefinition writes a job. encoded is what Definition.Encode gave.
func (b *Batch) PutDefinition(id job.ID, encoded []byte) error {
	b.changes.Jobs = append(b.changes.Jobs, id)
	return b.tx.Bucket(bucketJobs).Put(b.num(uint64(id)), encoded)
}

// DeleteDefinition removes a job and its quarantine note.
func (b *Batch) DeleteDefinition(id job.ID) error {
	b.changes.Jobs = append(b.changes.Jobs, id)
	if err := b.tx.Bucket(bucketNotes).Delete(b.num(uint64(id))); err != nil {
		return err
	}
	return b.tx.Bucket(bucketJobs).Delete(b.num(uint64(id)))
}

// PutNote says why a job is in quarantine; an empty text removes the note.
func (b *Batch) PutNote(id job.ID, text string) error {
	if text == "" {
		return b.tx.Bucket(bucketNotes).Delete(b.num(uint64(id)))
	}
	return b.tx.Bucket(bucketNotes).Put(b.num(uint64(id)), []byte(text))
}

// Class is the number of a class, given out on first use. Numbers depend only on the order of commands.
func (b *Batch) Class(text string) (uint32, error) {
	if n, ok := b.idx.classOf[text]; ok {
		return n, nil
	}
	if i := slices.Index(b.classes, text); i >= 0 {
		return uint32(len(b.idx.classes) + i), nil
	}
	n := uint32(len(b.idx.classes) + len(b.classes))
	b.classes = append(b.classes, text)
	c := job.ParseClass(text)
	b.classQueues = append(b.classQueues, b.queueNumber(queueOfClass(&c)))
	b.classSpaces = append(b.classSpaces, c.Namespace)
	return n, b.tx.Bucket(bucketClasses).Put(appendClass(n), []byte(text))
}

// Namespace is the one that the jobs of a class number are in.
func (b *Batch) Namespace(class uint32) string {
	if i := int(class) - len(b.idx.classes); i >= 0 && i < len(b.classSpaces) {
		return b.classSpaces[i]
	}
	return b.idx.spaces.of(class)
}

// ClassCount is how many classes there are.
func (b *Batch) ClassCount() int { return len(b.idx.classes) - 1 + len(b.classes) }

// KnownClass says whether a class has a number already.
func (b *Batch) KnownClass(text string) bool {
	_, ok := b.idx.classOf[text]
	return ok || slices.Contains(b.classes, text)
}

// FirstRuns are up to n open runs, by scheduled time. They are a copy: a caller that closes them does not do so under a
// cursor.
func (b *Batch) FirstRuns(n int) ([]job.RunKey, error) {
	var out []job.RunKey
	c := b.tx.Bucket(bucketRuns).Cursor()
	for k, _ := c.First(); k != nil && len(out) < n; k, _ = c.Next() {
		rk, err := parseRunKey(k)
		if err != nil {
			return nil, err
		}
		out = append(out, rk)
	}
	return out, nil
}

// PutRun writes an open run; its entry in the due index follows from its status. old is what was there, nil if nothing.
func (b *Batch) PutRun(k job.RunKey, old, row *Row) error {
	if err := b.tx.Bucket(bucketRuns).Put(b.runKey(k), b.row(row)); err != nil {
		return err
	}
	b.stageOpen(k, OpenRef{At: k.At, Origin: k.Origin, Status: row.Status, Held: row.Held != job.RunNone,
		Serial: row.Serial, Delayed: row.Delayed})
	b.countInHand(row, 1)
	if old == nil || old.Fence != row.Fence {
		b.touch(b.Namespace(row.Class), touchRuns)
	}
	if counted(row) {
		b.countClaim(row.Class, 1)
	}
	due, has := row.Due(k)
	if old != nil {
		b.countInHand(old, -1)
		if counted(old) {
			b.countClaim(old.Class, -1)
		}
		if was, had := old.Due(k); had && (!has || was != due) {
			if err := b.tx.Bucket(bucketDue).Delete(b.dueKey(was)); err != nil {
				return err
			}
		}
	}
	if has {
		b.changes.Due = append(b.changes.Due, DueMark{due.Lane, due.Ready})
		return b.tx.Bucket(bucketDue).Put(b.dueKey(due), appendClass(row.Class))
	}
	return nil
}

// countInHand counts the runs that workers have.
func (b *Batch) countInHand(r *Row, n int) {
	if inHand(r.Status) {
		b.inHand += n
	}
}

// DeleteRun closes an open run.
func (b *Batch) DeleteRun(k job.RunKey, old *Row) error {
	if due, has := old.Due(k); has {
		if err := b.tx.Bucket(bucketDue).Delete(b.dueKey(due)); err != nil {
			return err
		}
	}
	b.countInHand(old, -1)
	if counted(old) {
		b.countClaim(old.Class, -1)
	}
	b.stageOpen(k, OpenRef{})
	return b.tx.Bucket(bucketRuns).Delete(b.runKey(k))
}

// PutCleanup and DeleteCleanup keep the entry that ends a one-off job's retention.
func (b *Batch) PutCleanup(k DueKey) error {
	b.changes.Due = append(b.changes.Due, DueMark{k.Lane, k.Ready})
	return b.tx.Bucket(bucketDue).Put(b.dueKey(k), []byte{1}) // bbolt cannot tell an empty value from none
}

// HasDue says whether a due entry is there.
func (b *Batch) HasDue(k DueKey) bool { return b.tx.Bucket(bucketDue).Get(b.dueKey(k)) != nil }

// DeleteDue removes an entry that is not part of a run or a state: a clean-up.
func (b *Batch) DeleteDue(k DueKey) error { return b.tx.Bucket(bucketDue).Delete(b.dueKey(k)) }

// Append adds a line to the history and links it into its job's chain, whose head is in s (nil: the job is gone, and
// the record says itself which namespace it was in). A head that survived trimming only because it was the newest of
// its job is removed now that it no longer is.
//
// No record is dated before the mark: a leader that holds because its clock is behind records results with what that
// says, and who walks a chain back to a time would stop there. A backfill would then run again what ran.
func (b *Batch) Append(rec *Record, s *State) (uint64, error) {
	rec.Recorded = max(rec.Recorded, b.C.Mark)
	b.C.HistSeq++
	seq := b.C.HistSeq
	hist := b.tx.Bucket(bucketHistory)
	if s != nil {
		rec.Namespace = b.Namespace(s.Class)
		rec.Prev = s.HistHead
		if rec.Prev != 0 && rec.Prev <= b.C.HistFloor {
			if err := hist.Delete(b.num(rec.Prev)); err != nil {
				return 0, err
			}
			rec.Prev = 0
		}
		s.HistHead = seq
	}
	b.touch(rec.Namespace, touchRuns)
	return seq, hist.Put(b.num(seq), b.record(rec))
}

// TrimHistory removes up to limit records from the old end that keep says nothing for, moves the floor and says how
// many it looked at.
func (b *Batch) TrimHistory(limit int, old func(seq uint64, r *Record) bool) (int, error) {
	hist := b.tx.Bucket(bucketHistory)
	var doomed []uint64
	seen, floor := 0, b.C.HistFloor
	c := hist.Cursor()
	for k, v := c.Seek(u64(b.C.HistFloor + 1)); k != nil && seen < limit; k, v = c.Next() {
		seq := parseU64(k)
		rec, err := decodeRecord(v)
		if err != nil {
			return 0, err
		}
		if !old(seq, &rec) {
			break
		}
		seen++
		floor = seq
		s, _, ok, err := b.State(rec.Job)
		if err != nil {
			return 0, err
		}
		if ok && s.HistHead == seq {
			continue // the newest record of a job is kept
		}
		doomed = append(doomed, seq)
	}
	// Keys first, deletes after: deleting under a cursor skips keys.
	for _, seq := range doomed {
		if err := hist.Delete(b.num(seq)); err != nil {
			return 0, err
		}
	}
	b.C.HistFloor = floor
	return seen, nil
}

// PutDead writes a dead letter under the number of its last history record.
func (b *Batch) PutDead(seq uint64, d *Dead) error {
	b.C.Dead++
	b.changes.Dead = append(b.changes.Dead, seq)
	b.touch(b.Namespace(d.Row.Class), touchDead)
	return b.tx.Bucket(bucketDead).Put(b.num(seq), d.encode())
}

// DeleteDead removes a dead letter.
func (b *Batch) DeleteDead(seq uint64, d *Dead) error {
	b.C.Dead--
	b.touch(b.Namespace(d.Row.Class), touchDead)
	return b.tx.Bucket(bucketDead).Delete(b.num(seq))
}

// PutRequest keeps the outcome of a request until it expires.
func (b *Batch) PutRequest(id string, outcome []byte, expires int64) error {
	if err := b.tx.Bucket(bucketRequests).Put([]byte(id), outcome); err != nil {
		return err
	}
	return b.tx.Bucket(bucketRequestExp).Put(append(appendTime(nil, expires), id...), []byte{})
}

// TrimRequests forgets up to limit requests that expired before now, and calls end for each.
func (b *Batch) TrimRequests(now int64, limit int, end func(id string, outcome []byte) error) (int, error) {
	exp := b.tx.Bucket(bucketRequestExp)
	var keys [][]byte
	c := exp.Cursor()
	for k, _ := c.First(); k != nil && len(keys) < limit; k, _ = c.Next() {
		if len(k) < 8 {
			return 0, ErrCorrupt
		}
		if parseTime(k) > now {
			break
		}
		keys = append(keys, append([]byte(nil), k...))
	}
	for _, k := range keys {
		if err := end(string(k[8:]), b.Request(string(k[8:]))); err != nil {
			return 0, err
		}
		if err := b.tx.Bucket(bucketRequests).Delete(k[8:]); err != nil {
			return 0, err
		}
		if err := exp.Delete(k); err != nil {
			return 0, err
		}
	}
	return len(keys), nil
}

// PutCalendar writes a blackout calendar of a namespace; nil removes it.
func (b *Batch) PutCalendar(namespace, name string, data []byte) error {
	key := []byte(scoped(namespace, name))
	if data == nil {
		return b.tx.Bucket(bucketCalendars).Delete(key)
	}
	return b.tx.Bucket(bucketCalendars).Put(key, data)
}
