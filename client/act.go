package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// ActOnJobs does the same with every job that a filter matches and calls fn with each line of progress, until the last
// one, which is finished or says why it is not. If the answer breaks off, call it again with the cursor of the last
// line and, for what must not be done twice, the same key (WithIdempotencyKey).
func (c *Client) ActOnJobs(ctx context.Context, a JobAction, fn func(JobActionProgress) error) error {
	return c.do(ctx, request{method: http.MethodPost, path: prefix + "/jobs:act", body: a, lines: true,
		stream: func(r io.Reader) error {
			for dec := json.NewDecoder(r); ; {
				var p JobActionProgress
				switch err := dec.Decode(&p); {
				case errors.Is(err, io.EOF):
					return readError{io.ErrUnexpectedEOF}
				case err != nil:
					return readError{err}
				}
				if err := fn(p); err != nil {
					return err
				}
				switch {
				case p.Error != nil:
					return p.Error
				case p.Finished:
					return nil
				}
			}
		}})
}
