package api

import (
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
	sealReceipt = "receipt"
)

// suffix makes the names of a token's workers its own: no other token, and no node, can have them.
func (s *seal) suffix() string { return "@" + s.Token }

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

// session holds a call to the session of its caller: of a token by the secret that its registration was answered with,
// of a node by its name.
func (c *call) session(ref *job.SessionRef) error {
	id := IdentityOf(c.r.Context())
	if id != nil && id.Node != "" && ref.Worker != id.Node {
		return errOthersSession(id)
	}
	s, err := c.seal()
	if s == nil || err != nil {
		return err
	}
	if !s.Is(ref.Secret, sealSession, ref.Worker, fmt.Sprint(ref.Incarnation)) {
		return job.Errorf(job.CodeSessionUnknown, "register again",
			"the secret of the session of the worker %q is missing or wrong", ref.Worker)
	}
	ref.Worker, ref.Secret = ref.Worker+s.suffix(), ""
	return nil
}

func errOthersSession(id *Identity) error {
	return job.Errorf(job.CodeForbidden, "", "a node has one worker, with the node's own name, %s", id.Node)
}

// register holds a registration to what its token grants, and calls do with it.
func (c *call) register(r job.Register, do func(job.Register) (job.Session, error)) (job.Session, error) {
	id := IdentityOf(c.r.Context())
	if id != nil && id.Node != "" && (r.Worker != id.Node || r.Node == nil) {
		return job.Session{}, errOthersSession(id)
	}
	s, err := c.seal()
	if err != nil {
		return job.Session{}, err
	}
	if s == nil {
		return do(r)
	}
	name := r.Worker
	if err := id.grants(&r); err != nil {
		return job.Session{}, err
	}
	r.Worker, r.Secrets = r.Worker+s.suffix(), id.Worker.Secrets
	a, err := do(r)
	a.Worker = name
	if err == nil && !a.Again {
		a.Secret = s.Of(sealSession, name, fmt.Sprint(a.Incarnation))
	}
	return a, err
}

// grants refuses a registration that asks for more than its token grants, and fills in what the token decides.
func (id *Identity) grants(r *job.Register) error {
	g := &id.Worker
	slots := job.MaxWorkerSlots
	if g.Slots > 0 {
		slots = g.Slots
	}
	const remedy = "ask for less, or use another token"
	switch {
	case r.Worker == "" || len(r.Worker) > maxTokenWorker:
		return job.Invalid("worker", "use a name that is unique among the workers of the token",
			"a worker needs a name of at most %d bytes", maxTokenWorker)
	case r.Node != nil:
		return job.Errorf(job.CodeForbidden, "leave it out", "only the node itself can register its worker")
	case r.Slots > slots:
		return notGranted("slots", remedy, id, "%d slots, including prefetch, not %d",
			slots, r.Slots)
	case len(r.Types) > maxTypes:
		return job.Invalid("types", "name those that it carries out", "%d types are more than %d", len(r.Types),
			maxTypes)
	}
	if err := job.CheckWorkerTags(r.Tags); err != nil {
		return err
	}
	types := g.Types
	if len(types) == 0 && len(g.Queues) > 0 {
		types = []string{string(job.TypeQueue)} // runs of other types are in no queue
	}
	for _, t := range r.Types {
		if len(types) > 0 && !slices.Contains(types, string(t)) {
			return notGranted("types", remedy, id, "the types %s", strings.Join(types, ", "))
		}
	}
	own := r.Tags[queueTag]
	if len(g.Tags) > 0 {
		r.Tags = maps.Clone(g.Tags)
	}
	if len(g.Queues) == 0 && own == "" {
		return nil
	}
	for q := range strings.SplitSeq(own, ",") {
		if own != "" && len(g.Queues) > 0 && !slices.Contains(g.Queues, strings.TrimSpace(q)) {
			return notGranted("tags.queue", remedy, id, "the queues %s", strings.Join(g.Queues, ", "))
		}
	}
	if own == "" {
		own = strings.Join(g.Queues, ",")
	}
	if r.Tags == nil {
		r.Tags = map[string]string{}
	}
	r.Tags[queueTag] = own
	return nil
}

