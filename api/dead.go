package api

import (
	"bytes"
	"context"
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// deadRoutes are about dead letters.
func deadRoutes() []route {
	return []route{
		{"GET", "/dead", Viewer, ToLeader, AcrossJobs, emptyBody, (*call).listDead, params("job limit cursor stale")},
		{"GET", "/dead:groups", Viewer, ToLeader, AcrossJobs, emptyBody, (*call).deadGroups,
			params("job limit cursor stale")},
		{"DELETE", "/dead", Operator, ToLeader, AcrossJobs, jsonMaybe, (*call).purgeDead,
			params("ids job all group max")},
		{"GET", "/dead/{ref}", Viewer, ToLeader, ByLetter, emptyBody, (*call).getDead, params("stale")},
		{"POST", "/dead:redrive", Operator, ToLeader, AcrossJobs, jsonMaybe, (*call).redriveDead,
			params("ids job all group max")},
	}
}

// DeadBackend is what the routes of dead letters stand on.
type DeadBackend interface {
	DeadLetters(ctx context.Context, q wire.DeadQuery, rd Read) (wire.DeadPage, error)
	DeadGroups(ctx context.Context, q wire.DeadQuery, rd Read) (wire.DeadGroupPage, error)
	Redrive(ctx context.Context, q wire.DeadQuery, rq Request) (wire.DeadResult, error)
	PurgeDead(ctx context.Context, q wire.DeadQuery, rq Request) (wire.DeadResult, error)
}

// deadQuery is a page of dead letters, of one job or of all.
func (c *call) deadQuery() (q wire.DeadQuery, rd Read, err error) {
	if q.Limit, q.Cursor, rd, err = c.page(); err == nil {
		q.Job, err = c.one("job")
	}
	return q, rd, err
}

func (c *call) listDead() error {
	q, rd, err := c.deadQuery()
	if err != nil {
		return err
	}
	page, err := c.h.backend.DeadLetters(c.ctx, q, rd)
	if err != nil {
		return err
	}
	page.Dead = list(page.Dead)
	return c.replyPage(&page.NextCursor, &page)
}

func (c *call) deadGroups() error {
	q, rd, err := c.deadQuery()
	if err != nil {
		return err
	}
	page, err := c.h.backend.DeadGroups(c.ctx, q, rd)
	if err != nil {
		return err
	}
	page.Groups = list(page.Groups)
	return c.replyPage(&page.NextCursor, &page)
}

func (c *call) getDead() error {
	rd, err := c.read()
	if err != nil {
		return err
	}
	id, err := strconv.ParseUint(c.ref(), 10, 64)
	if err != nil {
		return job.Errorf(job.CodeNotFound, "GET "+prefix+"/dead lists them",
			"%q is not the number of a dead letter", c.ref())
	}
	page, err := c.h.backend.DeadLetters(c.ctx, wire.DeadQuery{IDs: []uint64{id}, Limit: 1}, rd)
	if err != nil {
		return err
	}
	if len(page.Dead) == 0 {
		return job.Errorf(job.CodeNotFound, "GET "+prefix+"/dead lists them", "there is no dead letter %d", id)
	}
	return c.reply(http.StatusOK, page.Dead[0])
}

const maxDeadIDs = 1000

// selection is what a redrive or a purge is about: in the query or in the body, but never nothing, and never two things
// at once whose combination a reader could take either way.
func (c *call) selection() (wire.DeadQuery, error) {
	var q wire.DeadQuery
	if len(bytes.TrimSpace(c.body)) > 0 {
		if len(c.query) > 0 {
			return q, job.Errorf(job.CodeInvalid, "use one of them",
				"the selection is both in the query and in the body")
		}
		if err := job.DecodeStrict(c.body, &q); err != nil {
			return q, err
		}
	} else {
		for _, w := range c.words("ids") {
			id, err := strconv.ParseUint(w, 10, 64)
			if err != nil {
				return q, job.Invalid("ids", "use the dead_id of the list", "%q is not the number of a dead letter", w)
			}
			q.IDs = append(q.IDs, id)
		}
		var err error
		if q.Job, err = c.one("job"); err != nil {
			return q, err
		}
		if q.All, err = c.flag("all"); err != nil {
			return q, err
		}
		if q.Group, err = c.one("group"); err != nil {
			return q, err
		}
		if q.Max, err = c.number("max"); err != nil {
			return q, err
		}
	}
	n := 0
	for _, given := range []bool{len(q.IDs) > 0, q.Job != "", q.All, q.Group != ""} {
		if given {
			n++
		}
	}
	switch {
	case n == 0:
		return q, job.Errorf(job.CodeInvalid, "give ids, job, group or all=true", "nothing is selected")
	case n > 1:
		return q, job.Errorf(job.CodeInvalid, "give one of ids, job, group and all", "the selection is ambiguous")
	case q.Max < 0:
		return q, job.Invalid("max", "leave it out to select all of them", "%d is negative", q.Max)
	case q.Max > 0 && len(q.IDs) > 0:
		return q, job.Invalid("max", "leave it out, or give fewer ids", "the ids already say how many")
	case len(q.IDs) > maxDeadIDs:
		return q, job.Invalid("ids", "select by job, or in several steps",
			"%d ids, at most %d are allowed", len(q.IDs), maxDeadIDs)
	}
	return q, nil
}

func (c *call) redriveDead() error { return c.changeDead(c.h.backend.Redrive) }

func (c *call) purgeDead() error { return c.changeDead(c.h.backend.PurgeDead) }

func (c *call) changeDead(do func(context.Context, wire.DeadQuery, Request) (wire.DeadResult, error)) error {
	q, err := c.selection()
	if err != nil {
		return err
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	r, err := do(c.ctx, q, rq)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, r)
}
