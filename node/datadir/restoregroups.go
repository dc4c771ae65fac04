package datadir

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Backup is what a backup says of itself.
type Backup struct {
	ClusterID string      `json:"cluster_id"`
	Epoch     uint64      `json:"epoch"`
	Index     uint64      `json:"index"` // the last log entry in it; of several groups, of group 0
	Jobs      uint64      `json:"jobs"`
	At        job.Instant `json:"at"`               // the last time that was stamped in it, in each group of jobs
	Groups    uint32      `json:"groups,omitempty"` // how many groups of jobs a cluster with several has
}

// CopyBackup copies a backup as it came and verifies it on the way: without an error the copy is whole.
func CopyBackup(w io.Writer, r io.Reader) (b Backup, err error) {
	parts := backupParts{in: io.TeeReader(r, w), name: "it", read: fsm.ReadHeader}
	for {
		h, err := parts.header()
		if err == nil {
			err = inGroup(h.Group, h.Body(io.Discard, parts.body(h)))
		}
		if err != nil {
			return b, err
		}
		if h.Group == 0 {
			b = Backup{ClusterID: h.ClusterID, Epoch: h.Epoch, Index: h.Index, Groups: h.Groups}
		}
		b.Jobs += h.Jobs
		b.At = earlier(b.At, job.Instant(h.Mark), h.Group <= 1)
		if !parts.more() {
			return b, nil
		}
	}
}

// earlier is the earlier one of two instants; the second, if that is the first of its kind.
func earlier(a, b job.Instant, first bool) job.Instant {
	if first {
		return b
	}
	return min(a, b)
}

// backupParts reads a backup: the state of group 0, which says how many groups of jobs there are, and behind it theirs.
type backupParts struct {
	in    io.Reader
	name  string
	read  func(io.Reader) (fsm.Header, error)
	first fsm.Header // of group 0
	next  uint32     // the group whose state comes next
}

// header reads that of the next state.
func (p *backupParts) header() (fsm.Header, error) {
	h, err := p.read(p.in)
	switch {
	case err != nil && p.next == 0:
		return h, err
	case err != nil:
		return h, fmt.Errorf("%s is not complete: it has %d of the %d groups of its cluster (%w); get another copy of "+
			"it, or take another backup", p.name, p.next-1, p.first.Groups, err)
	case h.Group != p.next || p.next > 0 && h.ClusterID != p.first.ClusterID || h.Groups > job.MaxGroups:
		return h, fmt.Errorf("%s is not a complete backup: it has the state of group %d of cluster %s in place of "+
			"that of group %d; get another copy of it, or take another backup", p.name, h.Group, h.ClusterID, p.next)
	case p.next == 0:
		p.first = h
	}
	p.next++
	return h, nil
}

func (p *backupParts) more() bool { return p.next <= p.first.Groups }

// body is the state behind a header. That of the last one is all that is left.
func (p *backupParts) body(h fsm.Header) io.Reader {
	if p.more() {
		return io.LimitReader(p.in, h.Size)
	}
	return p.in
}

// restoredState is the state of a group that is being restored.
type restoredState struct {
	h      fsm.Header
	st     *store.Store
	row    store.GroupRow // of a group of jobs
	number uint64         // of the one replica that it has

	last, term uint64 // of a recovery: where the log ends
}

// end is the last entry that the state, and the log before it, have.
func (s *restoredState) end() (index, term uint64) {
	c := s.st.Counters()
	return max(c.Index, s.last), max(c.Term, s.term)
}

// open opens a state that was written, and holds it against its header.
func (s *restoredState) open(d *Dir, name string) (err error) {
	if s.st, err = store.Open(d.groupFile(s.h.Group, stateName), store.Options{}); err != nil {
		return fmt.Errorf("%s: %w", name, inGroup(s.h.Group, err))
	}
	s.number = replica.First
	count, info := s.st.Counters(), s.st.Info()
	if count.Index != s.h.Index || count.Term != s.h.Term || info.ClusterID != s.h.ClusterID ||
		info.Group != s.h.Group || info.Group == 0 && info.Groups != s.h.Groups {
		return fmt.Errorf("%s is damaged: its header says entry %d of group %d of cluster %q, and its state is "+
			"entry %d of group %d of cluster %q; get another copy of it", name, s.h.Index, s.h.Group, s.h.ClusterID,
			count.Index, info.Group, info.ClusterID)
	}
	if err := fsm.CheckLevel(info.Level, 0); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (s *restoredState) close() error {
	if s.st == nil {
		return nil
	}
	return s.st.Close()
}

// change is one transaction.
func (s *restoredState) change(do func(*store.Batch) error) error {
	b, err := s.st.Begin()
	if err != nil {
		return err
	}
	if err := do(b); err != nil {
		b.Rollback()
		return err
	}
	return b.Commit()
}

// fitTogether holds the states of groups against the table of groups, and finds their rows in it.
func fitTogether(states []*restoredState, name string) error {
	if info := states[0].st.Info(); info.Homes > 1 && info.Groups < info.Homes {
		return fmt.Errorf("%s was taken while the groups of its cluster were being created: take another backup", name)
	}
	return states[0].st.View(func(v *store.View) error {
		rows, err := v.Groups()
		for _, s := range states[1:] {
			i := slices.IndexFunc(rows, func(r store.GroupRow) bool { return r.Number == s.h.Group })
			if err != nil || i < 0 || rows[i].ID != s.st.Info().GroupID {
				return errors.Join(err, fmt.Errorf("%s is inconsistent: its group %d is not the one in its table of "+
					"groups; take another backup", name, s.h.Group))
			}
			s.row, s.number = rows[i], rows[i].Last+1 // no replica had it before
		}
		return err
	})
}

// placeAlone writes the table of groups: this node has the one replica of each. Groups that were being made have
// nothing yet, and are made anew.
func placeAlone(b *store.Batch, states []*restoredState, d *Dir) error {
	rows, err := b.Groups()
	if err != nil {
		return err
	}
	for _, row := range rows {
		if int(row.Number) >= len(states) {
			if err := b.DropGroup(row.Number); err != nil {
				return err
			}
		}
	}
	for _, s := range states[1:] {
		row := s.row
		row.Last, row.Begin, row.State = max(row.Last, s.number), d.NodeID, store.GroupActive
		row.Replicas = []store.GroupReplica{{Node: d.NodeID, Number: s.number, Instance: d.Instance}}
		if err := b.PutGroup(row); err != nil {
			return err
		}
	}
	return nil
}
