package membudget

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"

	"github.com/carillon-scheduler/carillon/job"
)

// ErrTooLarge says that a body has more bytes than are read of it.
var ErrTooLarge = errors.New("the body is too large")

// kept is a body that is in memory as a whole, and counted.
type kept struct {
	*bytes.Reader
	data []byte
}

func (kept) Close() error { return nil }

// Kept is the body of a request whose data ReadBody gave: that is not counted a second time.
func Kept(data []byte) io.ReadCloser { return kept{bytes.NewReader(data), data} }

// partial is a body that ReadBody has read a part of and has held the room for.
type partial struct {
	io.Reader
	io.Closer
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// refused is a body for which there was no room, or which broke off. Nobody waits for it again.
type refused struct {
	failing
	io.Closer
}

// Refused stands for a body that is not to be read, and says why.
func Refused(err error, body io.Closer) io.ReadCloser { return refused{failing{err}, body} }

// ReadBody reads a body of up to limit bytes when there is room for it in the budget of the request's context, and
// holds that until the request ends. It can be called again, by whoever the request is handed to: a body that could not
// be read is left in the request as it was found, or with its error.
func ReadBody(r *http.Request, limit int64) ([]byte, error) {
	var held *Held
	switch b := r.Body.(type) {
	case nil:
		return nil, nil
	case kept:
		if int64(len(b.data)) > limit {
			return nil, ErrTooLarge
		}
		return b.data, nil
	case refused:
		return nil, b.err
	case partial:
	default:
		if r.Body == http.NoBody {
			return nil, nil
		}
		if r.ContentLength > limit {
			return nil, ErrTooLarge
		}
		var err error
		if held, err = of(r.Context()).body(r.Context(), r.ContentLength, limit); err != nil {
			r.Body = Refused(err, r.Body)
			return nil, err
		}
	}
	var buf bytes.Buffer
	if r.ContentLength > 0 && held != nil {
		buf.Grow(int(min(r.ContentLength, limit)) + bytes.MinRead) // not twice as much, as it would grow by itself
	}
	_, err := buf.ReadFrom(io.LimitReader(r.Body, limit+1))
	data := buf.Bytes()
	held.Keep(int64(len(data)))
	switch {
	case err != nil:
		r.Body = Refused(err, r.Body)
	case int64(len(data)) > limit:
		err = ErrTooLarge
		r.Body = partial{io.MultiReader(bytes.NewReader(data), r.Body), r.Body}
	default:
		r.Body = Kept(data)
		return data, nil
	}
	return nil, err
}

// Explain is what a caller is told of a body that ReadBody could not read.
func Explain(err error, limit int64) error {
	var known *job.Error
	switch {
	case errors.As(err, &known): // there was no room for it
		return known
	case errors.Is(err, ErrTooLarge):
		return job.Errorf(job.CodeTooLarge, "send less", "the body is larger than %d bytes", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return job.Errorf(job.CodeMalformed, "send it faster", "the body did not arrive in time")
	}
	return job.Errorf(job.CodeMalformed, "", "the body broke off: %v", err)
}
