package service

import (
	"fmt"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

const diskRemedy = "make room on its disk, delete jobs, keep less history, or lower --min-free-disk"

// SpaceText is a space as people read it.
func SpaceText(d wire.DiskSpace) string {
	return fmt.Sprintf("%s free of %s", job.Bytes(d.Free), job.Bytes(d.Total))
}

// room refuses what would make the state grow while this node's disk is almost full.
func (b *Service) room() error {
	d := b.o.Disk()
	if !d.Low {
		return nil
	}
	if e := b.o.Tracker.Epoch(); e != nil {
		if target := b.o.Members.TransferTarget(e); target != "" {
			return job.Errorf(job.CodeNoLeader, "try again in a moment",
				"the disk of the leader %s is almost full, and it hands over to %s; nothing was changed", b.o.NodeID, target)
		}
	}
	return job.Errorf(job.CodeDiskLow, diskRemedy,
		"the leader %s has %s and needs %s for anything new, and no other node can take over; runs go on, nothing was changed", b.o.NodeID, SpaceText(d), job.Bytes(d.Limit))
}

// withRoom are the jobs that there is room for. One that was created by an earlier try of the same request is only
// asked about again.
func (b *Service) withRoom(items []*creation) []*creation {
	full := b.room()
	if full == nil {
		return items
	}
	var done []*creation
	err := b.view(func(r *reader) error {
		for _, c := range items {
			if c.request.ID != "" && r.Request(c.request.ID) != nil {
				done = append(done, c)
			} else {
				c.err = full
			}
		}
		return nil
	})
	if err != nil {
		leftOver(items, err)
		return nil
	}
	return done
}
