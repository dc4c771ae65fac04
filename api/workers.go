package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"strconv"
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
		{"POST", "/workers:heartbeat", Worker, AsAsked, BySession, workerBody, (*call).workerHeartbeat, query},
		{"POST", "/workers:report", Worker, AsAsked, BySession, workerBody, (*call).workerReport, query},
		{"POST", "/workers:output", Worker, AsAsked, BySession, workerBody, (*call).workerOutput, query},
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
	// maxWorkerBody bounds a message of a worker to a group's leader. One that names a queue has the bound of other
	// requests: it is kept on its way to the leader.
	maxWorkerBody = 4 << 20
	maxPollWait   = job.Duration(time.Minute)
	maxWhere      = 1 << 10
	// pollGrace is what a poll may take beyond its wait.
	pollGrace = 5 * time.Second
)

// workerPoll waits as long as the poll says.
func (c *call) workerPoll() error {
	p := job.Poll{}
	if c.query.Has(queueParam) {
		p.Free = 1
	}
	return exchange(c, p, func(d desk, p *job.Poll) (job.PollReply, error) {
		if err := c.checkPoll(p); err != nil {
			return job.PollReply{}, err
		}
		p.From = c.r.RemoteAddr
		ctx, cancel := context.WithTimeout(c.ctx, time.Duration(p.Wait)+pollGrace)
		defer cancel()
		a, err := d.Poll(ctx, *p)
		d.seal.close(&a, d.packed)
		return a, err
	})
}

func (c *call) workerHeartbeat() error {
	return exchange(c, job.Heartbeat{}, func(d desk, h *job.Heartbeat) (job.HeartbeatReply, error) {
		a, err := d.Heartbeat(c.ctx, *h)
		a.Runs = list(a.Runs)
		return a, err
	})
}

func (c *call) workerReport() error {
	return exchange(c, job.Report{}, func(d desk, r *job.Report) (job.ReportReply, error) {
		a, err := d.Report(c.ctx, *r)
		a.Results = list(a.Results)
		return a, err
	})
}

func (c *call) workerOutput() error {
	return exchange(c, job.Output{}, func(d desk, o *job.Output) (job.OutputReply, error) {
		return d.Output(c.ctx, *o)
	})
}

// desk is what a call of the worker protocol is answered by.
type desk struct {
	Workers
	seal   *seal // of the caller's token; nil: nothing is sealed
	packed bool  // the message is msgpack, and so is the answer
}

