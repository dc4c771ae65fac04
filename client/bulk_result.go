package client

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/carillon-scheduler/carillon/job"
)

// resultReader reads the answers of a bulk create, one a line; most of them without reflection. Memory is taken for several at a time.
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
