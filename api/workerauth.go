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

// What is sealed for the token of a worker.
const (
	sealSession = "session"
	sealClaim   = "claim"
)

// open takes the seals off a message. A token has the sessions and claims that it was given; a node, whose sessions are
// not sealed, has those with its name. A cluster that does not ask for tokens seals nothing.
func (c *call) open(message any) error {
	session, list, refs := namesIn(message)
	switch {
	case list != "" && len(refs) == 0 && !c.packed(): // who writes JSON may have misspelled it, and would lose results
		return job.Invalid(list, `send {"`+list+`":[…]}`, "no run is named")
	case len(refs) > job.MaxItems:
		return job.Invalid(list, "send it in parts", "%d items are more than %d", len(refs), job.MaxItems)
	}
	id := IdentityOf(c.r.Context())
	switch {
	case id == nil:
	case id.Token != "":
		if c.h.opts.SessionKeys == nil {
			return job.Errorf(job.CodeNotReady, "ask another node",
				"this node has no key for the sessions of workers")
		}
		keys, err := c.h.opts.SessionKeys()
		if err != nil {
			return err
		}
		c.seal = &sealer.Sealer{Keys: keys, Token: id.Token}
		if *session == "" {
			break
		}
		text, ok := c.seal.Open(sealSession, *session)
		if !ok {
			return job.Errorf(job.CodeSessionUnknown, "poll without a session", "this token was not given this session")
		}
		*session = text
	case *session != "" || c.route.body != pollBody:
		if s, err := job.ParseSession(*session); err != nil || s.Worker != id.Node {
			return errOthersSession(id)
		}
	}
	for _, r := range refs {
		if r.Claim == "" {
			continue // its session has the fence
		}
		text, ok := r.Claim, id == nil
		if c.seal != nil {
			text, ok = c.seal.Open(sealClaim, text)
		}
		if !ok { // who knows a run and its fence, which every viewer sees, does not have it
			return &job.Error{Code: job.CodeForbidden, Field: "claim",
				Remedy:  "send the claim from the answer to the poll",
				Message: fmt.Sprintf("the claim %.80q was not given to this token", r.Claim)}
		}
		claim, _ := job.ParseClaim(text) //nolint:errcheck // it then names none, and its item is answered with that
		r.Run, r.Fence = claim.Run, claim.Fence
	}
	return nil
}

// namesIn are the session and the claims that a message names; list is where those are.
func namesIn(message any) (session *string, list string, refs []*job.Ref) {
	switch q := message.(type) {
	case *job.Poll:
		session = &q.Session
	case *job.Heartbeat:
		session, list = &q.Session, "runs"
		for i := range q.Runs {
			refs = append(refs, &q.Runs[i])
		}
	case *job.Report:
		session, list = &q.Session, "results"
		for i := range q.Results {
			refs = append(refs, &q.Results[i].Ref)
		}
	case *job.Output:
		session, refs = &q.Session, []*job.Ref{&q.Ref}
	}
	return session, list, refs
}

func errOthersSession(id *Identity) error {
	return job.Errorf(job.CodeForbidden, "", "a node has one worker, with the node's own name, %s", id.Node)
}

// close seals the answer to a poll. In JSON it names the claims; who reads msgpack goes by their fences.
func (c *call) close(a *job.PollReply) {
	a.Session = c.sealed(sealSession, a.Session)
	if c.packed() {
		return
	}
	for i := range a.Runs {
		r := &a.Runs[i]
		r.Claim = c.sealed(sealClaim, job.Ref{Run: r.Run, Fence: r.Fence}.Text())
	}
	for i := range a.Stop {
		a.Stop[i].Claim = c.sealed(sealClaim, a.Stop[i].Text())
	}
	for i := range a.Watch {
		a.Watch[i].Claim = c.sealed(sealClaim, a.Watch[i].Text())
	}
}

func (c *call) sealed(what, text string) string {
	if c.seal == nil {
		return text
	}
	return c.seal.Put(what, text)
}

// grants refuses a poll that asks for more than its token grants, and fills in what the token decides.
func (id *Identity) grants(p *job.Poll) error {
	g := &id.Worker
	slots, field, asks := cmp.Or(g.Slots, job.MaxWorkerSlots), "slots", p.Slots
	if p.Free > asks {
		field, asks = "free", p.Free
	}
	switch {
	case p.Node != nil:
		return job.Errorf(job.CodeForbidden, "leave it out", "only the node itself can speak for its worker")
	case asks > slots:
		return notGranted(field, id, "%d slots, not %d", slots, asks)
	}
	types := g.Types
	if len(types) == 0 && len(g.Queues) > 0 {
		types = []string{string(job.TypeQueue)} // runs of other types are in no queue
	}
	for _, t := range p.Types {
		if len(types) > 0 && !slices.Contains(types, string(t)) {
			return notGranted("types", id, "the types %s", strings.Join(types, ", "))
		}
	}
	own := p.Tags[queueParam]
	for q := range strings.SplitSeq(own, ",") {
		if own != "" && len(g.Queues) > 0 && !slices.Contains(g.Queues, strings.TrimSpace(q)) {
			return notGranted(queueParam, id, "the queues %s", strings.Join(g.Queues, ", "))
		}
	}
	if len(g.Tags) > 0 {
		p.Tags = maps.Clone(g.Tags)
	}
	if own = cmp.Or(own, strings.Join(g.Queues, ",")); own != "" {
		tagQueue(p, own)
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

func notGranted(field string, id *Identity, format string, args ...any) error {
	return &job.Error{Code: job.CodeForbidden, Field: field, Remedy: "ask for less, or use another token",
		Message: "the token " + id.Name + " is for " + fmt.Sprintf(format, args...)}
}
