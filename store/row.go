package store

import "github.com/carillon-scheduler/carillon/job"

// Row is an open run.
type Row struct {
	Status      job.RunStatus // pending, waiting, claimed, retrying or canceling
	Held        job.RunStatus // of a waiting run of a paused job: what it goes back to, pending or retrying
	Serial      bool          // catch-up, backfill or redriven: one at a time, in the gaps of the live schedule
	Delayed     bool          // a live run that had to wait behind a serial one, or behind one that had to
	Late        int64         // ms; of a delayed run: how much later it may start than without that
	AtMostOnce  bool
	Attempt     uint16 // claims so far
	Failures    uint16 // failed attempts, which count against max_retries
	Losses      uint8  // attempts whose worker was lost
	Lane        job.Lane
	Class       uint32
	Fence       uint64 // of the newest claim
	ClaimedAt   int64
	Ready       int64  // pending, retrying: when it may be claimed; claimed, canceling: since when it might be
	Timeout     int64  // ms; what the newest claim was given, whatever the definition says by now
	Version     uint64 // of the definition that the newest claim was given out with
	Incarnation uint64
	Owner       uint64 // of a claim: the hash of its worker's secret, for the next leader to compare; 0: none
	Worker      string
	Key         string     // idempotency key, if it is not the default one
	Cancel      job.Reason // canceling: why
}

// Due is the run's entry in the due index, if its status has one.
func (r *Row) Due(k job.RunKey) (DueKey, bool) {
	d := DueKey{Lane: r.Lane, Ready: r.Ready, Job: k.Job, Origin: k.Origin, At: k.At}
	switch r.Status {
	case job.RunPending:
		d.Kind = KindExtra
	case job.RunRetrying:
		d.Kind = KindRetry
	default:
		return DueKey{}, false
	}
	return d, true
}

// rowClassAt is where the class is in the stored form.
const rowClassAt = 9

// The flags of a row. They are its third byte, after two states: buildIndex reads those three without the rest.
const (
	rowSerial     = 1
	rowAtMostOnce = 2
	rowDelayed    = 4
)

// size is at least what the stored form takes.
func (r *Row) size() int { return 118 + len(r.Worker) + len(r.Key) }

func (r *Row) encodeTo(w *writer) {
	w.u8(uint8(r.Status))
	w.u8(uint8(r.Held))
	w.u8(b2u(r.Serial)*rowSerial | b2u(r.AtMostOnce)*rowAtMostOnce | b2u(r.Delayed)*rowDelayed)
	w.u16(r.Attempt)
	w.u16(r.Failures)
	w.u8(r.Losses)
	w.u8(uint8(r.Lane))
	w.u32(r.Class)
	w.u64(r.Fence)
	w.i64(r.ClaimedAt)
	w.i64(r.Ready)
	w.uvar(uint64(r.Timeout))
	w.uvar(r.Version)
	w.uvar(uint64(r.Late))
	w.u64(r.Incarnation)
	w.u64(r.Owner)
	w.str(r.Worker)
	w.str(r.Key)
	w.u8(uint8(r.Cancel))
}

func decodeRowFrom(r *reader) (row Row) {
	row.Status = job.RunStatus(r.u8())
	row.Held = job.RunStatus(r.u8())
	f := r.u8()
	row.Serial, row.AtMostOnce, row.Delayed = f&rowSerial != 0, f&rowAtMostOnce != 0, f&rowDelayed != 0
	row.Attempt = r.u16()
	row.Failures = r.u16()
	row.Losses = r.u8()
	row.Lane = job.Lane(r.u8())
	row.Class = r.u32()
	row.Fence = r.u64()
	row.ClaimedAt = r.i64()
	row.Ready = r.i64()
	row.Timeout = int64(r.uvar())
	row.Version = r.uvar()
	row.Late = int64(r.uvar())
	row.Incarnation = r.u64()
	row.Owner = r.u64()
	row.Worker = r.str()
	row.Key = r.str()
	row.Cancel = job.Reason(r.u8())
	return row
}

func decodeRow(b []byte) (Row, error) {
	r := reader{b: b}
	row := decodeRowFrom(&r)
	return row, r.end()
}

// Record is one line of the history log: a finished attempt, or an interval of occurrences that did not run.
type Record struct {
	Prev     uint64 // the record before it of the same job; below the trim floor it leads nowhere
	Job      job.ID
	Status   job.RunStatus
	Reason   job.Reason
	Recorded int64 // the mark when it was written: the stamp of its command, or a higher one of before
	// Namespace is the job's: the record outlives it. Empty is the usual one, which is not stored.
	Namespace string

	// Of an attempt, or of a run that was closed without one (Attempt 0).
	At        int64
	Origin    job.Origin
	Attempt   uint16
	Fence     uint64
	Version   uint64 // of the definition that the attempt was started with; 0: it was never claimed
	Ready     int64  // since when it might be claimed
	ClaimedAt int64
	StartedAt int64
	EndedAt   int64
	Worker    string
	Key       string // idempotency key, if it is not the default one
	Error     string
	Output    string

	Interval Interval // Count 0: this is an attempt
}

