package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// workerRoutes are about the worker protocol.
func workerRoutes() []route {
	return []route{
		{"POST", "/workers:register", Worker, Here, BySession, workerBody, (*call).workerRegister, nil},
		{"POST", "/workers:poll", Worker, Here, BySession, pollBody, (*call).workerPoll, nil},
		{"POST", "/workers:heartbeat", Worker, Here, BySession, workerBody, (*call).workerHeartbeat, nil},
		{"POST", "/workers:report", Worker, Here, BySession, workerBody, (*call).workerReport, nil},
		{"POST", "/workers:output", Worker, Here, BySession, workerBody, (*call).workerOutput, nil},
	}
}

// Workers is the leader's side of the worker protocol. Every call ends soon after its context does. A node that does
// not lead answers CodeNotLeader or CodeNoLeader.
type Workers interface {
	Register(context.Context, job.Register) (job.Session, error)
	Poll(context.Context, job.Poll) (job.PollReply, error)
	Heartbeat(context.Context, job.Heartbeat) (job.HeartbeatReply, error)
	Report(context.Context, job.Report) (job.ReportReply, error)
	Output(context.Context, job.Output) (job.OutputReply, error)
}

const (
	// maxWorkerBody bounds a message of a worker. A heartbeat names all that its worker holds: about 40,000 runs fit.
	maxWorkerBody = 4 << 20
	maxPollWait   = time.Minute
	// pollGrace is what a poll may take beyond its wait.
	pollGrace = 5 * time.Second
)

// workerRegister keeps a worker to the namespace of its token, whatever it says or leaves out.
func (c *call) workerRegister() error {
	return exchange(c, func(w Workers, ctx context.Context, r job.Register) (job.Session, error) {
		if id := IdentityOf(c.r.Context()); id.home() != "" {
			r.Namespace = cmp.Or(r.Namespace, id.home())
			if err := id.keepsTo(r.Namespace); err != nil {
				return job.Session{}, err
			}
		}
		return c.register(r, func(r job.Register) (job.Session, error) { return w.Register(ctx, r) })
	})
}

func (c *call) workerOutput() error {
	return exchange(c, func(w Workers, ctx context.Context, o job.Output) (job.OutputReply, error) {
		if err := c.session(&o.Session); err != nil {
			return job.OutputReply{}, err
		}
		return w.Output(ctx, o)
	})
}

func (c *call) workerHeartbeat() error {
	return exchange(c, func(w Workers, ctx context.Context, h job.Heartbeat) (job.HeartbeatReply, error) {
		if err := c.session(&h.Session); err != nil {
			return job.HeartbeatReply{}, err
		}
		h.From = c.r.RemoteAddr
		return w.Heartbeat(ctx, h)
	})
}

func (c *call) workerReport() error {
	return exchange(c, func(w Workers, ctx context.Context, q job.Report) (job.ReportReply, error) {
		if err := c.session(&q.Session); err != nil {
			return job.ReportReply{}, err
		}
		a, err := w.Report(ctx, q)
		a.Acks = list(a.Acks)
		return a, err
	})
}

// workerPoll waits as long as the poll says. It is not forwarded to the leader: a node in between would hold a
// connection for every worker, and its death would look like the leader's.
func (c *call) workerPoll() error {
	return exchange(c, func(w Workers, ctx context.Context, q job.Poll) (job.PollReply, error) {
		if err := c.session(&q.Session); err != nil {
			return job.PollReply{}, err
		}
		wait := min(max(time.Duration(q.Wait), 0), cmp.Or(c.h.opts.MaxPollWait, maxPollWait))
		q.Wait = job.Duration(wait)
		ctx, cancel := context.WithTimeout(ctx, wait+pollGrace)
		defer cancel()
		a, err := w.Poll(ctx, q)
		for i := range a.Assignments {
			if p := &a.Assignments[i].Payload; len(*p) == 0 {
				*p = nil // what is empty and not nil has no form in JSON
			}
		}
		return a, err
	})
}

