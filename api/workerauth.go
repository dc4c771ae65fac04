package api

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/sealer"
	"github.com/carillon-scheduler/carillon/job"
)

// seal binds what workers are given to their token.
type seal struct{ sealer.Sealer }

const (
	sealSession = "session"
	sealClaim   = "claim"
)

// maxTypes is how many types of runs a worker that has a token may name.
const maxTypes = 64

// maxTokenWorker is the longest name of a worker that has a token.
const maxTokenWorker = job.MaxName - 16

// seal is that of the caller's token; nil: there is none, because the cluster does not ask or a node calls.
func (c *call) seal() (*seal, error) {
	id := IdentityOf(c.r.Context())
	if id == nil || id.Token == "" {
		return nil, nil
	}
	if c.h.opts.SessionKeys == nil {
		return nil, job.Errorf(job.CodeNotReady, "ask another node", "this node has no key for the sessions of workers")
	}
	keys, err := c.h.opts.SessionKeys()
	return &seal{sealer.Sealer{Keys: keys, Token: id.Token}}, err
}

// open takes the seals off a message. A token has the sessions and claims that it was given; a node, whose sessions are
// not sealed, has those with its name.
func (c *call) open(s *seal, m *message) error {
	id := IdentityOf(c.r.Context())
	if id != nil && id.Node != "" && (*m.session != "" || c.route.body != pollBody) {
		if session, err := job.ParseSession(*m.session); err != nil || session.Worker != id.Node {
			return errOthersSession(id)
		}
	}
	if s != nil && *m.session != "" {
		text, ok := s.Open(sealSession, *m.session)
		if !ok {
			return job.Errorf(job.CodeSessionUnknown, "poll without a session", "this token was not given this session")
		}
		*m.session = text
	}
	for i, r := range m.refs {
		if r.Claim == "" {
			continue // its session has the fence
		}
		text, ok := r.Claim, id == nil
		if s != nil {
			text, ok = s.Open(sealClaim, text)
		}
		if !ok { // who knows a run and its fence, which every viewer sees, does not have it
			return &job.Error{Code: job.CodeForbidden, Field: m.claim(i),
				Message: "this claim was not given to this token",
				Remedy:  "send the claim from the answer to the poll"}
		}
		claim, _ := job.ParseClaimRef(text) //nolint:errcheck // it then names none, and its item is answered with that
		r.Run, r.Fence = claim.Run, claim.Fence
	}
	return nil
}

func errOthersSession(id *Identity) error {
	return job.Errorf(job.CodeForbidden, "", "a node has one worker, with the node's own name, %s", id.Node)
}

// put seals a text.
func (s *seal) put(what, text string) string {
	if s == nil || text == "" {
		return text
	}
	return s.Put(what, text)
}

// close seals the answer to a poll. In JSON it names the claims; who reads msgpack goes by their fences.
func (s *seal) close(a *job.PollReply, packed bool) {
	a.Session = s.put(sealSession, a.Session)
	if packed {
		return
	}
	claim := func(run job.RunKey, fence uint64) string {
		return s.put(sealClaim, job.ClaimRef{Run: run, Fence: fence}.String())
	}
	a.Runs = list(a.Runs)
	for i := range a.Runs {
		a.Runs[i].Claim = claim(a.Runs[i].Run, a.Runs[i].Fence)
	}
	for i := range a.Stop {
		a.Stop[i].Claim = claim(a.Stop[i].Run, a.Stop[i].Fence)
	}
	for i := range a.Watch {
		a.Watch[i].Claim = claim(a.Watch[i].Run, a.Watch[i].Fence)
	}
}

// grants refuses a poll that asks for more than its token grants, and fills in what the token decides.
func (id *Identity) grants(p *job.Poll) error {
	g := &id.Worker
	const remedy = "ask for less, or use another token"
	slots, field, asks := cmp.Or(g.Slots, job.MaxWorkerSlots), "slots", p.Slots
	if p.Free > asks {
		field, asks = "free", p.Free
	}
	switch {
	case len(p.Worker) > maxTokenWorker:
		return job.Invalid("worker", "use a name that is unique among the workers of the token",
			"a name has at most %d bytes", maxTokenWorker)
	case p.Node != nil:
		return job.Errorf(job.CodeForbidden, "leave it out", "only the node itself can speak for its worker")
	case asks > slots:
		return notGranted(field, remedy, id, "%d slots, including prefetch, not %d", slots, asks)
	case len(p.Types) > maxTypes:
		return job.Invalid("types", "name those that it carries out", "%d types are more than %d", len(p.Types),
			maxTypes)
	}
	types := g.Types
	if len(types) == 0 && len(g.Queues) > 0 {
		types = []string{string(job.TypeQueue)} // runs of other types are in no queue
	}
	ofTypes, ofQueues := "types", "tags.queue"
	if p.Queue.Name != "" {
		ofTypes, ofQueues = queueParam, queueParam
	}
	for _, t := range p.Types {
		if len(types) > 0 && !slices.Contains(types, string(t)) {
			return notGranted(ofTypes, remedy, id, "the types %s", strings.Join(types, ", "))
		}
	}
	own := p.Tags[queueParam]
	for q := range strings.SplitSeq(own, ",") {
		if own != "" && len(g.Queues) > 0 && !slices.Contains(g.Queues, strings.TrimSpace(q)) {
			return notGranted(ofQueues, remedy, id, "the queues %s", strings.Join(g.Queues, ", "))
		}
	}
	if len(g.Tags) > 0 {
		p.Tags = maps.Clone(g.Tags)
	}
	if own = cmp.Or(own, strings.Join(g.Queues, ",")); own != "" {
		p.Tags = withQueue(p.Tags, own)
	}
	p.Secrets, p.Most = g.Secrets, g.Slots
	if p.Worker == "" && p.Session == "" {
		p.Worker = "worker-" + strings.ToLower(rand.Text()[:8])
	}
	if p.Worker != "" { // no other token, and no node, can have it
		p.Worker += "@" + id.Token
	}
	return nil
}

func notGranted(field, remedy string, id *Identity, format string, args ...any) error {
	return &job.Error{Code: job.CodeForbidden, Field: field, Remedy: remedy,
		Message: "the token " + id.Name + " is for " + fmt.Sprintf(format, args...)}
}
