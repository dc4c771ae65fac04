package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/carillon-scheduler/carillon/job"
)

// pullRoutes are about pull workers.
func pullRoutes() []route {
	return []route{
		{"POST", "/queues/{queue}:poll", Worker, Poll, ByQueue, pullBody, (*call).pullPoll, nil},
		{"POST", "/queues/{queue}:heartbeat", Worker, ToLeader, ByQueue, jsonBody, (*call).pullHeartbeat, nil},
		{"POST", "/queues/{queue}:complete", Worker, ToLeader, ByQueue, jsonBody, (*call).pullComplete, nil},
		{"POST", "/queues/{queue}:fail", Worker, ToLeader, ByQueue, jsonBody, (*call).pullFail, nil},
	}
}

// Pull is the leader's side of what pull workers say. Every call ends soon after its context does.
type Pull interface {
	PullPoll(context.Context, job.PullPoll) (job.PullReply, error)
	PullHeartbeat(context.Context, job.PullBeat) (job.PullAnswers, error)
	PullReport(context.Context, job.PullReport) (job.PullAnswers, error)
}

// pull is the leader, and the queue that a call is about.
func (c *call) pull() (Pull, job.QueueKey, error) {
	queue := c.r.PathValue("queue")
	switch {
	case c.h.opts.Pull == nil:
		return nil, job.QueueKey{}, job.Errorf(job.CodeNotReady, "ask another node", "this node does not serve workers")
	case !job.QueueName(queue):
		return nil, job.QueueKey{}, job.Invalid("queue", "use letters, digits, - _ .",
			"%q is not the name of a queue", queue)
	}
	return c.h.opts.Pull, job.QueueKey{Namespace: c.space.Name(), Name: queue}, nil
}

func (c *call) pullPoll() error {
	w, queue, err := c.pull()
	if err != nil {
		return err
	}
	q := job.PullPoll{Max: 1}
	if len(bytes.TrimSpace(c.body)) > 0 {
		held, err := decodeBatch(c.body, &q, "held", &q.Held)
		if err != nil {
			return err
		}
		q.Held = held
	}
	q.Queue = queue
	s, err := c.pullSeal(queue.Name)
	if err == nil {
		err = s.openPoll(IdentityOf(c.r.Context()), &q)
	}
	if err == nil {
		err = checkPoll(&q)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, time.Duration(q.Wait)+pollGrace)
	defer cancel()
	a, err := w.PullPoll(ctx, q)
	if err != nil {
		return pullError(err)
	}
	s.closeReply(&a)
	deadline(http.NewResponseController(c.w).SetWriteDeadline, c.h.opts.RequestTimeout) // as in writeMessage
	return c.reply(http.StatusOK, a)
}

func checkPoll(q *job.PullPoll) error {
	switch {
	case q.Max < 0 || q.Max > job.MaxPullRuns:
		return job.Invalid("max", "say how many runs you have room for",
			"%d is not between 0 and %d", q.Max, job.MaxPullRuns)
	case q.Wait < 0 || q.Wait > job.MaxPullWait:
		return job.Invalid("wait", "poll again instead", "%s is not between 0s and %s", q.Wait, job.MaxPullWait)
	case len(q.Tags) > job.MaxTags:
		return job.Invalid("tags", "", "%d tags are more than %d", len(q.Tags), job.MaxTags)
	}
	if _, ok := q.Tags["queue"]; ok {
		return job.Invalid("tags.queue", "leave it out", "the path already names the queue")
	}
	if err := checkWorkerName(q.Worker); err != nil {
		return err
	}
	return checkRefs("held", q.Held)
}

func checkWorkerName(name string) error {
	if len(name) > job.MaxName || strings.ContainsFunc(name, unicode.IsControl) { // it is shown on terminals
		return job.Invalid("worker", "", "a name has at most %d bytes, and no control characters", job.MaxName)
	}
	return nil
}

func (c *call) pullHeartbeat() error {
	w, queue, err := c.pull()
	if err != nil {
		return err
	}
	var b job.PullBeat
	if b.Runs, err = decodeBatch(c.body, &b, "runs", &b.Runs); err != nil {
		return err
	}
	b.Queue = queue
	s, err := c.pullSeal(queue.Name)
	if err == nil {
		err = cmp.Or(s.openCaller(&b.Worker, &b.Session), s.openClaims("runs", b.Runs))
	}
	if err != nil {
		return err
	}
	if err := checkWorkerName(b.Worker); err != nil {
		return err
	}
	if err := checkRefs("runs", b.Runs); err != nil {
		return err
	}
	a, err := w.PullHeartbeat(c.ctx, b)
	return c.pullAnswer(a, err)
}

func (c *call) pullComplete() error { return c.pullReport(false) }

func (c *call) pullFail() error { return c.pullReport(true) }

