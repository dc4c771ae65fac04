package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// One request of a bulk create. They are kept in memory until they are answered, so that they can be repeated, and small enough that
// no buffer on the way fills up before the answers are read.
const (
	bulkLines = 10_000
	bulkBytes = 4 << 20
	bulkLine  = 256 << 10
)

// BulkCreate creates a job for every line of NDJSON and calls fn with each line's result, in order. It returns an error when lines
// remain unanswered; sending the same input again is safe.
func (c *Client) BulkCreate(ctx context.Context, r io.Reader, fn func(BulkResult) error) error {
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
			if err := c.bulk(ctx, body, first, fn); err != nil {
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

// bulk sends one request. When it breaks off, or a line met a change of the leader, it is sent again as a whole, and what was answered
// already is not reported twice.
func (c *Client) bulk(ctx context.Context, body []byte, first int, fn func(BulkResult) error) error {
	reported := 0
	pause := c.pause
	for attempt := 1; ; attempt++ {
		answered := 0
		var callerErr error
		last := attempt >= c.attempts
		err := c.do(ctx, request{method: http.MethodPost, path: prefix + "/jobs:bulk", raw: body, media: "application/x-ndjson", noKey: true, lines: true, stream: func(r io.Reader) error {
			in := resultReader{in: bufio.NewReaderSize(r, 64<<10)}
			for {
				res, err := in.next()
				if errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return readError{err}
				}
				if answered++; answered <= reported {
					continue
				}
				if res.Error != nil && passes(res.Error.Code) && !last {
					return readError{res.Error}
				}
				reported++
				res.Line += first
				if callerErr = fn(res); callerErr != nil {
					return callerErr
				}
			}
		}})
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