// exchange is one call of the worker protocol: read the message into q, have the leader answer it, write that.
func exchange[Q, A any](c *call, q Q, do func(desk, *Q) (A, error)) error {
	d := desk{Workers: c.h.opts.Workers}
	if d.Workers == nil {
		return job.Errorf(job.CodeNotReady, "ask another node", "this node does not serve workers")
	}
	err := c.checkQueue()
	if err == nil {
		d.packed, err = c.readMessage(&q)
	}
	if err == nil {
		d.seal, err = c.seal()
	}
	m := messageOf(&q)
	if err == nil {
		err = m.check(d.packed)
	}
	if err == nil {
		err = c.open(d.seal, &m)
	}
	if err != nil {
		return err
	}
	a, err := do(d, &q)
	if err != nil {
		return c.workerError(err)
	}
	return c.writeMessage(a, d.packed)
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

// message is what the messages of workers have in common: a session, and claims that they name.
type message struct {
	session *string
	list    string // what its items are called; empty: it has none
	like    string // what one with an item looks like
	refs    []*job.Ref
}

func messageOf(of any) (m message) {
	switch q := of.(type) {
	case *job.Poll:
		m.session = &q.Session
	case *job.Heartbeat:
		m = message{&q.Session, "runs", `{"claim":"c_…"}`, make([]*job.Ref, len(q.Runs))}
		for i := range q.Runs {
			m.refs[i] = &q.Runs[i].Ref
		}
	case *job.Report:
		m = message{&q.Session, "results", `{"claim":"c_…","outcome":"succeeded"}`, make([]*job.Ref, len(q.Results))}
		for i := range q.Results {
			m.refs[i] = &q.Results[i].Ref
		}
	case *job.Output:
		m.session, m.refs = &q.Session, []*job.Ref{&q.Ref}
	}
	return m
}

// check bounds the items. That there are none is a mistake of who writes JSON; programs may have none.
func (m *message) check(packed bool) error {
	switch {
	case m.list != "" && len(m.refs) == 0 && !packed:
		return job.Invalid(m.list, `send {"`+m.list+`":[`+m.like+`]}`, "no run is named")
	case len(m.refs) > job.MaxItems:
		return job.Invalid(m.list, "send it in parts", "%d items are more than %d", len(m.refs), job.MaxItems)
	}
	return nil
}

// claim is what the claim of an item is called.
func (m *message) claim(i int) string {
	if m.list == "" {
		return "claim"
	}
	return fmt.Sprintf("%s[%d].claim", m.list, i)
}

// checkPoll bounds what a poll asks for, and fills in what the request and its token say besides.
func (c *call) checkPoll(p *job.Poll) error {
	id := IdentityOf(c.r.Context())
	_, tagged := p.Tags[queueParam]
	ofQueue := c.query.Has(queueParam)
	for _, f := range [][2]string{{"where", p.Where}, {"version", p.Version}, {namespaceParam, p.Namespace}} {
		if len(f[1]) > maxWhere {
			return job.Invalid(f[0], "shorten it", "it has more than %d bytes", maxWhere)
		}
	}
	switch {
	case id != nil && id.Node != "" && (p.Worker != id.Node || p.Node == nil):
		return errOthersSession(id)
	case p.Free < 0 || p.Free > job.MaxPollFree:
		return job.Invalid("free", "say how many runs you have room for",
			"%d is not between 0 and %d", p.Free, job.MaxPollFree)
	case p.Slots < 0 || p.Slots > job.MaxPollFree:
		return job.Invalid("slots", "", "%d is not between 0 and %d", p.Slots, job.MaxPollFree)
	case p.Prefetch < 0:
		return job.Invalid("prefetch", "they count as slots", "%d is negative", p.Prefetch)
	case p.Wait < 0 || ofQueue && p.Wait > maxPollWait:
		return job.Invalid("wait", "poll again instead", "%s is not between 0s and %s", p.Wait, maxPollWait)
	case p.Hold < 0:
		return job.Invalid("hold", "", "%s is negative", p.Hold)
	case ofQueue && tagged:
		return job.Invalid("tags.queue", "leave it out", "the request already names the queue")
	case ofQueue && p.Namespace != "" && p.Namespace != c.space.Name():
		return job.Invalid(namespaceParam, "leave it out, or add ?namespace="+p.Namespace,
			"the poll says %q and the request %q", p.Namespace, c.space.Name())
	case !ofQueue && p.Free > 0 && len(p.Types) == 0:
		return job.Invalid("types", "name the types of runs it can carry out", "a worker needs at least one type")
	case len(p.Worker) > job.MaxName || strings.ContainsFunc(p.Worker, unicode.IsControl): // it is shown on terminals
		return job.Invalid("worker", "", "a name has at most %d bytes, and no control characters", job.MaxName)
	}
	var err error
	if p.Node == nil {
		err = job.CheckWorkerTags(p.Tags)
	}
	p.Wait = min(p.Wait, cmp.Or(job.Duration(c.h.opts.MaxPollWait), maxPollWait))
	switch {
	case ofQueue:
		p.Queue = job.QueueKey{Namespace: c.space.Name(), Name: c.query.Get(queueParam)}
		p.Namespace, p.Types = p.Queue.Namespace, []job.Type{job.TypeQueue}
		p.Tags = withQueue(p.Tags, p.Queue.Name)
	case err == nil && (p.Namespace != "" || c.space.Given || id.home() != ""):
		p.Namespace, err = c.into(p.Namespace)
	}
	if err == nil && id != nil && id.Token != "" {
		err = id.grants(p)
	}
	return err
}

// withQueue are tags, with that of a queue.
func withQueue(tags map[string]string, queue string) map[string]string {
	tags = maps.Clone(tags)
	if tags == nil {
		tags = map[string]string{}
	}
	tags[queueParam] = queue
	return tags
}

// readMessage decodes the body and says whether it is msgpack. Unlike the rest of the API it passes over fields that it
// does not know: while a cluster is upgraded, new workers talk to an old leader.
func (c *call) readMessage(v any) (packed bool, _ error) {
	media, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if c.route.body == pollBody && c.query.Has(queueParam) && len(bytes.TrimSpace(c.body)) == 0 {
		return media == wire.MediaMsgpack, nil // the queue is all that a poll has to say
	}
	if media == wire.MediaMsgpack {
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
		field := strings.Replace(wrong.Field, "Ref.", "", 1) // its fields stand among those of what has it
		return false, job.Invalid(field, "", "a JSON %s does not fit here", wrong.Value)
	}
	return false, job.Errorf(job.CodeInvalid, "", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

func (c *call) writeMessage(v any, packed bool) error {
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
		// Every message may be sent twice: a session says what has arrived, and results are fenced.
		return job.Errorf(job.CodeOutcomeUnknown, "send it again", "the leader did not answer in time")
	}
	return err
}
