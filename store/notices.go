package store

import (
	"encoding/binary"

	"github.com/carillon-scheduler/carillon/job"
)

// NotifyOn is job.Notify.On as bits. They ride in the runtime state, because claim and complete never read definitions.
type NotifyOn uint8

// The bits.
const (
	NotifyFailure  NotifyOn = 1
	NotifyRecovery NotifyOn = 2
)

// NotifyOnOf converts a definition's notify; a job without one has none.
func NotifyOnOf(n *job.Notify) (on NotifyOn) {
	if n.Wants(job.NotifyFailure) {
		on |= NotifyFailure
	}
	if n.Wants(job.NotifyRecovery) {
		on |= NotifyRecovery
	}
	return on
}

// Channels are ways in which one notification is sent, as bits.
type Channels uint8

// The channels. Numbers are part of the stored format.
const (
	ChannelWebhook Channels = 1
	ChannelEmail   Channels = 2

	AllChannels = ChannelWebhook | ChannelEmail
)

// Notice is one notification: a change of a job's health, and how far its sending has come.
type Notice struct {
	Seq    uint64 // never repeats
	Job    job.ID
	Kind   NotifyOn      // NotifyFailure or NotifyRecovery
	At     int64         // the stamp of the command that made it
	RunAt  int64         // the run that ended, if Origin says that there is one
	Origin job.Origin    // 0: no run, the job went into quarantine
	Status job.RunStatus // how the run ended
	Reason job.Reason
	Error  string // the head of the run's error

	Attempts uint32   // claims so far: what a result names
	Want     Channels // as of the newest claim: all that it is to be sent through
	Trying   Channels // in the hands of the leader that claimed it
	Sent     Channels
	Unknown  Channels // it may have arrived: not tried again
	Failed   Channels // given up
	Term     uint64   // of the newest claim
	Node     string   // that made it
	TriedAt  int64
	NextTry  int64
	Note     string // what went wrong when it was last sent
	DoneAt   int64
}

// Run is the run that the notification is about.
func (n *Notice) Run() (job.RunKey, bool) {
	return job.RunKey{Job: n.Job, At: n.RunAt, Origin: n.Origin}, n.Origin != 0
}

// Settled are the channels that need nothing more.
func (n *Notice) Settled() Channels { return n.Sent | n.Unknown | n.Failed }

// MaxNoticeText is how long the texts of a notice may be.
const MaxNoticeText = 500

func (n *Notice) encode() []byte {
	w := writer{b: make([]byte, 0, 96+len(n.Error)+len(n.Note)+len(n.Node))}
	w.u8(1) // version
	w.u8(uint8(n.Kind))
	w.i64(n.At)
	w.i64(n.RunAt)
	w.u8(uint8(n.Origin))
	w.u8(uint8(n.Status))
	w.u8(uint8(n.Reason))
	w.str(n.Error)
	w.uvar(uint64(n.Attempts))
	for _, c := range [...]Channels{n.Want, n.Trying, n.Sent, n.Unknown, n.Failed} {
		w.u8(uint8(c))
	}
	w.uvar(n.Term)
	w.str(n.Node)
	w.i64(n.TriedAt)
	w.i64(n.NextTry)
	w.str(n.Note)
	w.i64(n.DoneAt)
	return w.b
}

func decodeNotice(id job.ID, seq uint64, b []byte) (Notice, error) {
	r := reader{b: b}
	n := Notice{Job: id, Seq: seq}
	if r.u8() != 1 {
		return n, ErrCorrupt
	}
	n.Kind = NotifyOn(r.u8())
	n.At = r.i64()
	n.RunAt = r.i64()
	n.Origin = job.Origin(r.u8())
	n.Status = job.RunStatus(r.u8())
	n.Reason = job.Reason(r.u8())
	n.Error = r.str()
	attempts := r.uvar()
	n.Attempts = uint32(attempts)
	for _, c := range [...]*Channels{&n.Want, &n.Trying, &n.Sent, &n.Unknown, &n.Failed} {
		*c = Channels(r.u8())
	}
	n.Term = r.uvar()
	n.Node = r.str()
	n.TriedAt = r.i64()
	n.NextTry = r.i64()
	n.Note = r.str()
	n.DoneAt = r.i64()
	if attempts > 1<<32-1 {
		return n, ErrCorrupt
	}
	return n, r.end()
}

func noticeKey(id job.ID, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(u64(uint64(id)), seq)
}

func parseNotice(k, v []byte) (Notice, error) {
	if len(k) != 16 {
		return Notice{}, ErrCorrupt
	}
	return decodeNotice(job.ID(parseU64(k)), parseU64(k[8:]), v)
}

// parseLast reads the newest notification of a job that is done with.
func parseLast(id job.ID, v []byte) (Notice, error) {
	if len(v) < 8 {
		return Notice{}, ErrCorrupt
	}
	return decodeNotice(id, parseU64(v), v[8:])
}

// Notices is how many notifications are to be sent.
func (b *Batch) Notices() int { return b.idx.notices + b.notices }

// AddNotice puts a notification into the outbox and numbers it.
func (b *Batch) AddNotice(n *Notice) error {
	seq, err := b.tx.Bucket(bucketOutbox).NextSequence()
	if err != nil {
		return err
	}
	n.Seq = seq
	b.notices++
	return b.PutNotice(n)
}

