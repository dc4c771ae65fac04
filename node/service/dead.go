package service

import (
	"context"
	"slices"
	"strconv"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/insight"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

func (b *Service) DeadLetters(ctx context.Context, q wire.DeadQuery, rd api.Read) (wire.DeadPage, error) {
	page := wire.DeadPage{Dead: []job.DeadLetter{}}
	below, err := view.DeadCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	done, err := b.Turn(ctx, rd)
	if err != nil {
		return page, err
	}
	defer done()
	var id job.ID
	err = b.view(func(r *view.Reader) (err error) {
		id, err = r.FindDead(q.Job, rd.Space)
		return err
	})
	if err != nil {
		return page, err
	}
	if len(q.IDs) > 0 {
		err := b.view(func(r *view.Reader) error {
			for _, seq := range q.IDs {
				d, ok, err := r.Dead(seq)
				if err != nil {
					return err
				}
				if !ok || !rd.Space.Finds(r.Namespace(d.Row.Class)) {
					continue
				}
				l, err := r.Letter(seq, &d)
				if err != nil {
					return err
				}
				page.Dead = append(page.Dead, l)
			}
			return nil
		})
		return page, err
	}
	room := view.NewRoom(q.Limit)
	for looked := 0; looked < view.MaxRows; looked += view.Rows {
		if err := ctx.Err(); err != nil {
			return page, err
		}
		end := true
		err := b.view(func(r *view.Reader) error {
			var inner error
			n := 0
			err := r.EachDead(below, func(seq uint64, d store.Dead) bool {
				if n == view.Rows || room.Full() {
					end = false
					return false
				}
				n++
				below = seq
				if !r.Selects(&d, id, rd.Space) {
					return true
				}
				l, err := r.Letter(seq, &d)
				if err != nil {
					inner = err
					return false
				}
				page.Dead = append(page.Dead, l)
				room.Take(len(l.Output) + len(l.Error))
				return true
			})
			if err == nil {
				err = inner
			}
			return err
		})
		if err != nil || end {
			return page, err
		}
		if room.Full() {
			break
		}
	}
	page.NextCursor = strconv.FormatUint(below, 10)
	return page, nil
}

// deadOnly is the namespace that a command about dead letters is held to; empty: any.
func deadOnly(q wire.DeadQuery, sc api.Space) string {
	if !q.All && sc.Anywhere() {
		return ""
	}
	return sc.Name()
}

// deadChunk is how many dead letters one command is about.
const deadChunk = 256

func (b *Service) Redrive(ctx context.Context, q wire.DeadQuery, rq api.Request) (wire.DeadResult, error) {
	return b.eachDead(ctx, q, rq, func(a attempt, seqs []uint64) fsm.Command {
		return &fsm.Redrive{Head: a.head, Request: a.req, Seqs: seqs, Namespace: deadOnly(q, rq.Space)}
	})
}

func (b *Service) PurgeDead(ctx context.Context, q wire.DeadQuery, rq api.Request) (wire.DeadResult, error) {
	return b.eachDead(ctx, q, rq, func(a attempt, seqs []uint64) fsm.Command {
		return &fsm.Purge{Head: a.head, Request: a.req, Seqs: seqs, Namespace: deadOnly(q, rq.Space)}
	})
}

// eachDead proposes commands about the selected dead letters, a chunk at a time. Each chunk is a request of its own
// under the client's key: a repetition is answered from those that were done, and goes on where the first try ended.
func (b *Service) eachDead(ctx context.Context, q wire.DeadQuery, rq api.Request,
	command func(attempt, []uint64) fsm.Command) (r wire.DeadResult, err error) {
	if err := b.verify(ctx); err != nil {
		return r, err
	}
	var id job.ID
	err = b.view(func(r *view.Reader) (err error) {
		id, err = r.FindDead(q.Job, rq.Space)
		return err
	})
	if err != nil {
		return r, err
	}
	if len(q.IDs) > 0 {
		slices.Sort(q.IDs) // one that is named twice is done once
		q.IDs = slices.Compact(q.IDs)
		if r.Unknown, err = b.unknownDead(ctx, q.IDs, rq); err != nil {
			return r, err
		}
	}
	var below uint64
	left := q.Max // 0: all of them
	for chunk := 0; ; chunk++ {
		size := deadChunk
		if q.Max > 0 {
			size = min(size, left)
		}
		seqs, next, err := b.deadSeqs(ctx, q, rq.Space, id, below, chunk, size)
		if err != nil {
			return r, err
		}
		part := chunkOf(rq, chunk)
		o, err := b.changeNamed(ctx, part, "", func(a attempt) (fsm.Command, error) { return command(a, seqs), nil })
		if err != nil {
			return r, err
		}
		r.Count += o.Count
		if !o.Replay && o.Count < len(seqs) {
			if err := b.addLeft(&r, seqs, rq.Space); err != nil {
				return r, err
			}
		}
		named := len(seqs)
		if o.Replay {
			named = o.Named
		}
		if left -= named; named < size || q.Max > 0 && left <= 0 {
			return r, nil // of a replay it was the last one: what died since is none of this request's business
		}
		if o.Replay {
			continue // what was collected is still there for the next chunk
		}
		below = next
	}
}

// addLeft counts the dead letters of a chunk that are still there, by why they are.
func (b *Service) addLeft(to *wire.DeadResult, seqs []uint64, sc api.Space) error {
	return b.view(func(r *view.Reader) error {
		for _, seq := range seqs {
			d, ok, err := r.Dead(seq)
			if err != nil {
				return err
			}
			if !ok || !sc.Finds(r.Namespace(d.Row.Class)) {
				continue
			}
			switch _, _, has, err := r.State(d.Run.Job); {
			case err != nil:
				return err
			case has:
				to.Open++
			default:
				to.Gone++
			}
		}
		return nil
	})
}

// chunkOf is the request of a chunk. The first has the client's key itself, so that one which was used for another
// request is refused.
func chunkOf(rq api.Request, chunk int) api.Request {
	if chunk > 0 {
		rq.Key += ":" + strconv.Itoa(chunk)
	}
	return rq
}

// unknownDead are the ids that there is no dead letter of. A selection of which nothing exists is refused. Of a
// repetition nothing is said: the first one took them.
func (b *Service) unknownDead(ctx context.Context, ids []uint64, rq api.Request) (unknown []uint64, err error) {
	if _, done, err := b.replay(ctx, chunkOf(rq, 0)); err != nil || done {
		return nil, err
	}
	for part := range slices.Chunk(ids, view.Rows) {
		err := b.view(func(r *view.Reader) error {
			for _, seq := range part {
				d, ok, err := r.Dead(seq)
				if err != nil {
					return err
				}
				if !ok || !rq.Space.Finds(r.Namespace(d.Row.Class)) {
					unknown = append(unknown, seq)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(unknown) < len(ids) {
		return unknown, nil
	}
	text := "there is no dead letter " + strconv.FormatUint(ids[0], 10)
	if len(ids) > 1 {
		text = "none of these " + strconv.Itoa(len(ids)) + " dead letters exists"
	}
	return nil, job.Errorf(job.CodeNotFound, "GET /api/v1/dead lists them", "%s", text)
}

// deadSeqs collects the next chunk below a number, newest first. What could not be redriven stays where it is, so the
// walk goes on below it.
func (b *Service) deadSeqs(ctx context.Context, q wire.DeadQuery, sc api.Space, id job.ID, below uint64,
	chunk, size int) ([]uint64, uint64, error) {
	if len(q.IDs) > 0 {
		from := min(chunk*deadChunk, len(q.IDs))
		return q.IDs[from:min(from+deadChunk, len(q.IDs))], 0, nil
	}
	var seqs []uint64
	if below == 1 {
		return nil, 1, nil
	}
	rows := view.Rows
	if q.Group != "" {
		rows = insight.GroupRows
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, below, err
		}
		end := true
		err := b.view(func(r *view.Reader) error {
			n := 0
			return r.EachDead(below, func(seq uint64, d store.Dead) bool {
				if n == rows || len(seqs) == size {
					end = false
					return false
				}
				n++
				below = seq
				if r.Selects(&d, id, sc) && insight.InGroup(r, &d, q.Group) {
					seqs = append(seqs, seq)
				}
				return true
			})
		})
		if end && err == nil {
			below = 1 // nothing is below it
		}
		if err != nil || end || len(seqs) == size {
			return seqs, below, err
		}
	}
}
