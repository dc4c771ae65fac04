package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// One request of a bulk create. They are kept in memory until they are answered, so that they can be repeated, and
// small enough that no buffer on the way fills up before the answers are read.
const (
	bulkLines = 10_000
	bulkBytes = 4 << 20
	bulkLine  = 256 << 10
)

// BulkCreate creates a job for every line of NDJSON and calls fn with each line's result, in order. It returns an error
// when lines remain unanswered; sending the same input again is safe.
func (c *Client) BulkCreate(ctx context.Context, r io.Reader, fn func(BulkResult) error) error {
	rq := request{path: prefix + "/jobs:bulk"}
	return sendLines(ctx, c, r, rq, func(in *resultReader) (BulkResult, error) { return in.next() },
		func(r *BulkResult) *BulkResult { return r }, fn)
}

// ApplyJobs creates the job of every line of NDJSON, changes the one that has its name, or leaves it as it is, and
// calls fn with each line's result, in order. It returns an error when lines remain unanswered; sending the same input
// again is safe.
func (c *Client) ApplyJobs(ctx context.Context, r io.Reader, o ApplyOptions, fn func(ApplyResult) error) error {
	q := url.Values{}
	for name, given := range map[string]bool{"dry_run": o.DryRun, "take_over": o.TakeOver} {
		if given {
			q.Set(name, "true")
		}
	}
	if o.Set != "" {
		q.Set("set", o.Set)
	}
	if len(o.Calendars) > 0 {
		q.Set("calendars", strings.Join(o.Calendars, ","))
	}
	rq := request{path: prefix + "/jobs:apply", query: q}
	return sendLines(ctx, c, r, rq, nextApplied, func(r *ApplyResult) *BulkResult { return &r.BulkResult }, fn)
}

func nextApplied(in *resultReader) (res ApplyResult, err error) {
	for {
		line, err := in.line()
		if text := bytes.TrimSpace(line); len(text) > 0 && (err == nil || errors.Is(err, io.EOF)) {
			if jsonErr := json.Unmarshal(text, &res); jsonErr != nil && err != nil { // it broke off in the middle
				return res, io.ErrUnexpectedEOF
			} else if jsonErr != nil {
				return res, jsonErr
			}
			return res, nil
		}
		if err != nil {
			return res, err
		}
	}
}

// sendLines sends lines in requests like rq, and calls fn with the result of each. next reads a result, base is what
// all kinds of them have.
func sendLines[R any](ctx context.Context, c *Client, r io.Reader, rq request, next func(*resultReader) (R, error),
	base func(*R) *BulkResult, fn func(R) error) error {
	in := bufio.NewReaderSize(r, 256<<10)
	first := 0 // lines before this request
	size := 0  // of the last one: the next is probably as large
	for {
		body, lines, err := cutLines(in, size)
		size = len(body)
		if err != nil && !errors.Is(err, io.EOF) {
			return job.Errorf(job.CodeMalformed, "", "the input broke off after line %d: %v", first+lines, err)
		}
		if len(bytes.TrimSpace(body)) > 0 {
			// A node knows a job without a name again by its text and the number of its line. Were each request
			// numbered by itself, equal lines of two of them would be one job.
			rq.raw, rq.before = body, first
			if err := sendBody(ctx, c, rq, next, base, fn); err != nil {
				return err
			}
		}
		first += lines
		if err != nil {
			return nil
		}
	}
}

// cutLines takes the lines of one request off the input.
func cutLines(in *bufio.Reader, size int) (body []byte, lines int, err error) {
	body = make([]byte, 0, size+size/8) // one of its own: the last may still be on its way
	for lines < bulkLines && len(body) < bulkBytes {
		part, err := in.ReadSlice('\n')
		body = append(body, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			if len(body) > bulkBytes+2*bulkLine {
				return body, lines, errors.New("a line is far too long")
			}
			continue
		}
		if err != nil {
			return body, lines, err
		}
		lines++
	}
	return body, lines, nil
}