// PutNotice writes a notification that is in the outbox.
func (b *Batch) PutNotice(n *Notice) error {
	b.changes.Outbox = true
	return b.tx.Bucket(bucketOutbox).Put(noticeKey(n.Job, n.Seq), n.encode())
}

// FinishNotice takes a notification out of the outbox and keeps it as the job's newest that is done with.
func (b *Batch) FinishNotice(n *Notice) error {
	b.changes.Outbox = true
	b.notices--
	if err := b.tx.Bucket(bucketOutbox).Delete(noticeKey(n.Job, n.Seq)); err != nil {
		return err
	}
	return b.tx.Bucket(bucketNotified).Put(u64(uint64(n.Job)), append(u64(n.Seq), n.encode()...))
}

// DropNotices forgets everything that was to be told, and was told, about a job.
func (b *Batch) DropNotices(id job.ID) error {
	pending, err := b.JobNotices(id)
	if err != nil {
		return err
	}
	for i := range pending {
		b.changes.Outbox = true
		b.notices--
		if err := b.tx.Bucket(bucketOutbox).Delete(noticeKey(id, pending[i].Seq)); err != nil {
			return err
		}
	}
	return b.tx.Bucket(bucketNotified).Delete(u64(uint64(id)))
}

// Notice reads a notification that is in the outbox.
func (r reads) Notice(id job.ID, seq uint64) (Notice, bool, error) {
	return decoded(r.tx.Bucket(bucketOutbox).Get(noticeKey(id, seq)),
		func(v []byte) (Notice, error) { return decodeNotice(id, seq, v) })
}

// JobNotices are a job's notifications in the outbox, oldest first.
func (r reads) JobNotices(id job.ID) (out []Notice, err error) {
	err = r.eachNotice(u64(uint64(id)), func(n Notice) bool {
		if n.Job != id {
			return false
		}
		out = append(out, n)
		return true
	})
	return out, err
}

// LastNotice is the newest notification of a job, done with or not.
func (r reads) LastNotice(id job.ID) (Notice, bool, error) {
	pending, err := r.JobNotices(id)
	if err != nil {
		return Notice{}, false, err
	}
	if len(pending) > 0 {
		return pending[len(pending)-1], true, nil
	}
	b := r.tx.Bucket(bucketNotified)
	if b == nil {
		return Notice{}, false, nil
	}
	return decoded(b.Get(u64(uint64(id))), func(v []byte) (Notice, error) { return parseLast(id, v) })
}

// EachNotice calls fn for what is in the outbox, by job and then oldest first, until it says false.
func (r reads) EachNotice(fn func(Notice) bool) error { return r.eachNotice(nil, fn) }

// NoticesAfter is EachNotice for jobs with a number above one.
func (v *View) NoticesAfter(id job.ID, fn func(Notice) bool) error {
	return v.eachNotice(u64(uint64(id)+1), fn)
}

func (r reads) eachNotice(from []byte, fn func(Notice) bool) error {
	b := r.tx.Bucket(bucketOutbox)
	if b == nil {
		return nil
	}
	c := b.Cursor()
	for k, v := c.Seek(from); k != nil; k, v = c.Next() {
		n, err := parseNotice(k, v)
		if err != nil || !fn(n) {
			return err
		}
	}
	return nil
}

// NoticeCount is how many notifications are to be sent.
func (s *Store) NoticeCount() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.idx.notices
}

// checkNotices holds the outbox against the jobs: a notification without a receiver would be tried for ever.
func (c *checker) checkNotices() error {
	look := func(n Notice, done bool) {
		if s, _, ok := c.stateOf(n.Job); !ok || s.Notify == 0 {
			c.bad("notification %d is about %s, which is gone or has no notify", n.Seq, n.Job)
		}
		_, hasRun := n.Run()
		switch {
		case n.Seq == 0 || n.Seq > c.tx.Bucket(bucketOutbox).Sequence():
			c.bad("notification %d of %s has a number that was never given out", n.Seq, n.Job)
		case n.Kind != NotifyFailure && n.Kind != NotifyRecovery || hasRun == (n.Status == job.RunNone):
			c.bad("notification %d of %s makes no sense", n.Seq, n.Job)
		case n.Trying&n.Settled() != 0 || n.Sent&n.Unknown != 0 || (n.Sent|n.Unknown)&n.Failed != 0 ||
			(n.Trying|n.Settled())&^AllChannels != 0:
			c.bad("notification %d of %s is both sent and not sent", n.Seq, n.Job)
		case n.Trying != 0 && (n.Attempts == 0 || n.Trying&^n.Want != 0):
			c.bad("notification %d of %s is being sent and was not claimed", n.Seq, n.Job)
		case done != (n.DoneAt != 0) || done && n.Trying != 0:
			c.bad("notification %d of %s is done with and in the outbox, or neither", n.Seq, n.Job)
		}
	}
	if b := c.tx.Bucket(bucketOutbox); b != nil {
		err := b.ForEach(func(k, v []byte) error {
			if n, err := parseNotice(k, v); err != nil {
				c.bad("a notification in the outbox cannot be read")
			} else {
				look(n, false)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if c.tx.Bucket(bucketNotified) == nil {
		return nil
	}
	return c.each(bucketNotified, "notification", func(id uint64, v []byte) {
		if n, err := parseLast(job.ID(id), v); err != nil {
			c.bad("the last notification of %s cannot be read", job.ID(id))
		} else {
			look(n, true)
		}
	})
}
