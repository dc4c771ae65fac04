package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/duplex"
	"github.com/carillon-scheduler/carillon/job"
)

// bulk creates a job for every line and answers line by line, in order. While the backend commits one chunk the next
// one is read and decoded: both cost about the same.
func (c *call) bulk() error {
	rq, err := c.bulkRequest()
	if err != nil {
		return err
	}
	if c.r.ContentLength > c.h.opts.Bulk.Bytes {
		return c.tooLarge(c.h.opts.Bulk.Bytes)
	}
	x := duplex.Begin(c.w, c.r) // answers begin before the last line was read
	defer x.End()
	c.w, c.r = x.W, x.R
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	p := &chunkPipe{full: make(chan *chunk), used: make(chan *chunk, 1)}
	b := &bulkWriter{c: c, ctx: ctx, rq: rq, used: p.used}
	done := make(chan struct{})
	var panicked any
	go func() {
		defer close(done)
		defer func() {
			panicked = recover() // a panic in a goroutine of its own would end the node
			cancel()             // the reader need not go on when its chunks are not taken,
			x.Hurry()            // nor wait for more
		}()
		err = b.run(p.full)
	}()
	readErr := c.readLines(ctx, p)
	close(p.full)
	<-done
	if panicked != nil {
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

// chunk is what goes to the backend at once. Two of them go round: one is read while the other is with the backend. A
// stream takes no more memory than that, however long it is and however slowly its answers are taken.
type chunk struct {
	lines []wire.BulkLine
	text  []byte // what the lines are in
}

type chunkPipe struct {
	full chan *chunk
	used chan *chunk // answered, and not used any more
}

// empty is a chunk to read into.
func (p *chunkPipe) empty() *chunk {
	select {
	case k := <-p.used:
		clear(k.lines) // what it held should not live as long as the request
		k.lines, k.text = k.lines[:0], k.text[:0]
		return k
	default:
		return &chunk{}
	}
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

// readLines cuts the body into chunks. Where a chunk ends depends on the content alone, never on how the network
// delivered it.
func (c *call) readLines(ctx context.Context, p *chunkPipe) error {
	limits := c.h.opts.Bulk
	rc := http.NewResponseController(c.w)
	body := &io.LimitedReader{R: c.r.Body, N: limits.Bytes + 1}
	in := bufio.NewReaderSize(body, 64<<10)
	k := p.empty()
	number, err := firstLine(c.r)
	if err != nil {
		return err
	}
	used := 0
	send := func() error {
		if len(k.lines) == 0 {
			return nil
		}
		// Both may be ready: the read of a body whose token was revoked is ended after the context.
		if err := ctx.Err(); err != nil {
			return err
		}
		select {
		case p.full <- k:
			k = p.empty()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		if in.Buffered() == 0 { // about to wait for the network
			deadline(rc.SetReadDeadline, c.h.opts.RequestTimeout)
			// A revocation sets one that has passed, after it ended the context: ours may have taken its place. So does
			// the writer of the answers when it ends.
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		raw, tooLong, err := k.readLine(in, limits.LineBytes)
		if err != nil && !errors.Is(err, io.EOF) {
			// What broke off in the middle of a line is not a line. Those before it are done and answered.
			if sendErr := send(); sendErr != nil {
				return sendErr
			}
			return job.Errorf(job.CodeMalformed, "send the rest again",
				"the body broke off after line %d: %v", number, err)
		}
		over := body.N <= 0
		if len(raw) > 0 || tooLong || err == nil {
			number++
		}
		if len(raw) > 0 || tooLong {
			used++
			k.lines = append(k.lines, wire.BulkLine{Line: number})
			line := &k.lines[len(k.lines)-1]
			switch {
			case over || used > limits.Lines:
				over = true
				line.Err = job.Errorf(job.CodeTooLarge, "send the rest in another request",
					"a bulk create has at most %d lines and %d bytes; this and the following lines were not read",
					limits.Lines, limits.Bytes)
			case tooLong:
				line.Err = job.Errorf(job.CodeTooLarge, "keep the data elsewhere and send a reference",
					"the line is larger than %d bytes", limits.LineBytes)
			default:
				line.Raw = raw
				line.Spec, line.Err = c.decodeLine(raw)
			}
		}
		if over {
			return send()
		}
		if len(k.lines) >= limits.ChunkLines || len(k.text) >= limits.ChunkBytes || err != nil {
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

// firstLine is how many lines went before those of a request that is a part of another. The number of a line is in its
// answer, and of an unnamed job it is a part of what a rerun knows it by.
func firstLine(r *http.Request) (int, error) {
	text := r.Header.Get(wire.LinesHeader)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, job.Invalid(wire.LinesHeader, "leave it out", "%q is not a number of lines", text)
	}
	return n, nil
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

// readLine gives one line without its ends, in the memory of the chunk. Of a line above the limit it gives nothing but
// reads past it.
func (k *chunk) readLine(in *bufio.Reader, limit int) (line []byte, tooLong bool, err error) {
	begin := len(k.text)
	for {
		part, err := in.ReadSlice('\n')
		if !tooLong {
			k.text = append(k.text, part...)
			line = bytes.TrimSpace(k.text[begin:])
			if len(line) > limit {
				line, tooLong = nil, true
				k.text = k.text[:begin]
			}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return line[:len(line):len(line)], tooLong, err
	}
}

// bulkWriter hands chunks to the backend and writes the answers.
type bulkWriter struct {
	c    *call
	ctx  context.Context
	rq   Request
	fail *job.Error // a chunk failed as a whole: later ones are not tried
	used chan<- *chunk
}

func (b *bulkWriter) run(chunks <-chan *chunk) error {
	var buf []byte
	rc := http.NewResponseController(b.c.w)
	defer deadline(rc.SetWriteDeadline, 0) // net/http would leave it on the connection for the next request
	for k := range chunks {
		results, err := b.create(k.lines)
		if err != nil {
			return err // and whatever the backend still does with the chunk, nothing else touches it
		}
		buf = buf[:0]
		for i := range results {
			if buf, err = wire.AppendResult(buf, &results[i]); err != nil {
				return err
			}
		}
		if b.fail == nil { // an error may mean that the backend is not done with it
			select {
			case b.used <- k:
			default:
			}
		}
		b.begin()
		// A client that does not read while it sends would otherwise wait for us as we wait for it.
		deadline(rc.SetWriteDeadline, b.c.h.opts.RequestTimeout)
		if _, err := b.c.w.Write(buf); err != nil {
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

// create answers every line of a chunk. When the backend fails before anything was answered the request as a whole
// fails; later, the lines of that chunk get its error and those after it are told that they were not tried.
func (b *bulkWriter) create(chunk []wire.BulkLine) ([]wire.BulkResult, error) {
	if err := b.ctx.Err(); err != nil {
		return nil, err
	}
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
		b.fail = job.Errorf(job.CodeUnavailable, "send it again",
			"not tried: an earlier line failed with %q", e.Message)
		return wire.AnswerAll(chunk, e), nil
	}
	return wire.AnswerAll(chunk, b.fail), nil
}
