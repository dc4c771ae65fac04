package api

import (
	"context"
	"hash/maphash"
	"strings"

	"github.com/carillon-scheduler/carillon/api/lines"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	// maxApplied is how many lines an apply has: their names are remembered, to find one that comes twice.
	maxApplied = 100_000
	// applyChunk bounds how many answers with their changes are in memory.
	applyChunk = 1000
	// maxAssumed is how many calendars a dry run takes as there.
	maxAssumed = 1000
)

// applyJobs makes the jobs of a cluster what the lines say and answers line by line, in order: each job is created,
// changed or left as it is. Sending the same lines again finds nothing to do.
func (c *call) applyJobs() error {
	o, err := c.applyOptions()
	if err != nil {
		return err
	}
	rq, err := c.bulkRequest()
	if err != nil {
		return err
	}
	limits := c.h.opts.Bulk
	limits.Lines, limits.ChunkLines = min(limits.Lines, maxApplied), min(limits.ChunkLines, applyChunk)
	seed, seen := maphash.MakeSeed(), map[uint64]struct{}{}
	return serveLines(c, lines.Stream[wire.ApplyResult]{
		Limits: limits,
		Decode: func(raw []byte) (job.Spec, *job.Error) {
			spec, err := c.decodeLine(raw)
			if err != nil {
				return spec, err
			}
			if spec.Name = strings.TrimSpace(spec.Name); spec.Name == "" {
				return spec, job.Invalid("name", "give the job a name: apply finds jobs by name", "the job has no name")
			}
			key := maphash.String(seed, spec.Namespace+"\x00"+spec.Name)
			if _, twice := seen[key]; twice {
				return spec, job.Invalid("name", "keep one of them", "the name %q occurs twice", spec.Name)
			}
			seen[key] = struct{}{}
			return spec, intoSet(&spec, o.Set)
		},
		Do: func(ctx context.Context, some []wire.BulkLine) ([]wire.ApplyResult, error) {
			return c.h.backend.ApplyJobs(ctx, some, o, rq)
		},
		Refuse: func(r wire.BulkResult) wire.ApplyResult { return wire.ApplyResult{BulkResult: r} },
		Append: func(b []byte, r *wire.ApplyResult) ([]byte, error) { return wire.AppendJSON(b, r) },
	})
}

func (c *call) applyOptions() (o wire.ApplyOptions, err error) {
	if o.DryRun, err = c.flag("dry_run"); err != nil {
		return o, err
	}
	if o.TakeOver, err = c.flag("take_over"); err != nil {
		return o, err
	}
	if o.Set, err = c.one("set"); err != nil {
		return o, err
	}
	if c.query.Has("set") && (o.Set == "" || strings.TrimSpace(o.Set) != o.Set || strings.ContainsAny(o.Set, ",\x00") ||
		len(o.Set)+len(job.SetTag) > job.MaxTagBytes) {
		return o, job.Invalid("set", "use a short name, such as that of the repository",
			"%q is not a valid name for a set",
			o.Set)
	}
	text, err := c.one("calendars")
	if err != nil || text == "" {
		return o, err
	}
	o.Calendars = strings.Split(text, ",")
	switch {
	case !o.DryRun:
		err = job.Invalid("calendars", "leave it out: outside a dry run the calendars must exist",
			"only a dry run may assume that calendars exist")
	case len(o.Calendars) > maxAssumed:
		err = job.Invalid("calendars", "create them first", "%d calendars, at most %d may be assumed to exist",
			len(o.Calendars), maxAssumed)
	}
	return o, err
}

// intoSet gives a job the tag of a set.
func intoSet(spec *job.Spec, set string) *job.Error {
	switch own := spec.Tags[job.SetTag]; {
	case set == "" || own == set:
		return nil
	case own != "":
		return job.Invalid("tags", "remove the tag "+job.SetTag+" from the document, or apply it to that set",
			"the document puts the job into the set %q, and the request into %q", own, set)
	case spec.Tags == nil:
		spec.Tags = map[string]string{}
	}
	spec.Tags[job.SetTag] = set
	return nil
}
