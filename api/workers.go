package api

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// workerRoutes are the worker protocol.
func workerRoutes() []route {
	query := params(queueParam + " group")
	return []route{
		{"POST", "/workers:poll", Worker, AsAsked, BySession, pollBody, (*call).workerPoll, query},
		{"POST", "/workers:heartbeat", Worker, AsAsked, BySession, workerBody, message(Workers.Heartbeat), query},
		{"POST", "/workers:report", Worker, AsAsked, BySession, workerBody, message(Workers.Report), query},
		{"POST", "/workers:output", Worker, AsAsked, BySession, workerBody, message(Workers.Output), query},
	}
}

// Workers is the leader's side of the worker protocol. Every call ends soon after its context does. A node that does
// not lead answers CodeNotLeader or CodeNoLeader.
type Workers interface {
	Poll(context.Context, job.Poll) (job.PollReply, error)
	Heartbeat(context.Context, job.Heartbeat) (job.HeartbeatReply, error)
	Report(context.Context, job.Report) (job.ReportReply, error)
	Output(context.Context, job.Output) (job.OutputReply, error)
}

const (
	// queueParam names the queue that a worker takes runs of. It is a tag of the worker too, by which jobs select.
	queueParam = "queue"
	// maxWorkerBody bounds a message of a worker to a group's leader. One that names a queue also has the bound of
	// other requests: it is kept on its way to the leader.
	maxWorkerBody = 4 << 20
	// maxPollBody bounds a poll: what it says of its worker is kept for as long as the worker is known.
	maxPollBody   = 64 << 10
	maxWorkerName = job.MaxName - 16 // the id of its token follows
	maxPollWait   = job.Duration(time.Minute)
	// pollGrace is what a poll may take beyond its wait.
	pollGrace = 5 * time.Second
)

// workerPoll waits as long as the poll says.
func (c *call) workerPoll() error {
	p := job.Poll{}
	if c.query.Has(queueParam) {
		p.Free = 1
	}
	return exchange(c, &p, func() (a job.PollReply, err error) {
		if err := c.checkPoll(&p); err != nil {
			return a, err
		}
		ctx, cancel := context.WithTimeout(c.ctx, time.Duration(p.Wait)+pollGrace)
		defer cancel()
		if a, err = c.h.opts.Workers.Poll(ctx, p); err == nil {
			c.close(&a)
		}
		return a, err
	})
}

// message is a call that waits for nothing.
func message[Q, A any](do func(Workers, context.Context, Q) (A, error)) func(*call) error {
	return func(c *call) error {
		var q Q
		return exchange(c, &q, func() (A, error) { return do(c.h.opts.Workers, c.ctx, q) })
	}
}

// exchange is one call of the worker protocol: read the message into q, have the leader answer it, write that.
func exchange[A any](c *call, q any, do func() (A, error)) error {
	if c.h.opts.Workers == nil {
		return job.Errorf(job.CodeNotReady, "ask another node", "this node does not serve workers")
	}
	err := c.checkQueue()
	if err == nil {
		err = c.readMessage(q)
	}
	if err == nil {
		err = c.open(q)
	}
	if err != nil {
		return err
	}
	a, err := do()
	if err != nil {
		return c.leaderError(err)
	}
	return c.writeMessage(a)
}

// checkQueue looks at the queue that a call names, if it names one.
func (c *call) checkQueue() error {
	name, err := c.one(queueParam)
	id := IdentityOf(c.r.Context())
	switch {
	case err != nil || !c.query.Has(queueParam):
		return err
	case !job.QueueName(name):
		return job.Invalid(queueParam, "use letters, digits, - _ .", "%q is not the name of a queue", name)
	case id != nil && id.Token == "":
		return job.Errorf(job.CodeForbidden, "use a token with the role worker", "a node cannot name a queue")
	}
	return nil
}