// Run is the identity of the run that an attempt record is about.
func (r *Record) Run() job.RunKey { return job.RunKey{Job: r.Job, At: r.At, Origin: r.Origin} }

// What a record begins with. The upper bits of an attempt's say which of its times follow; recordSpace that the
// namespace does.
const (
	recordAttempt  = 1
	recordInterval = 2
	recordSpace    = 8
)

// size is at least what the stored form takes.
func (r *Record) size() int {
	return 150 + len(r.Namespace) + len(r.Worker) + len(r.Key) + len(r.Error) + len(r.Output)
}

func (r *Record) encodeTo(w *writer) {
	w.uvar(r.Prev)
	w.u64(uint64(r.Job))
	w.i64(r.Recorded)
	space := r.Namespace != job.DefaultNamespace && r.Namespace != ""
	if !r.Interval.Empty() {
		w.u8(recordInterval | b2u(space)*recordSpace)
		if space {
			w.str(r.Namespace)
		}
		w.interval(r.Interval)
		return
	}
	times := [4]int64{r.ClaimedAt, r.StartedAt, r.EndedAt, r.Ready}
	kind := recordAttempt | b2u(space)*recordSpace
	for i, t := range times {
		if t != 0 {
			kind |= 1 << (4 + i)
		}
	}
	w.u8(kind)
	if space {
		w.str(r.Namespace)
	}
	w.u8(uint8(r.Status))
	w.u8(uint8(r.Reason))
	w.ivar(r.At - r.Recorded)
	w.u8(uint8(r.Origin))
	w.uvar(uint64(r.Attempt))
	w.uvar(r.Fence)
	w.uvar(r.Version)
	for _, t := range times {
		if t != 0 {
			w.ivar(t - r.Recorded)
		}
	}
	w.str(r.Worker)
	w.str(r.Key)
	w.str(r.Error)
	w.str(r.Output)
}

func decodeRecord(b []byte) (Record, error) {
	r := reader{b: b}
	var rec Record
	rec.Prev = r.uvar()
	rec.Job = job.ID(r.u64())
	rec.Recorded = r.i64()
	kind := r.u8()
	if rec.Namespace = job.DefaultNamespace; kind&recordSpace != 0 {
		rec.Namespace = r.str()
	}
	switch kind & 7 {
	case recordInterval:
		if rec.Interval = decodeInterval(&r); rec.Interval.Empty() {
			return rec, ErrCorrupt
		}
		rec.Status, rec.Reason = rec.Interval.Status, rec.Interval.Reason
	case recordAttempt:
		rec.Status = job.RunStatus(r.u8())
		rec.Reason = job.Reason(r.u8())
		rec.At = rec.Recorded + r.ivar()
		rec.Origin = job.Origin(r.u8())
		rec.Attempt = uint16(r.uvar())
		rec.Fence = r.uvar()
		rec.Version = r.uvar()
		for i, p := range [4]*int64{&rec.ClaimedAt, &rec.StartedAt, &rec.EndedAt, &rec.Ready} {
			if kind&(1<<(4+i)) != 0 {
				*p = rec.Recorded + r.ivar()
			}
		}
		rec.Worker = r.str()
		rec.Key = r.str()
		rec.Error = r.str()
		rec.Output = r.str()
	default:
		return rec, ErrCorrupt
	}
	return rec, r.end()
}

// Dead is a dead letter: the run as it stood, and how its last attempt ended. It outlives its history record.
type Dead struct {
	Run    job.RunKey
	Row    Row
	Reason job.Reason
	DiedAt int64
	Error  string
	Output string
}

func (d *Dead) encode() []byte {
	w := writer{}
	w.b = appendRunKey(w.b, d.Run)
	d.Row.encodeTo(&w)
	w.u8(uint8(d.Reason))
	w.i64(d.DiedAt)
	w.str(d.Error)
	w.str(d.Output)
	return w.b
}

func decodeDead(b []byte) (Dead, error) {
	r := reader{b: b}
	var d Dead
	var err error
	if d.Run, err = parseRunKey(r.take(runKeyLen)); err != nil {
		return d, err
	}
	d.Row = decodeRowFrom(&r)
	d.Reason = job.Reason(r.u8())
	d.DiedAt = r.i64()
	d.Error = r.str()
	d.Output = r.str()
	return d, r.end()
}
