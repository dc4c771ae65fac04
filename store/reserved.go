package store

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
)

// Reservation is a name that its home keeps for a job of another group, or the group that a queue is pinned to.
type Reservation struct {
	job.NameRef
	Number      uint64 // never given out again
	Group       uint32 // that has the job, or may make it
	Request     string // the one that it is kept for
	Fingerprint uint64
	Job         job.ID // 0: whether there is one is not known yet
	At          int64  // the stamp at which it was made
}

// Pending says that whether the name is taken is not known yet.
func (r *Reservation) Pending() bool { return r.Job == 0 && r.Kind != job.NameQueue }

// Held is a name of a job of this group that has its home in another one, and for as long as that is to release it.
type Held struct {
	job.NameRef
	Home   uint32
	Number uint64 // of the reservation
	Job    job.ID // 0: it no longer has it
}

func (r *Reservation) encode() []byte {
	w := writer{}
	w.u64(r.Number)
	w.u32(r.Group)
	w.u64(uint64(r.Job))
	w.i64(r.At)
	w.u64(r.Fingerprint)
	w.str(r.Request)
	return w.b
}

func decodeReservation(k, v []byte) (r Reservation, err error) {
	rd := reader{b: v}
	r.Number, r.Group, r.Job, r.At, r.Fingerprint = rd.u64(), rd.u32(), job.ID(rd.u64()), rd.i64(), rd.u64()
	r.Request = rd.str()
	if r.NameRef, err = parseRef(k); err != nil {
		return r, err
	}
	return r, rd.end()
}

func refKey(n job.NameRef) []byte {
	if n.Namespace == "" {
		n.Namespace = job.DefaultNamespace
	}
	return append([]byte{byte(n.Kind)}, scoped(n.Namespace, n.Name)...)
}

func parseRef(k []byte) (n job.NameRef, err error) {
	if len(k) < 2 {
		return n, ErrCorrupt
	}
	n.Kind = job.NameKind(k[0])
	n.Namespace, n.Name = unscoped(string(k[1:]))
	return n, nil
}

// numberKey is a reservation's number at a home.
func numberKey(home uint32, number uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, home), number)
}

const numberKeyLen = 12

func decodeHeld(k, v []byte, owed bool) (h Held, err error) {
	r := reader{b: v}
	if !owed {
		h.Job = job.ID(r.u64())
	}
	if len(k) != numberKeyLen || r.bad {
		return h, ErrCorrupt
	}
	h.Home, h.Number = parseU32(k), parseU64(k[4:])
	h.NameRef, err = parseRef(r.b)
	return h, err
}

// look reads from a bucket that may not be there.
func (r reads) look(bucket, key []byte) []byte {
	if b := r.tx.Bucket(bucket); b != nil {
		return b.Get(key)
	}
	return nil
}

// scan goes over a bucket that may not be there, from a key on, until fn says false.
func (r reads) scan(bucket, from []byte, fn func(k, v []byte) (bool, error)) error {
	b := r.tx.Bucket(bucket)
	if b == nil {
		return nil
	}
	c := b.Cursor()
	for k, v := c.Seek(from); k != nil; k, v = c.Next() {
		if more, err := fn(k, v); err != nil || !more {
			return err
		}
	}
	return nil
}

// Reservation is the row of a name that has its home here.
func (r reads) Reservation(n job.NameRef) (Reservation, bool, error) {
	k := refKey(n)
	return decoded(r.look(bucketReserved, k), func(v []byte) (Reservation, error) { return decodeReservation(k, v) })
}

// EachReservation calls fn for every row, by kind, namespace and name, until it says false.
func (r reads) EachReservation(fn func(Reservation) bool) error {
	return r.scan(bucketReserved, nil, func(k, v []byte) (bool, error) {
		res, err := decodeReservation(k, v)
		return err == nil && fn(res), err
	})
}

// EachPending calls fn for the reservations that are not confirmed, oldest first, until it says false.
func (r reads) EachPending(fn func(Reservation) bool) error {
	return r.scan(bucketPending, nil, func(_, k []byte) (bool, error) {
		res, err := decodeReservation(k, r.look(bucketReserved, k))
		return err == nil && fn(res), err
	})
}

