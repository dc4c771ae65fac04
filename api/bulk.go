package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// bulk creates a job for every line and answers line by line, in order. While the backend commits one chunk the next one is read
// and decoded: both cost about the same.
func (c *call) bulk() error {
	rq, err := c.bulkRequest()
	if err != nil {
		return err
	}
	if c.r.ContentLength > c.h.opts.Bulk.Bytes {
		return c.tooLarge(c.h.opts.Bulk.Bytes)
	}
	// Answers begin before the last line was read; without this net/http would first swallow or cut off the rest of the body.
	_ = http.NewResponseController(c.w).EnableFullDuplex() //nolint:errcheck // unsupported is fine: HTTP/2 always is

	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	chunks := make(chan []client.BulkLine, 1)
	b := &bulkWriter{c: c, ctx: ctx, rq: rq}
	done := make(chan error, 1)
	var panicked any
	go func() {
		defer cancel() // the reader need not go on when nobody takes its chunks
		defer close(done)
		defer func() { panicked = recover() }() // a panic in a goroutine of its own would end the node
		done <- b.run(chunks)
	}()
	readErr := c.readLines(ctx, chunks)
	close(chunks)
	err, ok := <-done
	if !ok {
		panic(panicked)
	}
	if err != nil {
		return err
	}
	if readErr == nil && !c.started { // nothing but blank lines
		b.begin()
	}
	return readErr
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

// readLines cuts the body into chunks. Where a chunk ends depends on the content alone, never on how the network delivered it.
func (c *call) readLines(ctx context.Context, chunks chan<- []client.BulkLine) error {
	limits := c.h.opts.Bulk
	rc := http.NewResponseController(c.w)
	body := io.LimitReader(c.r.Body, limits.Bytes+1)
	counted := &countingReader{r: body}
	in := bufio.NewReaderSize(counted, 64<<10)
	var chunk []client.BulkLine
	size, number, used := 0, 0, 0
	send := func() error {
		if len(chunk) == 0 {
			return nil
		}
		select {
		case chunks <- chunk:
			chunk, size = nil, 0
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		if in.Buffered() == 0 { // about to wait for the network
			deadline(rc.SetReadDeadline, c.h.opts.RequestTimeout)
		}
		raw, tooLong, err := readLine(in, limits.LineBytes)
		if err != nil && !errors.Is(err, io.EOF) {
			// What broke off in the middle of a line is not a line. Those before it are done and answered.
			if sendErr := send(); sendErr != nil {
				return sendErr
			}
			return job.Errorf(job.CodeMalformed, "send the rest again", "the body broke off after line %d: %v", number, err)
		}
		over := counted.n > limits.Bytes
		if len(raw) > 0 || tooLong || err == nil {
			number++
		}
		if len(raw) > 0 || tooLong {
			line := client.BulkLine{Line: number}
			used++
			switch {
			case over || used > limits.Lines:
				over = true
				line.Err = job.Errorf(job.CodeTooLarge, "send the rest in another request", "a bulk create has at most %d lines and %d bytes; this and the following lines were not read", limits.Lines, limits.Bytes)
			case tooLong:
				line.Err = job.Errorf(job.CodeTooLarge, "keep the data elsewhere and send a reference", "the line is larger than %d bytes", limits.LineBytes)
			default:
				line.Raw = raw
				line.Spec, line.Err = decodeLine(raw)
			}
			chunk = append(chunk, line)
			size += len(raw)
		}
		if over {
			return send()
		}
		if len(chunk) >= limits.ChunkLines || size >= limits.ChunkBytes || err != nil {
			if err := send(); err != nil {
				return err
			}
		}
		if err != nil {
			deadline(rc.SetReadDeadline, 0)
			return nil
		}
	}
}

func decodeLine(raw []byte) (job.Spec, *job.Error) {
	spec, err := decodeSpec(raw)
	if err == nil {
		return spec, nil
	}
	var e *job.Error
	if !errors.As(err, &e) {
		e = job.Errorf(job.CodeMalformed, "", "%v", err)
	}
	return job.Spec{}, e
}

// readLine gives one line without its ends, in memory of its own. Of a line above the limit it gives nothing but reads past it.
func readLine(in *bufio.Reader, limit int) (line []byte, tooLong bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		if !tooLong {
			line = append(line, part...)
			if len(bytes.TrimSpace(line)) > limit {
				line, tooLong = nil, true
			}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimSpace(line), tooLong, err
	}
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// bulkWriter hands chunks to the backend and writes the answers.
type bulkWriter struct {
	c    *call
	ctx  context.Context
	rq   Request
	fail *job.Error // a chunk failed as a whole: later ones are not tried
}

func (b *bulkWriter) run(chunks <-chan []client.BulkLine) error {
	var buf bytes.Buffer
	rc := http.NewResponseController(b.c.w)
	defer deadline(rc.SetWriteDeadline, 0) // net/http would leave it on the connection for the next request
	for chunk := range chunks {
		results, err := b.create(chunk)
		if err != nil {
			return err
		}
		buf.Reset()
		for i := range results {
			if err := encode(&buf, &results[i]); err != nil {
				return err
			}
		}
		b.begin()
		// A client that does not read while it sends would otherwise wait for us as we wait for it.
		deadline(rc.SetWriteDeadline, b.c.h.opts.RequestTimeout)
		if _, err := b.c.w.Write(buf.Bytes()); err != nil {
			return err
		}
		if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
	}
	return nil
}

func (b *bulkWriter) begin() {
	if !b.c.started {
		b.c.started = true
		b.c.w.Header().Set("Content-Type", "application/x-ndjson")
		b.c.w.WriteHeader(http.StatusOK)
	}
}

// create answers every line of a chunk. When the backend fails before anything was answered the request as a whole fails; later,
// the lines of that chunk get its error and those after it are told that nobody tried.
func (b *bulkWriter) create(chunk []client.BulkLine) ([]client.BulkResult, error) {
	if b.fail == nil {
		ctx, cancel := context.WithTimeout(b.ctx, b.c.h.opts.RequestTimeout)
		results, err := b.c.h.backend.BulkCreate(ctx, chunk, b.rq)
		cancel()
		switch {
		case err == nil && len(results) != len(chunk):
			return nil, fmt.Errorf("the backend answered %d of %d lines", len(results), len(chunk))
		case err == nil:
			return results, nil
		case !b.c.started || b.ctx.Err() != nil:
			return nil, err
		}
		e := &job.Error{}
		if !errors.As(err, &e) {
			e = b.c.gaveUp()
		}
		b.fail = job.Errorf(job.CodeUnavailable, "send it again", "not tried: an earlier line failed with %q", e.Message)
		return answerAll(chunk, e), nil
	}
	return answerAll(chunk, b.fail), nil
}

func answerAll(chunk []client.BulkLine, e *job.Error) []client.BulkResult {
	out := make([]client.BulkResult, len(chunk))
	for i, line := range chunk {
		out[i] = client.BulkResult{Line: line.Line, Status: "error", Name: line.Spec.Name, Error: e}
		if line.Err != nil {
			out[i].Error = line.Err
		}
	}
	return out
}