// queueTag is the tag that says which queues a worker takes runs of.
const queueTag = "queue"

func notGranted(field, remedy string, id *Identity, format string, args ...any) error {
	return &job.Error{Code: job.CodeForbidden, Field: field, Remedy: remedy,
		Message: "the token " + id.Name + " is for " + fmt.Sprintf(format, args...)}
}

// pullSeal is the seal of a pull worker's token, if that is for the queue.
func (c *call) pullSeal(queue string) (*seal, error) {
	id := IdentityOf(c.r.Context())
	switch {
	case id == nil:
		return nil, nil
	case id.Token == "":
		return nil, job.Errorf(job.CodeForbidden, "use a token with the role worker", "a node cannot be a pull worker")
	case len(id.Worker.Types) > 0 && !slices.Contains(id.Worker.Types, string(job.TypeQueue)):
		return nil, notGranted("queue", "use another token", id, "the types %s", strings.Join(id.Worker.Types, ", "))
	case len(id.Worker.Queues) > 0 && !slices.Contains(id.Worker.Queues, queue):
		return nil, notGranted("queue", "use another token", id, "the queues %s", strings.Join(id.Worker.Queues, ", "))
	}
	return c.seal()
}

// openPoll takes the seals off a poll, and holds it to what its token grants.
func (s *seal) openPoll(id *Identity, q *job.PullPoll) error {
	if s == nil {
		return nil
	}
	g := &id.Worker
	q.Secrets = g.Secrets
	if g.Slots > 0 && q.Max+len(q.Held) > g.Slots {
		return notGranted("max", "ask for less, or use another token", id,
			"%d runs at a time, including those that the worker holds", g.Slots)
	}
	if err := job.CheckWorkerTags(q.Tags); err != nil {
		return err
	}
	if len(g.Tags) > 0 {
		q.Tags = maps.Clone(g.Tags)
	}
	if err := s.openCaller(&q.Worker, &q.Session); err != nil {
		return err
	}
	if q.Worker == "" && q.Session == "" {
		q.Worker = "pull-" + strings.ToLower(rand.Text()[:8]) + s.suffix()
	}
	return s.openClaims("held", q.Held)
}

// openCaller is who a pull worker says that it is. A session that this token was not given is none.
func (s *seal) openCaller(worker, session *string) error {
	if s == nil {
		return nil
	}
	if len(*worker) > maxTokenWorker {
		return job.Invalid("worker", "", "a name has at most %d bytes", maxTokenWorker)
	}
	if *worker != "" {
		*worker += s.suffix()
	}
	if text, ok := s.Open(sealReceipt, *session); ok {
		*session = text
	} else {
		*session = ""
	}
	return nil
}

// openClaims takes the seals off claims. Who knows a run and its fence, which every viewer sees, does not have it.
func (s *seal) openClaims(name string, refs []job.PullRef) error {
	for i := range refs {
		if s == nil {
			return nil
		}
		text, ok := s.Open(sealClaim, refs[i].Claim)
		if !ok {
			return &job.Error{Code: job.CodeForbidden, Field: fmt.Sprintf("%s[%d].claim", name, i),
				Message: "this claim was not given to this token",
				Remedy:  "send the claim from the answer to the poll; run_id and fence are not enough"}
		}
		refs[i].Claim = text
	}
	return nil
}

// closeReply seals the answer to a poll.
func (s *seal) closeReply(a *job.PullReply) {
	if s == nil {
		return
	}
	a.Worker = strings.TrimSuffix(a.Worker, s.suffix())
	a.Session = s.Put(sealReceipt, a.Session)
	for i := range a.Runs {
		a.Runs[i].Claim = s.Put(sealClaim, a.Runs[i].Claim)
	}
}