// SettledBelow is a number below which every reservation for a group is confirmed or released, and stays so.
func (r reads) SettledBelow(group uint32) (uint64, error) {
	below := r.LastReserved() + 1
	err := r.EachPending(func(p Reservation) bool {
		if p.Group == group {
			below = p.Number
		}
		return p.Group != group
	})
	return below, err
}

// LastReserved is the highest number that was given out for a name here.
func (r reads) LastReserved() uint64 {
	if v := r.tx.Bucket(bucketMeta).Get(keyReserved); len(v) == 8 {
		return parseU64(v)
	}
	return 0
}

// Held is the name that a job of this group has by a reservation.
func (r reads) Held(home uint32, number uint64) (Held, bool, error) {
	k := numberKey(home, number)
	return decoded(r.look(bucketHeld, k), func(v []byte) (Held, error) { return decodeHeld(k, v, false) })
}

// EachHeld calls fn for every such name until it says false.
func (r reads) EachHeld(fn func(Held) bool) error { return r.eachHeld(bucketHeld, false, fn) }

// EachOwed calls fn for the names that their homes are to release, until it says false.
func (r reads) EachOwed(fn func(Held) bool) error { return r.eachHeld(bucketOwed, true, fn) }

// OwedTo are the oldest names that one home is to release, at most so many.
func (r reads) OwedTo(home uint32, most int) (owed []Held, err error) {
	err = r.scan(bucketOwed, numberKey(home, 0), func(k, v []byte) (bool, error) {
		h, err := decodeHeld(k, v, true)
		if err != nil || h.Home != home || len(owed) == most {
			return false, err
		}
		owed = append(owed, h)
		return true, nil
	})
	return owed, err
}

func (r reads) eachHeld(bucket []byte, owed bool, fn func(Held) bool) error {
	return r.scan(bucket, nil, func(k, v []byte) (bool, error) {
		h, err := decodeHeld(k, v, owed)
		return err == nil && fn(h), err
	})
}

// NumberOver says that nothing may be made under a reservation's number any more.
func (r reads) NumberOver(home uint32, number uint64) bool {
	k := numberKey(home, number)
	if r.look(bucketOwed, k) != nil || r.look(bucketSpent, k) != nil {
		return true
	}
	below := r.look(bucketSettled, k[:4])
	return len(below) == 8 && number < parseU64(below)
}

// ManyGroups says that the cluster has several groups: names of jobs may have their home in another one.
func (b *Batch) ManyGroups() bool { return b.info.Group != 0 || b.info.Homes > 1 || b.info.Groups > 1 }

// Group is the group that this is the state of.
func (b *Batch) Group() uint32 { return b.info.Group }

// HomeOf is the group that decides who has a name.
func (b *Batch) HomeOf(n job.NameRef) uint32 {
	return job.HomeOf(n.Kind, n.Namespace, n.Name, b.info.Homes)
}

func (b *Batch) put(bucket, k, v []byte) error {
	to, err := b.tx.CreateBucketIfNotExists(bucket)
	if err != nil {
		return err
	}
	return to.Put(k, v)
}

func (b *Batch) drop(bucket, k []byte) error {
	if from := b.tx.Bucket(bucket); from != nil {
		return from.Delete(k)
	}
	return nil
}

// Reserve keeps a name that is free, and gives the reservation its number.
func (b *Batch) Reserve(r *Reservation) error {
	r.Number = b.LastReserved() + 1
	if err := b.tx.Bucket(bucketMeta).Put(keyReserved, u64(r.Number)); err != nil {
		return err
	}
	if r.Pending() {
		if err := b.put(bucketPending, u64(r.Number), refKey(r.NameRef)); err != nil {
			return err
		}
	}
	return b.put(bucketReserved, refKey(r.NameRef), r.encode())
}

// ConfirmName says which job has a name.
func (b *Batch) ConfirmName(r Reservation, id job.ID) error {
	r.Job = id
	if err := b.drop(bucketPending, u64(r.Number)); err != nil {
		return err
	}
	return b.put(bucketReserved, refKey(r.NameRef), r.encode())
}

