// Package lines reads requests that are a job a line and answers them line by line, in chunks: while the backend
// commits one the next one is read and decoded, because both cost about the same.
package lines

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/duplex"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/job"
)

// Limits bound one request. Zero means the default.
type Limits struct {
	Bytes      int64 // of the whole request; default 256 MiB
	Lines      int   // of the whole request; default 1,000,000
	LineBytes  int   // default 256 KiB
	ChunkLines int   // what goes to the backend at once; default 4,000
	ChunkBytes int   // default 1 MiB
}

// Defaults fills in what is zero.
func (l *Limits) Defaults() {
	def := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	if l.Bytes <= 0 {
		l.Bytes = 256 << 20
	}
	def(&l.Lines, 1_000_000)
	def(&l.LineBytes, 256<<10)
	def(&l.ChunkLines, 4000)
	def(&l.ChunkBytes, 1<<20)
}

// Stream is such a request, whose lines are answered with an R each.
type Stream[R any] struct {
	Limits  Limits
	Timeout time.Duration // of a chunk, and of every wait for the network
	// Decode reads a line.
	Decode func(raw []byte) (job.Spec, *job.Error)
	// Do has the backend do a chunk. An error is about all of it.
	Do func(context.Context, []wire.BulkLine) ([]R, error)
	// Refuse is the answer for a line of a chunk that failed as a whole.
	Refuse func(wire.BulkResult) R
	// Append writes an answer, with the end of its line.
	Append func([]byte, *R) ([]byte, error)
	// Begin begins the answer, once.
	Begin func(http.ResponseWriter)
	// GaveUp is the error of a chunk whose outcome is not known.
	GaveUp func() *job.Error

	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context
	started bool
	fail    *job.Error // a chunk failed as a whole: later ones are not tried
}

// Serve reads the request and writes the answers. What it returns before the answer began is the answer.
func (s *Stream[R]) Serve(ctx context.Context, x *duplex.Exchange) error {
	s.w, s.r = x.W, x.R
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.ctx = ctx
	full := make(chan *chunk)
	done := make(chan struct{})
	var panicked any
	var err error
	go func() {
		defer close(done)
		defer func() {
			panicked = recover() // a panic in a goroutine of its own would end the node
			cancel()             // the reader need not go on when its chunks are not taken,
			x.Hurry()            // nor wait for more
		}()
		err = s.answer(full)
	}()
	readErr := s.read(ctx, full)
	close(full)
	<-done
	if panicked != nil {
		panic(panicked)
	}
	if err != nil {
		return err
	}
	if readErr == nil { // there may have been nothing but blank lines
		s.begin()
	}
	return readErr
}

func (s *Stream[R]) begin() {
	if !s.started {
		s.started = true
		s.Begin(s.w)
	}
}

// chunk is what goes to the backend at once. One is read while another is with the backend. A stream takes no more
// memory than that, however long it is and however slowly its answers are taken.
type chunk struct {
	lines []wire.BulkLine
	text  []byte // what the lines are in
	held  *membudget.Held
	begun bool // there is room for it
}

// chunks are those that are not used now.
var chunks = sync.Pool{New: func() any { return &chunk{} }}

// readAhead is what is read of a stream before it is cut into lines.
const readAhead = 64 << 10

// newChunk waits for room for a chunk of a stream of which something has come: one that pauses between two has none.
// All of it is taken at once: streams with a part of a chunk each that wait for each other would never get on.
func (s *Stream[R]) newChunk(ctx context.Context) (*chunk, error) {
	size := int64(s.Limits.ChunkBytes + s.Limits.LineBytes + readAhead)
	if n := s.r.ContentLength; n >= 0 {
		size = min(size, n)
	}
	wait, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	held, err := membudget.Chunk(wait, size)
	if err != nil {
		return nil, err
	}
	k := chunks.Get().(*chunk)
	k.held, k.begun = held, true
	return k, nil
}

// free gives the room of a chunk back, and the chunk itself if nobody else has it.
func (k *chunk) free(again bool) {
	held := k.held
	if k.held, k.begun = nil, false; again {
		clear(k.lines) // what it held should not live on
		k.lines, k.text = k.lines[:0], k.text[:0]
		chunks.Put(k)
	}
	held.Release()
}

