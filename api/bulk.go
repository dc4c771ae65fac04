package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/carillon-scheduler/carillon/api/lines"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/duplex"
	"github.com/carillon-scheduler/carillon/job"
)

// bulk creates a job for every line and answers line by line, in order.
func (c *call) bulk() error {
	rq, err := c.bulkRequest()
	if err != nil {
		return err
	}
	return serveLines(c, lines.Stream[wire.BulkResult]{
		Limits: c.h.opts.Bulk,
		Decode: c.decodeLine,
		Do: func(ctx context.Context, some []wire.BulkLine) ([]wire.BulkResult, error) {
			return c.h.backend.BulkCreate(ctx, some, rq)
		},
		Refuse: func(r wire.BulkResult) wire.BulkResult { return r },
		Append: wire.AppendResult,
	})
}

// serveLines answers a request that is a job a line.
func serveLines[R any](c *call, s lines.Stream[R]) error {
	if c.r.ContentLength > s.Limits.Bytes {
		return c.tooLarge(s.Limits.Bytes)
	}
	s.Timeout, s.GaveUp = c.h.opts.RequestTimeout, c.gaveUp
	s.Begin = func(w http.ResponseWriter) {
		c.started = true
		w.Header().Set("Content-Type", "application/x-ndjson")
		w.WriteHeader(http.StatusOK)
	}
	x := duplex.Begin(c.w, c.r) // answers begin before the last line was read
	defer x.End()
	c.w, c.r = x.W, x.R
	return s.Serve(c.ctx, x)
}

// bulkRequest is the key for all chunks. There may be none: a rerun is recognised by names and content.
func (c *call) bulkRequest() (Request, error) {
	rq, err := c.request()
	if !rq.Client {
		rq.Key = ""
	}
	rq.Fingerprint = 0 // the body is not known when the first chunk goes out
	return rq, err
}

func (c *call) decodeLine(raw []byte) (job.Spec, *job.Error) {
	spec, err := decodeSpec(raw)
	if err == nil {
		spec.Namespace, err = c.into(spec.Namespace)
	}
	if err == nil {
		return spec, nil
	}
	var e *job.Error
	if !errors.As(err, &e) {
		e = job.Errorf(job.CodeMalformed, "", "%v", err)
	}
	return job.Spec{}, e
}