// ReleaseName frees a name.
func (b *Batch) ReleaseName(r Reservation) error {
	return cmp.Or(b.drop(bucketPending, u64(r.Number)), b.drop(bucketReserved, refKey(r.NameRef)))
}

// HoldName gives a job a name by a reservation. A job has at most one of each kind.
func (b *Batch) HoldName(h Held) error {
	k, key := numberKey(h.Home, h.Number), refKey(h.NameRef)
	if err := b.put(bucketHeldBy, append(u64(uint64(h.Job)), byte(h.Kind)), k); err != nil {
		return err
	}
	return b.put(bucketHeld, k, append(u64(uint64(h.Job)), key...))
}

// OweName takes a name of a kind from a job if it has that by a reservation, which its home is to release.
func (b *Batch) OweName(id job.ID, kind job.NameKind) error {
	by := append(u64(uint64(id)), byte(kind))
	v := b.look(bucketHeldBy, by)
	if v == nil {
		return nil
	}
	k := append([]byte(nil), v...)
	held := b.look(bucketHeld, k)
	if len(held) < 8 {
		return ErrCorrupt
	}
	b.changes.Owed = true
	if err := b.put(bucketOwed, k, append([]byte(nil), held[8:]...)); err != nil {
		return err
	}
	return cmp.Or(b.drop(bucketHeldBy, by), b.drop(bucketHeld, k))
}

// OweRequest is OweName for the key of a request, if that is the one that the job was made by.
func (b *Batch) OweRequest(id job.ID, key string) error {
	k := b.look(bucketHeldBy, append(u64(uint64(id)), byte(job.NameRequest)))
	if h, err := decodeHeld(k, b.look(bucketHeld, k), false); k == nil || err != nil || h.Name != key {
		return nil
	}
	return b.OweName(id, job.NameRequest)
}

// SpendNumber has nothing made under a reservation's number any more; it is no longer owed.
func (b *Batch) SpendNumber(home uint32, number uint64) error {
	k := numberKey(home, number)
	if err := b.drop(bucketOwed, k); err != nil {
		return err
	}
	return b.put(bucketSpent, k, []byte{1}) // bbolt cannot tell an empty value from none
}

// SettleNumbers has nothing new made under the numbers of a home below one, which says of all of them at once what was
// kept of each.
func (b *Batch) SettleNumbers(home uint32, below uint64) error {
	k := numberKey(home, below)
	if v := b.look(bucketSettled, k[:4]); len(v) == 8 && parseU64(v) >= below || below == 0 {
		return nil
	}
	var spent [][]byte
	err := b.scan(bucketSpent, numberKey(home, 0), func(n, _ []byte) (bool, error) {
		less := string(n) < string(k)
		if less {
			spent = append(spent, append([]byte(nil), n...))
		}
		return less, nil
	})
	for _, n := range spent {
		if err == nil {
			err = b.drop(bucketSpent, n)
		}
	}
	if err != nil {
		return err
	}
	return b.put(bucketSettled, k[:4], u64(below))
}

// ForgetNames removes everything that is known about names over groups, but for the groups that queues are pinned to.
func (b *Batch) ForgetNames() error {
	queues := map[string][]byte{}
	err := b.scan(bucketReserved, []byte{byte(job.NameQueue)}, func(k, v []byte) (bool, error) {
		queues[string(k)] = bytes.Clone(v)
		return true, nil
	})
	for _, bucket := range groupBuckets[1:] {
		if b.tx.Bucket(bucket) != nil && err == nil {
			err = b.tx.DeleteBucket(bucket)
		}
	}
	for k, v := range queues {
		if err == nil {
			err = b.put(bucketReserved, []byte(k), v)
		}
	}
	return err
}

// RaiseEpoch has everything that is given out from now on be above all that was given out before.
func (b *Batch) RaiseEpoch(info *Info, epoch uint64) error {
	info.Epoch = epoch
	first := epoch << job.EpochShift
	if !mutant.On(mutant.OldFences) {
		b.C.Fence = max(b.C.Fence, first)
	}
	b.C.NextJob = max(b.C.NextJob, uint64(info.Group)<<job.GroupShift|first)
	if info.Group == 0 && info.Homes <= 1 && info.Groups <= 1 {
		return nil
	}
	return b.tx.Bucket(bucketMeta).Put(keyReserved, u64(max(b.LastReserved(), first)))
}

