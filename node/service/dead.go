package service

import (
	"context"
	"slices"
	"strconv"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// letter is a dead letter as the API shows it.
func (r *reader) letter(seq uint64, d *store.Dead) (job.DeadLetter, error) {
	run, err := r.openRun(d.Run, &d.Row)
	if err != nil {
		return job.DeadLetter{}, err
	}
	run.Status, run.Reason, run.FinishedAt = job.RunDead, d.Reason, job.Instant(d.DiedAt)
	run.Error, run.Output, run.Seq = d.Error, d.Output, seq
	rec, ok, err := r.Record(seq)
	if err != nil {
		return job.DeadLetter{}, err
	}
	if ok {
		run.StartedAt = job.Instant(rec.StartedAt)
		if rec.EndedAt != 0 {
			run.FinishedAt = job.Instant(rec.EndedAt)
		}
	}
	def, err := r.definition(d.Run.Job)
	if err != nil {
		return job.DeadLetter{}, err
	}
	run.LagMS = lag(&run, def)
	return job.DeadLetter{Seq: seq, Run: run}, nil
}

func (b *Service) DeadLetters(ctx context.Context, q wire.DeadQuery, rd api.Read) (wire.DeadPage, error) {
	page := wire.DeadPage{Dead: []job.DeadLetter{}}
	var below uint64
	if q.Cursor != "" {
		var err error
		if below, err = strconv.ParseUint(q.Cursor, 10, 64); err != nil || below == 0 {
			return page, badCursor(errPageFull)
		}
	}
	var id job.ID
	err := b.read(ctx, rd, func(r *reader) (err error) {
		if q.Job != "" {
			id, err = r.findDead(q.Job, rd.Space)
		}
		return err
	})
	if err != nil {
		return page, err
	}
	if len(q.IDs) > 0 {
		err := b.view(func(r *reader) error {
			for _, seq := range q.IDs {
				d, ok, err := r.Dead(seq)
				if err != nil {
					return err
				}
				if !ok || !rd.Space.Finds(r.Namespace(d.Row.Class)) {
					continue
				}
				l, err := r.letter(seq, &d)
				if err != nil {
					return err
				}
				page.Dead = append(page.Dead, l)
			}
			return nil
		})
		return page, err
	}
	for looked := 0; looked < runsLimit; looked += viewRuns {
		if err := ctx.Err(); err != nil {
			return page, err
		}
		end := true
		err := b.view(func(r *reader) error {
			var inner error
			n := 0
			err := r.EachDead(below, func(seq uint64, d store.Dead) bool {
				if n == viewRuns || len(page.Dead) >= q.Limit {
					end = false
					return false
				}
				n++
				below = seq
				if !r.selects(&d, id, rd.Space) {
					return true
				}
				l, err := r.letter(seq, &d)
				if err != nil {
					inner = err
					return false
				}
				page.Dead = append(page.Dead, l)
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
		if len(page.Dead) >= q.Limit {
			break
		}
	}
	page.NextCursor = strconv.FormatUint(below, 10)
	return page, nil
}

// findDead resolves a reference to a job that may be gone: its dead letters are not.
func (r *reader) findDead(ref string, sc api.Space) (job.ID, error) {
	if id, err := job.ParseID(ref); err == nil {
		return id, nil
	}
	return r.find(ref, sc)
}

// selects says that a dead letter is of a job, or with 0 one of the namespace of a request.
func (r *reader) selects(d *store.Dead, id job.ID, sc api.Space) bool {
	space := r.Namespace(d.Row.Class)
	if id == 0 {
		return sc.Lists(space)
	}
	return d.Run.Job == id && sc.Finds(space)
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
	if q.Job != "" {
		err := b.view(func(r *reader) (err error) {
			id, err = r.findDead(q.Job, rq.Space)
			return err
		})
		if err != nil {
			return r, err
		}
	}
	if len(q.IDs) > 0 {
		if r.Unknown, err = b.unknownDead(ctx, q.IDs, rq); err != nil {
			return r, err
		}
	}
	var below uint64
	for chunk := 0; ; chunk++ {
		seqs, next, err := b.deadSeqs(ctx, q, rq.Space, id, below, chunk)
		if err != nil {
			return r, err
		}
		part := chunkOf(rq, chunk)
		o, err := b.changeNamed(ctx, part, "", func(a attempt) (fsm.Command, error) { return command(a, seqs), nil })
		if err != nil {
			return r, err
		}
		r.Count += o.Count
		if o.Replay {
			if o.Named < deadChunk {
				return r, nil // it was the last one: what died since is none of this request's business
			}
			continue // what was collected is still there for the next chunk
		}
		if len(seqs) < deadChunk {
			return r, nil
		}
		below = next
	}
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
	for part := range slices.Chunk(ids, viewRuns) {
		err := b.view(func(r *reader) error {
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
	chunk int) ([]uint64, uint64, error) {
	if len(q.IDs) > 0 {
		from := min(chunk*deadChunk, len(q.IDs))
		return q.IDs[from:min(from+deadChunk, len(q.IDs))], 0, nil
	}
	var seqs []uint64
	if below == 1 {
		return nil, 1, nil
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, below, err
		}
		end := true
		err := b.view(func(r *reader) error {
			n := 0
			return r.EachDead(below, func(seq uint64, d store.Dead) bool {
				if n == viewRuns || len(seqs) == deadChunk {
					end = false
					return false
				}
				n++
				below = seq
				if r.selects(&d, id, sc) {
					seqs = append(seqs, seq)
				}
				return true
			})
		})
		if end && err == nil {
			below = 1 // nothing is below it
		}
		if err != nil || end || len(seqs) == deadChunk {
			return seqs, below, err
		}
	}
}
