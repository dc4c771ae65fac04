package store

import (
	"cmp"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// staged is what a batch knows of the index of one job: as it was, and as it will be when the batch is committed.
type staged struct {
	spot   spot
	open   []OpenRef
	placed bool // spot is new
	opened bool // open is new, and the batch's own
}

// stage is what a batch changes of the index of jobs. A job is looked up many times while one of its runs is claimed or completed, so the last one is remembered.
type stage struct {
	jobs map[job.ID]*staged
	slab []staged // where the next ones come from
	last *staged
	id   job.ID // of last
}

// maxSpare bounds what is kept for the next batch: clearing a map costs as much as it has room.
const maxSpare = 1 << 14

// clear makes a stage ready for the next batch.
func (g *stage) clear() {
	if len(g.jobs) > maxSpare {
		g.jobs = nil
	}
	clear(g.jobs)
	g.last, g.id = nil, 0
}

// staged is a job's part of the index, for looking at and for changing.
func (b *Batch) staged(id job.ID) *staged {
	g := b.stage
	if g.last != nil && g.id == id {
		return g.last
	}
	x := g.jobs[id]
	if x == nil {
		if len(g.slab) == 0 {
			g.slab = make([]staged, 256)
		}
		x, g.slab = &g.slab[0], g.slab[1:]
		x.spot, x.open = b.idx.get(id), b.idx.open[id]
		if g.jobs == nil {
			g.jobs = map[job.ID]*staged{}
		}
		g.jobs[id] = x
	}
	g.last, g.id = x, id
	return x
}

func (b *Batch) spot(id job.ID) spot { return b.staged(id).spot }

func (b *Batch) setSpot(id job.ID, sp spot) {
	x := b.staged(id)
	x.spot, x.placed = sp, true
}

// Open are the open runs of a job, by scheduled time. The slice may change with the batch: a caller that closes or opens runs while going over
// it goes over a copy.
func (b *Batch) Open(id job.ID) []OpenRef { return b.staged(id).open }

// stageOpen keeps a job's list sorted as the runs bucket is. Published lists are shared with views, so the first change of a batch
// copies; those after it are made in place, because a job may have tens of thousands of open runs. A ref without status is taken out.
func (b *Batch) stageOpen(k job.RunKey, ref OpenRef) {
	x := b.staged(k.Job)
	gone := ref.Status == job.RunNone
	if !x.opened {
		if x.opened = true; gone && len(x.open) == 1 && x.open[0].At == k.At && x.open[0].Origin == k.Origin {
			x.open = nil
			return
		}
		x.open = append(make([]OpenRef, 0, len(x.open)+1), x.open...)
	}
	refs := x.open
	at, found := slices.BinarySearchFunc(refs, k, func(r OpenRef, k job.RunKey) int {
		return cmp.Or(cmp.Compare(r.At, k.At), cmp.Compare(r.Origin, k.Origin))
	})
	switch {
	case found && !gone:
		refs[at] = ref
	case !gone:
		refs = slices.Insert(refs, at, ref)
	case found && at == 0:
		refs = refs[1:] // oldest first is how runs end
	case found:
		refs = slices.Delete(refs, at, at+1)
	}
	x.open = refs
}

// publishJobs brings memory to where the file is.
func (b *Batch) publishJobs() {
	for id, x := range b.stage.jobs {
		if x.placed {
			b.idx.set(id, x.spot)
		}
		if x.opened {
			b.idx.setOpen(id, x.open)
		}
	}
}