// reservations holds the rows of both sides against each other and against the jobs.
func (c *checker) reservations() error {
	info, last, pending := &c.stats.Info, c.LastReserved(), 0
	numbers := map[uint64]bool{}
	err := c.scan(bucketReserved, nil, func(k, v []byte) (bool, error) {
		r, err := decodeReservation(k, v)
		if err != nil {
			c.bad("the reservation %q cannot be read", k)
			return true, nil
		}
		if r.Number == 0 || r.Number > last || numbers[r.Number] {
			c.bad("the reservation of %q has the number %d, which was not given out for it", r.Name, r.Number)
		}
		numbers[r.Number] = true
		if job.HomeOf(r.Kind, r.Namespace, r.Name, info.Homes) != info.Group {
			c.bad("the reservation of %q is not at its home", r.Name)
		}
		if _, own := c.named(string(k[1:])); own && r.Kind == job.NameJob {
			c.bad("%q is reserved for group %d and a job here has that name", r.Name, r.Group)
		}
		if listed := c.look(bucketPending, u64(r.Number)); r.Pending() != (string(listed) == string(k)) {
			c.bad("the reservation of %q is pending: %v, and is listed as such: %v", r.Name, r.Pending(), listed != nil)
		}
		if r.Pending() {
			pending++
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	if n := c.keys(bucketPending); n != pending {
		c.bad("%d reservations are listed as pending, there are %d", n, pending)
	}
	if c.keys(bucketHeld) != c.keys(bucketHeldBy) {
		c.bad("%d names are held and %d jobs hold one", c.keys(bucketHeld), c.keys(bucketHeldBy))
	}
	for i, bucket := range [][]byte{bucketHeld, bucketOwed} {
		err := c.scan(bucket, nil, func(k, v []byte) (bool, error) {
			h, err := decodeHeld(k, v, i == 1)
			if err != nil {
				c.bad("the name held by %x cannot be read", k)
				return true, nil
			}
			if c.look(bucketSpent, k) != nil || h.Job != 0 && c.look(bucketOwed, k) != nil || h.Home == info.Group ||
				job.HomeOf(h.Kind, h.Namespace, h.Name, info.Homes) != h.Home {
				c.bad("%q is held by a reservation of group %d that is over, or is not of its home", h.Name, h.Home)
			}
			if h.Job != 0 {
				c.held(k, &h)
			}
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// atHome holds what a job has against where that belongs: its name is kept for it at the name's home, and it is in the
// group of its queue.
func (c *checker) atHome(id job.ID, spec *job.Spec) {
	info := &c.stats.Info
	if uint32(id.Group()) != info.Group {
		return
	}
	by := append(u64(uint64(id)), byte(job.NameJob))
	if home := job.HomeOf(job.NameJob, spec.Namespace, spec.Name, info.Homes); spec.Name != "" &&
		home != info.Group && c.look(bucketHeldBy, by) == nil {
		c.bad("%s is named %q without a reservation of group %d, where that name has its home", id, spec.Name, home)
	}
	class := job.ParseClass(spec.Class())
	if q, queued := class.QueueKey(); queued {
		if home := job.HomeOf(job.NameQueue, q.Namespace, q.Name, info.Homes); home != info.Group {
			c.bad("%s is in queue %q, which has its home in group %d", id, q.String(), home)
		}
	}
}

func (c *checker) held(k []byte, h *Held) {
	by := c.look(bucketHeldBy, append(u64(uint64(h.Job)), byte(h.Kind)))
	_, _, exists := c.stateOf(h.Job)
	id, named := c.Named(h.Namespace, h.Name)
	if string(by) != string(k) || h.Kind == job.NameJob && (!exists || !named || id != h.Job) {
		c.bad("%q is held for %s, which does not have that name", h.Name, h.Job)
	}
}

// keys is how many keys there are in a bucket that may not be there.
func (c *checker) keys(bucket []byte) int {
	if b := c.tx.Bucket(bucket); b != nil {
		return b.Stats().KeyN
	}
	return 0
}
