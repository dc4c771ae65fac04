package store

import "github.com/carillon-scheduler/carillon/job"

// PutStray writes an occurrence entry of a job besides the one that it has.
func (b *Batch) PutStray(id job.ID, p Place, s *State) error {
	return b.tx.Bucket(bucketDue).Put(p.Due(id).Append(nil), s.Encode())
}

// LoseEntry removes the occurrence entry of a job, and leaves the index as it is.
func (b *Batch) LoseEntry(id job.ID) error {
	p, _ := b.spot(id).place()
	return b.dropPlace(id, p)
}