func (c *call) pullReport(failed bool) error {
	w, queue, err := c.pull()
	if err != nil {
		return err
	}
	var r job.PullReport
	if failed {
		r.Runs, err = decodeBatch(c.body, &r, "runs", &r.Runs)
	} else {
		r, err = decodeComplete(c.body)
	}
	if err != nil {
		return err
	}
	r.Queue, r.Failed = queue, failed
	s, err := c.pullSeal(queue.Name)
	if err == nil {
		err = s.openCaller(&r.Worker, &r.Session)
	}
	if err != nil {
		return err
	}
	if err := checkWorkerName(r.Worker); err != nil {
		return err
	}
	refs := make([]job.PullRef, len(r.Runs))
	for i := range r.Runs {
		item := &r.Runs[i]
		refs[i] = item.PullRef
		field := fmt.Sprintf("runs[%d]", i)
		switch {
		case item.Delay < 0:
			return job.Invalid(field+".delay", "", "%s is negative", item.Delay)
		case item.Unstarted && (item.Error != "" || item.Permanent || item.Delay != 0 || item.Output != ""):
			return job.Invalid(field+".unstarted", "leave out error, output and delay",
				"a run that was not started has no error, output or delay")
		case failed && !item.Unstarted && item.Error == "":
			return job.Invalid(field+".error", "say in a few words what went wrong", "a failure needs an error")
		}
	}
	if err := cmp.Or(s.openClaims("runs", refs), checkRefs("runs", refs)); err != nil {
		return err
	}
	for i := range refs {
		r.Runs[i].PullRef = refs[i]
	}
	a, err := w.PullReport(c.ctx, r)
	return c.pullAnswer(a, err)
}

// decodeComplete reads the body of a complete: a success has nothing that only failures have.
func decodeComplete(body []byte) (job.PullReport, error) {
	type success struct {
		job.PullRef
		Output string `json:"output,omitempty"`
	}
	var q struct {
		Worker  string    `json:"worker,omitempty"`
		Session string    `json:"session,omitempty"`
		Runs    []success `json:"runs"`
	}
	items, err := decodeBatch(body, &q, "runs", &q.Runs)
	if err != nil {
		return job.PullReport{}, err
	}
	r := job.PullReport{Worker: q.Worker, Session: q.Session}
	for _, it := range items {
		r.Runs = append(r.Runs, job.PullResult{PullRef: it.PullRef, Output: it.Output})
	}
	return r, nil
}

// decodeBatch reads a message strictly. Its items, which the member name lists, are read one by one, so that an error
// says which of them it is about.
func decodeBatch[T any](body []byte, q any, name string, items *[]T) ([]T, error) {
	var raw map[string]json.RawMessage
	for _, v := range []any{&raw, q} {
		if err := job.CheckSize(body, v); err != nil {
			return nil, err
		}
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		if json.Valid(body) {
			return nil, job.Errorf(job.CodeMalformed, "send one JSON object", "this is not a JSON object")
		}
		return nil, job.Errorf(job.CodeMalformed, "send one JSON object", "this is not JSON: %v", err)
	}
	var list []json.RawMessage
	if json.Unmarshal(raw[name], &list) == nil {
		for i, text := range list {
			var item T
			if err := job.DecodeStrict(text, &item); err != nil {
				return nil, inItem(err, name, i)
			}
		}
	}
	if err := job.DecodeStrict(body, q); err != nil {
		return nil, err
	}
	return *items, nil
}

func inItem(err error, name string, i int) error {
	var e *job.Error
	if !errors.As(err, &e) {
		return err
	}
	where := *e
	where.Field = fmt.Sprintf("%s[%d]", name, i)
	if e.Field != "" {
		where.Field += "." + e.Field
	}
	return &where
}

// checkRefs refuses a batch as a whole if it has an item that cannot be meant. It fills in run and fence of those that
// are named by their claim.
func checkRefs(name string, refs []job.PullRef) error {
	if name == "runs" && len(refs) == 0 {
		return job.Invalid(name, `send {"runs":[{"claim":"c_…"}]}`, "no run is named")
	}
	if len(refs) > job.MaxPullRuns {
		return job.Invalid(name, "send it in parts", "%d items are more than %d", len(refs), job.MaxPullRuns)
	}
	first := make(map[job.PullRef]int, len(refs))
	for i := range refs {
		field := fmt.Sprintf("%s[%d]", name, i)
		if err := resolveClaim(field, &refs[i]); err != nil {
			return err
		}
		ref := job.PullRef{RunID: refs[i].RunID, Fence: refs[i].Fence}
		if j, twice := first[ref]; twice {
			return job.Invalid(field, "name each once", "it names the same run as %s[%d]", name, j)
		}
		first[ref] = i
	}
	return nil
}

const refRemedy = "send the claim from the answer to the poll, or its run_id and fence"

// resolveClaim fills in run and fence from the claim, and holds them against it if they are given as well.
func resolveClaim(field string, ref *job.PullRef) error {
	if ref.Claim != "" {
		c, err := job.ParseClaimRef(ref.Claim)
		if err != nil {
			return job.Invalid(field+".claim", refRemedy, "%q: %v", ref.Claim, err)
		}
		if c.Group != uint32(c.Run.Job.Group()) {
			return job.Invalid(field+".claim", refRemedy,
				"the run belongs to group %d, not to group %d", c.Run.Job.Group(),
				c.Group)
		}
		if ref.RunID != "" && ref.RunID != c.Run.String() || ref.Fence != 0 && ref.Fence != c.Fence {
			return job.Invalid(field+".claim", refRemedy, "claim, run_id and fence belong to different claims")
		}
		ref.RunID, ref.Fence = c.Run.String(), c.Fence
	}
	if _, err := job.ParseRunKey(ref.RunID); err != nil {
		return job.Invalid(field+".run_id", refRemedy, "%q is not a run id", ref.RunID)
	}
	if ref.Fence == 0 {
		return job.Invalid(field+".fence", refRemedy, "there is no fence")
	}
	return nil
}

func (c *call) pullAnswer(a job.PullAnswers, err error) error {
	if err != nil {
		return pullError(err)
	}
	return c.reply(http.StatusOK, a)
}

// pullError says of a call that got no answer in time that it may be repeated: results are fenced, and a poll's session
// says what arrived.
func pullError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return job.Errorf(job.CodeOutcomeUnknown, "send it again", "the leader did not answer in time")
	}
	return err
}
