package store

import "github.com/carillon-scheduler/carillon/job"

// Ended is what statistics want of a history record. Reading it takes a fraction of what the record takes: error and
// output are passed over.
type Ended struct {
	Job       job.ID
	Recorded  int64
	Namespace string
	Status    job.RunStatus
	Reason    job.Reason
	Attempt   uint16 // 0: the run was closed without one
	Count     int64  // of an interval of occurrences that did not run; 0: this is a run

	ClaimedAt, StartedAt, EndedAt, Ready int64
}

// EachEnded is EachRecord without the texts.
func (v *View) EachEnded(after uint64, fn func(seq uint64, e *Ended) bool) error {
	c := v.tx.Bucket(bucketHistory).Cursor()
	var e Ended
	for k, val := c.Seek(u64(after + 1)); k != nil; k, val = c.Next() {
		if err := e.decode(val); err != nil {
			return err
		}
		if !fn(parseU64(k), &e) {
			return nil
		}
	}
	return nil
}

func (e *Ended) decode(b []byte) error {
	r := reader{b: b}
	r.uvar() // the record before it
	*e = Ended{Job: job.ID(r.u64()), Recorded: r.i64(), Namespace: job.DefaultNamespace}
	kind := r.u8()
	if kind&recordSpace != 0 {
		e.Namespace = r.str()
	}
	switch kind & 7 {
	case recordInterval:
		i := decodeInterval(&r)
		e.Status, e.Reason, e.Count = i.Status, i.Reason, i.Count
	case recordAttempt:
		e.Status, e.Reason = job.RunStatus(r.u8()), job.Reason(r.u8())
		r.ivar() // its time
		r.u8()   // its origin
		e.Attempt = uint16(r.uvar())
		r.uvar() // the fence
		r.uvar() // the version
		for i, p := range [4]*int64{&e.ClaimedAt, &e.StartedAt, &e.EndedAt, &e.Ready} {
			if kind&(1<<(4+i)) != 0 {
				*p = e.Recorded + r.ivar()
			}
		}
	default:
		return ErrCorrupt
	}
	if r.bad {
		return ErrCorrupt
	}
	return nil
}