// exchange is one call of the worker protocol: read the message, have the leader answer it, write that.
func exchange[Q, A any](c *call, do func(Workers, context.Context, Q) (A, error)) error {
	w := c.h.opts.Workers
	if w == nil {
		return job.Errorf(job.CodeNotReady, "ask another node", "this node does not serve workers")
	}
	var q Q
	packed, err := c.readMessage(&q)
	if err != nil {
		return err
	}
	a, err := do(w, c.ctx, q)
	if err != nil {
		return c.workerError(err)
	}
	return c.writeMessage(a, packed)
}

// readMessage decodes the body and says whether it is msgpack. Unlike the rest of the API it passes over fields that it
// does not know: while a cluster is upgraded, new workers talk to an old leader.
func (c *call) readMessage(v any) (packed bool, _ error) {
	if media, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type")); media == wire.MediaMsgpack {
		err := wire.UnmarshalMsgpack(c.body, v)
		var known *job.Error
		if errors.As(err, &known) {
			return true, known
		}
		if err != nil {
			return true, job.Errorf(job.CodeMalformed, "send one message",
				"the body cannot be read as msgpack: %v", err)
		}
		return true, nil
	}
	if err := job.CheckSize(c.body, v); err != nil {
		return false, err
	}
	err := json.Unmarshal(c.body, v)
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return false, nil
	case errors.As(err, &syntax):
		return false, job.Errorf(job.CodeMalformed, "send one JSON object", "this is not JSON: %v", err)
	case errors.As(err, &wrong):
		return false, job.Invalid(wrong.Field, "", "a JSON %s does not fit here", wrong.Value)
	}
	return false, job.Errorf(job.CodeInvalid, "", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// writeMessage answers in the format of the request unless Accept excludes it.
func (c *call) writeMessage(v any, packed bool) error {
	if accept := c.r.Header.Values("Accept"); len(accept) > 0 && !accepts(accept, packed) && accepts(accept, !packed) {
		packed = !packed
	}
	var body []byte
	media := wire.MediaJSON
	if packed {
		media = wire.MediaMsgpack
		var err error
		if body, err = wire.MarshalMsgpack(v); err != nil {
			return err
		}
	} else {
		var buf bytes.Buffer
		if err := encode(&buf, v); err != nil {
			return err
		}
		body = buf.Bytes()
	}
	header := c.w.Header()
	header.Set("Content-Type", media)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	// An answer may be larger than what the network takes at once, and a worker that hangs does not read it. The
	// deadline is for this answer only: net/http lifts it afterwards.
	deadline(http.NewResponseController(c.w).SetWriteDeadline, c.h.opts.RequestTimeout)
	c.w.WriteHeader(http.StatusOK)
	c.w.Write(body) //nolint:errcheck // the worker hung up; what it did not get it is told again
	return nil
}

// accepts says whether an Accept header allows a format.
func accepts(accept []string, packed bool) bool {
	want := wire.MediaJSON
	if packed {
		want = wire.MediaMsgpack
	}
	for part := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil || media != want && media != "application/*" && media != "*/*" {
			continue
		}
		if q, err := strconv.ParseFloat(params["q"], 64); err != nil || q > 0 {
			return true
		}
	}
	return false
}

// workerError makes of an error what the worker can act on: where the leader is, or that it should send the message
// again.
func (c *call) workerError(err error) error {
	code := job.CodeOf(err)
	switch {
	case code == job.CodeNotLeader || code == job.CodeNoLeader:
		if c.h.opts.Leader == nil {
			return err
		}
		addr := c.h.opts.Leader()
		if addr == "" {
			return err
		}
		c.w.Header().Set(wire.LeaderHeader, addr)
		if code == job.CodeNoLeader { // not here, but we know who
			return job.Errorf(job.CodeNotLeader, "talk to "+addr, "this node does not lead")
		}
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		// Every message may be sent twice: assignments are numbered, results are fenced.
		return job.Errorf(job.CodeOutcomeUnknown, "send it again", "the leader did not answer in time")
	}
	return err
}