// read cuts the body into chunks. Where a chunk ends depends on the content alone, never on how the network
// delivered it.
func (s *Stream[R]) read(ctx context.Context, full chan<- *chunk) error {
	limits := s.Limits
	rc := http.NewResponseController(s.w)
	body := &io.LimitedReader{R: s.r.Body, N: limits.Bytes + 1}
	in := bufio.NewReaderSize(body, readAhead)
	k := &chunk{}
	number, err := firstLine(s.r)
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
		case full <- k:
			k = &chunk{}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	hurry := func() error {
		Deadline(rc.SetReadDeadline, s.Timeout)
		// A revocation sets one that has passed, after it ended the context: ours may have taken its place. So does the
		// writer of the answers when it ends.
		return ctx.Err()
	}
	for {
		if in.Buffered() == 0 { // about to wait for the network
			if err := hurry(); err != nil {
				return err
			}
		}
		if _, err := in.Peek(1); err == nil && !k.begun {
			if k, err = s.newChunk(ctx); err == nil {
				err = hurry() // the wait was not the sender's
			}
			if err != nil {
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
					"a request has at most %d lines and %d bytes; this and the following lines were not read",
					limits.Lines, limits.Bytes)
			case tooLong:
				line.Err = job.Errorf(job.CodeTooLarge, "keep the data elsewhere and send a reference",
					"the line is larger than %d bytes", limits.LineBytes)
			default:
				line.Raw = raw
				line.Spec, line.Err = s.Decode(raw)
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
			Deadline(rc.SetReadDeadline, 0)
			return nil
		}
	}
}

// maxBefore bounds how many lines may have gone before.
const maxBefore = 1 << 40

// firstLine is how many lines went before those of a request that is a part of a longer input. The number of a line is
// in its answer, and of an unnamed job it is a part of what a rerun knows it by.
func firstLine(r *http.Request) (int, error) {
	text := r.Header.Get(wire.LinesHeader)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxBefore {
		return 0, job.Invalid(wire.LinesHeader, "give the number of lines that were sent before these",
			"%q is not a number of lines", text)
	}
	return n, nil
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

// answer hands chunks to the backend and writes the answers.
func (s *Stream[R]) answer(full <-chan *chunk) error {
	var buf []byte
	rc := http.NewResponseController(s.w)
	defer Deadline(rc.SetWriteDeadline, 0) // net/http would leave it on the connection for the next request
	for k := range full {
		results, err := s.do(k.lines)
		if err != nil {
			return err // and whatever the backend still does with the chunk, nothing else touches it
		}
		buf = buf[:0]
		for i := range results {
			if buf, err = s.Append(buf, &results[i]); err != nil {
				return err
			}
		}
		k.free(s.fail == nil) // an error may mean that the backend is not done with it
		s.begin()
		// A client that does not read while it sends would otherwise wait for us as we wait for it.
		Deadline(rc.SetWriteDeadline, s.Timeout)
		if _, err := s.w.Write(buf); err != nil {
			return err
		}
		if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
	}
	return nil
}

// do answers every line of a chunk. When the backend fails before anything was answered the request as a whole
// fails; later, the lines of that chunk get its error and those after it are told that they were not tried.
func (s *Stream[R]) do(chunk []wire.BulkLine) ([]R, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	if s.fail == nil {
		ctx, cancel := context.WithTimeout(s.ctx, s.Timeout)
		results, err := s.Do(ctx, chunk)
		cancel()
		switch {
		case err == nil && len(results) != len(chunk):
			return nil, fmt.Errorf("only %d of %d lines were answered", len(results), len(chunk))
		case err == nil:
			return results, nil
		case !s.started || s.ctx.Err() != nil:
			return nil, err
		}
		e := &job.Error{}
		if !errors.As(err, &e) {
			e = s.GaveUp()
		}
		s.fail = job.Errorf(job.CodeUnavailable, "send it again",
			"not tried: an earlier line failed with %q", e.Message)
		return s.refuse(chunk, e), nil
	}
	return s.refuse(chunk, s.fail), nil
}

func (s *Stream[R]) refuse(chunk []wire.BulkLine, e *job.Error) []R {
	out := make([]R, len(chunk))
	for i, line := range chunk {
		r := wire.BulkResult{Line: line.Line, Status: "error", Name: line.Spec.Name, Error: e}
		if line.Err != nil {
			r.Error = line.Err
		}
		out[i] = s.Refuse(r)
	}
	return out
}

// Deadline sets a deadline on the connection, none for 0. A connection that has no deadlines (a test's) goes without.
func Deadline(set func(time.Time) error, d time.Duration) {
	t := time.Time{}
	if d > 0 {
		t = time.Now().Add(d)
	}
	_ = set(t) //nolint:errcheck // unsupported is fine
}