// sendBody sends one request. When it breaks off, or a line met a change of the leader, it is sent again as a whole,
// and what was answered already is not reported twice.
func sendBody[R any](ctx context.Context, c *Client, rq request, next func(*resultReader) (R, error),
	base func(*R) *BulkResult, fn func(R) error) error {
	reported := 0
	pause := c.pause
	for attempt := 1; ; attempt++ {
		answered := 0
		var callerErr error
		last := attempt >= c.attempts
		rq.method, rq.media, rq.noKey, rq.lines = http.MethodPost, "application/x-ndjson", true, true
		rq.stream = func(r io.Reader) error {
			in := resultReader{in: bufio.NewReaderSize(r, 64<<10)}
			for {
				res, err := next(&in)
				if errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return readError{err}
				}
				if answered++; answered <= reported {
					continue
				}
				b := base(&res)
				if b.Error != nil && passes(b.Error.Code) && !last {
					return readError{b.Error}
				}
				reported++
				if callerErr = fn(res); callerErr != nil {
					return callerErr
				}
			}
		}
		err := c.do(ctx, rq)
		if err == nil || callerErr != nil || job.CodeOf(err) != job.CodeOutcomeUnknown || last || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
		pause = min(2*pause, 2*time.Second)
	}
}

// passes says whether a line that was answered so may be answered otherwise soon.
func passes(c job.Code) bool {
	return c == job.CodeOutcomeUnknown || c == job.CodeNoLeader || c == job.CodeNotLeader || c == job.CodeUnavailable
}

// resultReader reads the answers of a bulk create, one a line; most of them without reflection. Memory is taken for
// several at a time.
type resultReader struct {
	in  *bufio.Reader
	ids []job.ID
}

// maxResult bounds one answer: a line's name and what is wrong with it.
const maxResult = 1 << 20

// next is the next answer, io.EOF after the last.
func (r *resultReader) next() (res BulkResult, err error) {
	for {
		line, err := r.line()
		text := bytes.TrimSpace(line)
		switch {
		case len(text) > 0 && (err == nil || errors.Is(err, io.EOF)):
			if r.read(text, &res) {
				return res, nil
			}
			res = BulkResult{}
			if jsonErr := json.Unmarshal(text, &res); jsonErr != nil {
				if err != nil { // it broke off in the middle
					jsonErr = io.ErrUnexpectedEOF
				}
				return res, jsonErr
			}
			return res, nil
		case err != nil:
			return res, err
		}
	}
}

func (r *resultReader) line() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	long := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(long) > maxResult {
			return nil, errors.New("a line of the answer is far too long")
		}
		line, err = r.in.ReadSlice('\n')
		long = append(long, line...)
	}
	return long, err
}

// read reads an answer exactly as a node writes it when all went well. It gives up on everything else.
func (r *resultReader) read(b []byte, res *BulkResult) bool {
	b, ok := bytes.CutPrefix(b, []byte(`{"line":`))
	n := 0
	for ; n < len(b) && n < 10 && b[n] >= '0' && b[n] <= '9'; n++ {
		res.Line = 10*res.Line + int(b[n]-'0')
	}
	if !ok || n == 0 || n > 1 && b[0] == '0' {
		return false
	}
	switch b = b[n:]; {
	case cutWord(&b, `,"status":"created","job_id":"`):
		res.Status = "created"
	case cutWord(&b, `,"status":"exists","job_id":"`):
		res.Status = "exists"
	default:
		return false
	}
	id, ok := quoted(&b)
	if !ok {
		return false
	}
	number, err := job.ParseID(string(id))
	if err != nil {
		return false
	}
	if len(r.ids) == 0 {
		r.ids = make([]job.ID, 256)
	}
	r.ids[0] = number
	res.JobID, r.ids = &r.ids[0], r.ids[1:]
	if cutWord(&b, `,"name":"`) {
		name, ok := quoted(&b)
		if !ok || len(name) == 0 {
			return false
		}
		res.Name = string(name)
	}
	return string(b) == "}"
}

func cutWord(b *[]byte, prefix string) bool {
	if len(*b) < len(prefix) || string((*b)[:len(prefix)]) != prefix {
		return false
	}
	*b = (*b)[len(prefix):]
	return true
}

// quoted reads up to the quote that ends a string, if it is one that needs no escapes.
func quoted(b *[]byte) ([]byte, bool) {
	for i, c := range *b {
		switch {
		case c == '"':
			w := (*b)[:i]
			*b = (*b)[i+1:]
			return w, true
		case c < 0x20 || c > 0x7e || c == '\\':
			return nil, false
		}
	}
	return nil, false
}
