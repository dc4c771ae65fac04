package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api/lines"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/internal/sealer"
	"github.com/carillon-scheduler/carillon/job"
)

// call is one request on its way through its route.
type call struct {
	h       *handler
	w       http.ResponseWriter
	r       *http.Request
	ctx     context.Context
	route   route
	query   url.Values
	space   Space
	body    []byte
	ifMatch bool            // the version came from If-Match: a mismatch is 412
	started bool            // a stream's answer has begun
	room    *membudget.Held // for the answer, until it was taken
	unread  bool            // there was no room for it: others were not read yet
	turn    turn            // for a read that computes much
	seal    *sealer.Sealer  // of a worker's token; nil: nothing is sealed
	pending any             // how far something is that goes on after the answer; nil: it is done
}

func (c *call) ref() string { return c.r.PathValue("ref") }

func (c *call) markReplay() { c.w.Header().Set("Idempotent-Replay", "true") }

// say warns of something in the answer.
func (c *call) say(warning string) { c.w.Header().Add(wire.WarningHeader, warning) }

// readQuery refuses parameters that the route does not know: a filter with a typing error must not list everything.
func (c *call) readQuery() error {
	if c.r.URL.RawQuery == "" {
		return nil
	}
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return job.Errorf(job.CodeMalformed, "percent-encode special characters",
			"the query string cannot be read: %v", err)
	}
	if slices.Contains(c.route.query, anyQuery) {
		return nil
	}
	var unknown []string
	for name := range q {
		if !slices.Contains(c.route.query, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		name := slices.Min(unknown)
		remedy := "this route has no parameters"
		if len(c.route.query) > 0 {
			remedy = "the parameters are " + strings.Join(c.route.query, ", ")
		}
		return &job.Error{Code: job.CodeUnknownField,
			Field: name, Message: "there is no such query parameter" + job.Suggest(name, c.route.query), Remedy: remedy}
	}
	c.query = q
	return nil
}

