package view

import (
	"sync"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// maxDeleted bounds how many names of deleted jobs are kept; the audit has about as many records.
const maxDeleted = 20_000

// deletedNames are what jobs were called that somebody deleted, as the audit has it: their history outlives them. What
// is only cleaned up, a one-off after its retention, leaves no record there and is known by its id.
type deletedNames struct {
	mu    sync.Mutex
	upTo  uint64 // the newest record that was read
	names map[job.ID]string
}

// of is the name of a job that is not there any more; empty if it had none or that is not known.
func (d *deletedNames) of(v *store.View, id job.ID) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name, ok := d.names[id]; ok {
		return name, nil
	}
	if len(d.names) > maxDeleted {
		d.names, d.upTo = nil, 0
	}
	if d.names == nil {
		d.names = map[job.ID]string{}
	}
	err := v.EachAudit(d.upTo, func(seq uint64, a store.Audit) bool {
		d.upTo = seq
		if a.Action == "job.delete" && a.Outcome == "" && a.ID != "" {
			if gone, err := job.ParseID(a.ID); err == nil {
				d.names[gone] = a.Object
			}
		}
		return true
	})
	return d.names[id], err
}