// checkPoll bounds what a poll asks for, and fills in what the request and its token say besides. How long it waits is
// bounded by the leader too, but a caller that says an hour must not keep the request for that long.
func (c *call) checkPoll(p *job.Poll) (err error) {
	id := IdentityOf(c.r.Context())
	ofQueue := c.query.Has(queueParam)
	switch {
	case id != nil && id.Node != "" && (p.Worker != id.Node || p.Node == nil):
		return errOthersSession(id)
	case p.Free < 0 || p.Free > job.MaxPollFree:
		return job.Invalid("free", "say how many runs you have room for",
			"%d is not between 0 and %d", p.Free, job.MaxPollFree)
	case p.Slots < 0 || p.Slots > job.MaxPollFree:
		return job.Invalid("slots", "", "%d is not between 0 and %d", p.Slots, job.MaxPollFree)
	case ofQueue && p.Namespace != "" && p.Namespace != c.space.Name():
		return job.Invalid(namespaceParam, "leave it out, or add ?namespace="+p.Namespace,
			"the poll says %.80q and the request %q", p.Namespace, c.space.Name())
	case !ofQueue && p.Free > 0 && len(p.Types) == 0:
		return job.Invalid("types", "name the types of runs it can carry out", "a worker needs at least one type")
	case len(p.Worker) > maxWorkerName || strings.ContainsFunc(p.Worker, unicode.IsControl): // it is shown on terminals
		return job.Invalid("worker", "", "a name has at most %d bytes, and no control characters", maxWorkerName)
	}
	if p.Node == nil {
		err = job.CheckWorkerTags(p.Tags)
	}
	p.From = c.r.RemoteAddr
	p.Wait = min(max(p.Wait, 0), maxPollWait)
	switch {
	case ofQueue:
		p.Queue = job.QueueKey{Namespace: c.space.Name(), Name: c.query.Get(queueParam)}
		p.Namespace, p.Types = p.Queue.Namespace, []job.Type{job.TypeQueue}
		tagQueue(p, p.Queue.Name)
	case err == nil && (p.Namespace != "" || c.space.Given || id.home() != ""):
		p.Namespace, err = c.into(p.Namespace)
	}
	if err == nil && id != nil && id.Token != "" {
		err = id.grants(p)
	}
	return err
}

// tagQueue has a worker take runs of a queue.
func tagQueue(p *job.Poll, queue string) {
	if p.Tags == nil {
		p.Tags = map[string]string{}
	}
	p.Tags[queueParam] = queue
}

// packed says that a message is msgpack, as its answer is.
func (c *call) packed() bool {
	return strings.HasPrefix(c.r.Header.Get("Content-Type"), wire.MediaMsgpack)
}

// readMessage decodes the body. Unlike the rest of the API it passes over fields that it does not know: while a cluster
// is upgraded, new workers talk to an old leader.
func (c *call) readMessage(v any) error {
	if c.route.body == pollBody && c.query.Has(queueParam) && len(bytes.TrimSpace(c.body)) == 0 {
		return nil // the queue is all that a poll has to say
	}
	if !c.packed() {
		return job.Decode(c.body, v)
	}
	err := wire.UnmarshalMsgpack(c.body, v)
	if err == nil || errors.As(err, new(*job.Error)) {
		return err
	}
	return job.Errorf(job.CodeMalformed, "send one message", "the body cannot be read as msgpack: %v", err)
}

func (c *call) writeMessage(v any) error {
	if !c.packed() {
		return c.reply(http.StatusOK, v)
	}
	body, err := wire.MarshalMsgpack(v)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", wire.MediaMsgpack)
	c.w.Write(body) //nolint:errcheck // the worker hung up; what it did not get it is told again
	return nil
}

// leaderError makes of an error what the caller can act on: where the leader is, or that it should send the message
// again.
func (c *call) leaderError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		// Every message may be sent twice: a session says what has arrived, and results are fenced.
		return job.Errorf(job.CodeOutcomeUnknown, "send it again", "the leader did not answer in time")
	}
	code := job.CodeOf(err)
	if code != job.CodeNotLeader && code != job.CodeNoLeader || c.h.opts.Leader == nil {
		return err
	}
	addr := c.h.opts.Leader()
	if addr == "" {
		return err
	}
	c.w.Header().Set(wire.LeaderHeader, addr)
	return job.Errorf(job.CodeNotLeader, "talk to "+addr, "this node does not lead")
}