var mediaTypes = map[bodyKind][]string{
	jsonBody:   {"application/json"},
	jsonMaybe:  {"application/json"},
	jsonStream: {"application/json"},
	patchBody:  {"application/merge-patch+json", "application/json"},
	linesBody:  {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/json"},

	workerBody: {wire.MediaJSON, wire.MediaMsgpack},
	pollBody:   {wire.MediaJSON, wire.MediaMsgpack},
}

// curlDefault is what `curl -d` says of a body unless told otherwise. A browser's form from another site is refused
// before this, by its origin.
const curlDefault = "application/x-www-form-urlencoded"

func (c *call) checkContentType() error {
	given := c.r.Header.Get("Content-Type")
	want := mediaTypes[c.route.body]
	if given == "" || want == nil || c.r.ContentLength == 0 {
		return nil
	}
	media, params, err := mime.ParseMediaType(given)
	if media == curlDefault {
		return nil // forms are not sent; the body is read strictly as what the route wants
	}
	charset := strings.ToLower(params["charset"])
	if err != nil || !slices.Contains(want, media) || (charset != "" && charset != "utf-8") {
		return job.Errorf(job.CodeUnsupportedMedia, "send it with -H 'Content-Type: "+want[0]+"'",
			"%q is not a content type that this route reads", given)
	}
	return nil
}

// readBody reads what is not a stream, up to the limit.
func (c *call) readBody() error {
	kind := c.route.body
	if kind == linesBody || kind == streamBody || c.route.method == http.MethodGet {
		return nil
	}
	limit := c.route.most()
	switch {
	case limit == defaultMaxBody || c.route.role == Anyone && !c.h.opts.Secure:
		limit = c.h.opts.MaxBody
	case c.route.way == AsAsked && c.query.Has(queueParam): // it is carried to the leader
		limit = min(limit, c.h.opts.MaxBody)
	}
	rc := http.NewResponseController(c.w)
	deadline(rc.SetReadDeadline, c.h.opts.RequestTimeout)
	if err := Revoked(c.r.Context()); err != nil {
		return err // this deadline may have taken the place of the one that ends the request
	}
	// On a copy: by the body of the request as it came, net/http knows that it has to be patient with one that was not
	// read to its end.
	body, err := membudget.ReadBody(c.r.WithContext(c.r.Context()), limit)
	if errors.Is(err, membudget.ErrTooLarge) {
		return c.tooLarge(limit)
	}
	if err != nil {
		// The deadline stays: net/http would otherwise wait for the rest before it sends the answer.
		c.w.Header().Set("Connection", "close")
		var large *http.MaxBytesError
		if errors.As(err, &large) { // the limit of one without a token
			return c.tooLarge(large.Limit)
		}
		return membudget.Explain(err, limit)
	}
	deadline(rc.SetReadDeadline, 0)
	c.body = body
	empty := len(bytes.TrimSpace(body)) == 0
	switch {
	case empty && (kind == jsonBody || kind == jsonStream || kind == patchBody):
		return job.Errorf(job.CodeMalformed, "send one JSON object", "the body is empty")
	case kind == emptyBody && !empty && string(bytes.TrimSpace(body)) != "{}":
		return job.Errorf(job.CodeMalformed, "send no body", "this route takes no body")
	}
	return nil
}

// tooLarge refuses a body without reading the rest of it. The connection is given up: what is left on it is not a
// request.
func (c *call) tooLarge(limit int64) error {
	c.w.Header().Set("Connection", "close")
	remedy := fmt.Sprintf("stay below %d bytes; many jobs go to %s/jobs:bulk", limit, prefix)
	if kind := c.route.body; kind == workerBody || kind == pollBody {
		remedy = "report in smaller parts, or hold fewer runs"
	}
	return job.Errorf(job.CodeTooLarge, remedy, "the body is larger than %d bytes", limit)
}

// deadline is lines.Deadline.
func deadline(set func(time.Time) error, d time.Duration) { lines.Deadline(set, d) }

// request is the identity of a mutating request, which its record names too.
func (c *call) request() (Request, error) {
	rq, err := c.identity()
	by, _ := CallerOf(c.ctx)
	by.Request = rq.Key
	c.ctx = WithCaller(c.ctx, by)
	return rq, err
}

func (c *call) identity() (Request, error) {
	rq := Request{Fingerprint: wire.Fingerprint(c.r.Method, c.r.URL.Path, c.r.URL.RawQuery, c.body), Space: c.space}
	if id := IdentityOf(c.r.Context()); id != nil {
		rq.Owner = id.Token
	}
	stamped, _ := c.r.Context().Value(stampKey{}).(stamp)
	rq.Repeat = stamped.repeat
	keys := c.r.Header.Values("Idempotency-Key")
	if len(keys) == 0 {
		rq.Key = cmp.Or(stamped.key, rand.Text())
		return rq, nil
	}
	rq.Key, rq.Client = keys[0], true
	ok := len(keys) == 1 && len(rq.Key) >= 1 && len(rq.Key) <= 255
	for i := 0; ok && i < len(rq.Key); i++ {
		ok = rq.Key[i] >= 0x20 && rq.Key[i] <= 0x7e
	}
	if !ok {
		return Request{}, job.Invalid("Idempotency-Key", "send one header of 1 to 255 printable ASCII characters",
			"this is not a usable key")
	}
	return rq, nil
}

// matchVersion is the version that the caller insists on, 0 for any; inBody is the one that the body named.
func (c *call) matchVersion(inBody uint64) (uint64, error) {
	values := c.r.Header.Values("If-Match")
	if len(values) == 0 {
		return inBody, nil
	}
	v := strings.TrimSpace(values[0])
	if len(values) == 1 && v == "*" {
		return inBody, nil
	}
	n, err := strconv.ParseUint(strings.Trim(v, `"`), 10, 64)
	if len(values) > 1 || err != nil || n == 0 || len(v) < 3 || v[0] != '"' || v[len(v)-1] != '"' {
		return 0, job.Invalid("If-Match", `send the ETag of the job, such as "3" with its quotes`,
			"%q is not a version", strings.Join(values, ", "))
	}
	if inBody != 0 && inBody != n {
		return 0, job.Invalid("version", "leave one of them out",
			"the body says version %d and If-Match says %d", inBody, n)
	}
	c.ifMatch = true
	return n, nil
}

// reply writes a JSON answer.
func (c *call) reply(status int, v any) error {
	var buf bytes.Buffer
	err := encode(&buf, v)
	c.turn.end()
	if err != nil {
		return err
	}
	return c.write(status, buf.Bytes())
}

func (c *call) write(status int, text []byte) error {
	if !c.room.Fit(int64(cap(text))) {
		return c.noRoom()
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	c.w.Write(text) //nolint:errcheck // the client hung up; the request is done all the same
	return nil
}

// noRoom is the answer where there is no room for the right one, which may say what was done.
func (c *call) noRoom() error {
	c.unread = true
	if c.r.Method == http.MethodGet || c.r.Method == http.MethodHead {
		return membudget.Unread("")
	}
	e := membudget.Unread("; this may or may not have been done")
	e.Code, e.Remedy = job.CodeOutcomeUnknown, "read them, and repeat the request with the same Idempotency-Key"
	return e
}

func (c *call) replyJob(status int, j job.Job) error {
	c.w.Header().Set("ETag", `"`+strconv.FormatUint(j.Version, 10)+`"`)
	b, ok := j.AppendJSON(make([]byte, 0, 1024+len(j.Payload)))
	if !ok {
		return c.reply(status, j)
	}
	return c.write(status, append(b, '\n'))
}

// done answers a change that has nothing to show.
func (c *call) done(err error) error {
	if err != nil {
		return err
	}
	return c.noContent()
}

func (c *call) noContent() error {
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// encode writes one line of JSON without the escapes that only HTML needs: URLs with & stay readable.
func encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
