package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	msg "github.com/carillon-scheduler/carillon/internal/pack"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// What callers change through the API is recorded in the apply of the change, so that there is never one without the
// other. A command says by whom it was asked for in its Head; one without a caller is the scheduler's or the leader's
// own, and leaves no record.

// Caller is who asked for a command.
type Caller struct {
	Token   string `codec:"t,omitempty"` // the id of their token
	Name    string `codec:"n,omitempty"` // of the token, or such as "admin socket of n1"
	Address string `codec:"a,omitempty"` // without a port
	Request string `codec:"q,omitempty"` // the key of the request, where the command has no Request of its own
	Bulk    bool   `codec:"k,omitempty"` // of a create: its items leave one record together
}

// auditBounds are how many records are kept. Every replica trims by them in apply: another number is another meaning of
// all commands, and needs a feature level.
var auditBounds = store.AuditBounds{Ordinary: 100_000, Guarded: 10_000, Secrets: 10_000}

// unrecorded stands in the table of commands for what no caller asks for: time, the scheduler and the leader do.
const unrecorded = "-"

// Actions are what records can be about, by the table of commands.
func Actions() []string {
	var out []string
	for i := range commands {
		if k := &commands[i]; k.make != nil && k.actions != unrecorded {
			out = append(out, strings.Fields(k.actions)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

type object = store.AuditObject

// recorded is a command that leaves a record. Its object is looked at before the command is applied: of what is deleted
// nothing is left to be named.
type recorded interface {
	Command
	object(a *applier) (store.AuditObject, error)
}

// acting is a recorded command that has several actions in the table.
type acting interface{ action() string }

// applyRecorded applies a command and writes its record.
func (a *applier) applyRecorded(cmd recorded, by *Caller) error {
	obj, err := cmd.object(a)
	if err != nil {
		return err
	}
	if err := cmd.apply(a); err != nil {
		return err
	}
	if many, ok := cmd.(*ResealSecrets); ok {
		return a.recordMany(many, by)
	}
	o := &a.reply.Items[0]
	if !leavesRecord(o) {
		return nil
	}
	rec := a.newAudit(by, o.Code)
	rec.AuditObject = obj
	rec.Action = actionOf(cmd)
	switch c := cmd.(type) {
	case *PutNode:
		if o.Code == CodeOK && o.Count == 0 {
			return nil // the node said again what was known of it
		}
		if c.Join != "" && by.Token == "" && by.Name == "" {
			rec.Name = clip("join token " + c.Join) // that is who it is
		}
	case *Redrive, *Purge:
		rec.Done, rec.Unchanged = o.Count, o.Named-o.Count
	case *Backfill:
		rec.Done, rec.Unchanged = len(o.Times), len(o.Skipped)
	case *Cancel:
		if c.All {
			rec.Done = o.Count
		}
	}
	rec.Request = cmp.Or(rec.Request, requestKey(a.request)) // the caller's own, where the id is made of more
	return a.appendAudit(&rec)
}

// recordMany writes the record of a command whose items leave one together.
func (a *applier) recordMany(cmd recorded, by *Caller) error {
	rec := a.newAudit(by, CodeOK)
	rec.Action = actionOf(cmd)
	for i := range a.reply.Items {
		switch o := &a.reply.Items[i]; {
		case o.Code == CodeOK:
			rec.Done++
		case leavesRecord(o):
			rec.Refused++
		default:
			rec.Unchanged++
		}
	}
	switch {
	case rec.Done > 0:
	case rec.Refused > 0:
		rec.Outcome = "refused"
	default:
		return nil // it is computed again
	}
	return a.appendAudit(&rec)
}

func actionOf(cmd Command) string {
	if c, ok := cmd.(acting); ok {
		return c.action()
	}
	return kindOf(cmd).actions
}

// leavesRecord says whether an outcome is worth a record. What was answered from requests has one already; what is
// stale or moved is computed again, and has one then.
func leavesRecord(o *Outcome) bool { return !o.Replay && o.Code != CodeStale && o.Code != CodeMoved }

// outcomeName is an outcome as the API's errors name it; empty for what was done. A code that is not known here counts
// as refused: a record never says of something that it was done because nothing better is known.
func outcomeName(c Code) string {
	switch c {
	case CodeOK, CodeQueued:
		return ""
	case CodeExists:
		return "exists"
	case CodeDuplicate:
		return string(job.CodeDuplicateName)
	case CodeNotFound:
		return string(job.CodeNotFound)
	case CodeConflict:
		return string(job.CodeVersionConflict)
	case CodeKeyReused:
		return string(job.CodeKeyReused)
	}
	return "refused"
}

// maxAuditText bounds what a record takes over from a request.
const maxAuditText = 256

// clip bounds a text, and cuts no character in two. It changes nothing else: what is short enough is what was sent.
func clip(s string) string {
	if len(s) <= maxAuditText {
		return s
	}
	n := maxAuditText
	for n > maxAuditText-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func (a *applier) newAudit(by *Caller, c Code) store.Audit {
	return store.Audit{At: a.now, Token: clip(by.Token), Name: clip(by.Name), Address: clip(by.Address),
		Outcome: outcomeName(c), Request: by.Request}
}

func (a *applier) appendAudit(rec *store.Audit) error {
	rec.ID, rec.Object, rec.Namespace, rec.Request = clip(rec.ID), clip(rec.Object), clip(rec.Namespace),
		clip(rec.Request)
	return a.b.AppendAudit(rec, auditBounds)
}

// requestKey is the key of a request by its id: what is before it says whose it is.
func requestKey(id string) string {
	kind, key, ok := strings.Cut(id, ":")
	if !ok {
		return id
	}
	if kind == "t" { // of a token
		_, key, _ = strings.Cut(key, ":")
	}
	return key
}

// jobObject names a job as it is now.
func (a *applier) jobObject(id job.ID) (store.AuditObject, error) {
	o := store.AuditObject{ID: id.String()}
	def, ok, err := a.b.Definition(id)
	if ok {
		o.Object, o.Namespace = def.Spec.Name, def.Spec.Namespace
	}
	return o, err
}

func (c *Update) object(a *applier) (store.AuditObject, error)   { return a.jobObject(job.ID(c.Job)) }
func (c *Delete) object(a *applier) (store.AuditObject, error)   { return a.jobObject(job.ID(c.Job)) }
func (c *Pause) object(a *applier) (store.AuditObject, error)    { return a.jobObject(job.ID(c.Job)) }
func (c *Resume) object(a *applier) (store.AuditObject, error)   { return a.jobObject(job.ID(c.Job)) }
func (c *Trigger) object(a *applier) (store.AuditObject, error)  { return a.jobObject(job.ID(c.Job)) }
func (c *Backfill) object(a *applier) (store.AuditObject, error) { return a.jobObject(job.ID(c.Job)) }

func (c *Cancel) object(a *applier) (store.AuditObject, error) {
	o, err := a.jobObject(job.ID(c.Job))
	if !c.All {
		o.ID = job.RunKey{Job: job.ID(c.Job), At: c.At, Origin: job.Origin(c.Origin)}.String()
	}
	return o, err
}

func (c *Cancel) action() string {
	if c.All {
		return "job.cancel"
	}
	return "run.cancel"
}

func (c *Redrive) object(a *applier) (object, error) { return a.deadObject(c.Seqs, c.Namespace) }
func (c *Purge) object(a *applier) (object, error)   { return a.deadObject(c.Seqs, c.Namespace) }

// deadObject names dead letters: one by its number and its job, several by the namespace that they are all in.
func (a *applier) deadObject(seqs []uint64, namespace string) (store.AuditObject, error) {
	o := store.AuditObject{Namespace: namespace}
	if len(seqs) == 1 {
		o.ID = strconv.FormatUint(seqs[0], 10)
	}
	found := false
	for _, seq := range seqs {
		d, ok, err := a.b.Dead(seq)
		if err != nil {
			return o, err
		}
		if !ok {
			continue
		}
		if len(seqs) == 1 {
			named, err := a.jobObject(d.Run.Job)
			if err != nil {
				return o, err
			}
			o.Object = named.Object
		}
		switch space := a.b.Namespace(d.Row.Class); {
		case namespace != "":
			return o, nil
		case !found:
			o.Namespace, found = space, true
		case o.Namespace != space:
			o.Namespace = ""
			return o, nil
		}
	}
	return o, nil
}

func (c *Calendar) object(*applier) (object, error) { return inSpace(c.Namespace, c.Name) }

func (c *Calendar) action() string {
	if len(c.Data) == 0 {
		return "calendar.delete"
	}
	return "calendar.put"
}

func (c *PutQueue) object(*applier) (object, error)    { return inSpace(c.Namespace, c.Name) }
func (c *DeleteQueue) object(*applier) (object, error) { return inSpace(c.Namespace, c.Name) }

// Of a secret its name is recorded, and nothing of its value.
func (c *PutSecret) object(*applier) (object, error)    { return inSpace(c.Namespace, c.Name) }
func (c *DeleteSecret) object(*applier) (object, error) { return inSpace(c.Namespace, c.Name) }

func inSpace(namespace, name string) (object, error) {
	return object{Object: name, Namespace: cmp.Or(namespace, job.DefaultNamespace)}, nil
}

func (c *PutQueue) action() string {
	switch {
	case c.Set&QueueConcurrency != 0 || c.Set&QueuePaused == 0:
		return "queue.put"
	case c.Paused:
		return "queue.pause"
	}
	return "queue.resume"
}

func (c *CreateToken) object(*applier) (store.AuditObject, error) {
	return store.AuditObject{ID: c.Token.ID, Object: c.Token.Name, Namespace: c.Token.Namespace}, nil
}

func (a *applier) tokenObject(id string) (object, error) {
	t, _ := a.b.Token(id)
	return object{ID: id, Object: t.Name, Namespace: t.Namespace}, nil
}

func (c *RevokeToken) object(a *applier) (object, error)   { return a.tokenObject(c.ID) }
func (c *CreateJoinToken) object(*applier) (object, error) { return object{ID: c.Token.ID}, nil }
func (c *RevokeJoinToken) object(*applier) (object, error) { return object{ID: c.ID}, nil }
func (c *PutNode) object(*applier) (object, error)         { return object{ID: c.Node.ID}, nil }
func (c *RemoveNode) object(*applier) (object, error)      { return object{ID: c.ID}, nil }

func (c *PutNode) action() string {
	if c.Node.Leaving { // that is how a removal begins
		return "member.remove"
	}
	return "member.join"
}

func (*ClockReset) object(*applier) (store.AuditObject, error) { return store.AuditObject{}, nil }
func (*Release) object(*applier) (store.AuditObject, error)    { return store.AuditObject{}, nil }
func (*ResealSecrets) object(*applier) (object, error)         { return object{}, nil }
func (c *GrowGroups) object(*applier) (object, error)          { return object{ID: fmt.Sprint(c.Groups)}, nil }

// Note records what a caller does that no other command does: what changes Raft's configuration, and what is only read
// but all of it. It is committed before that is done.
type Note struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
	Action  string  `codec:"a"`
	ID      string  `codec:"i,omitempty"`
}

func (c *Note) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *Note) do(*applier) (Outcome, error) {
	if !slices.Contains(strings.Fields(kindOf(c).actions), c.Action) {
		return Outcome{Code: CodeRefused, Text: "there is no action " + strconv.Quote(c.Action)}, nil
	}
	return Outcome{Code: CodeOK}, nil
}

func (c *Note) object(*applier) (store.AuditObject, error) { return store.AuditObject{ID: c.ID}, nil }
func (c *Note) action() string                             { return c.Action }

// made is what a create was about, for its record.
type made struct{ name, namespace string }

// recordItem writes the record of a job that was created by itself, or counts it towards that of its chunk.
func (a *applier) recordItem(c *Create, it *CreateItem, chunks []chunkTally) error {
	if it.By == 0 || it.By > uint64(len(c.Callers)) {
		return nil
	}
	by, o := &c.Callers[it.By-1], &a.reply.Items[len(a.reply.Items)-1]
	if by.Bulk {
		chunks[it.By-1].add(o, a.made)
		return nil
	}
	if !leavesRecord(o) {
		return nil
	}
	rec := a.newAudit(by, o.Code)
	rec.Action, rec.Object, rec.Namespace = "job.create", a.made.name, a.made.namespace
	rec.Request = requestKey(it.Request.ID)
	if o.Job != 0 {
		rec.ID = o.Job.String()
	}
	return a.appendAudit(&rec)
}

// chunkTally is what became of the items of a chunk.
type chunkTally struct {
	done, unchanged, refused int
	namespace                string
	several                  bool // namespaces
}

func (t *chunkTally) add(o *Outcome, m made) {
	switch {
	case o.Code == CodeStale:
		return // it comes again
	case o.Code == CodeExists || o.Replay:
		t.unchanged++
		return
	case o.Code == CodeOK:
		t.done++
	default:
		t.refused++
	}
	t.several = t.several || t.namespace != "" && t.namespace != m.namespace
	t.namespace = m.namespace
}

// recordChunks writes the records of what was created in chunks. A repetition that changed nothing leaves none.
func (a *applier) recordChunks(c *Create, chunks []chunkTally) error {
	for i := range chunks {
		t := &chunks[i]
		if t.done+t.refused == 0 {
			continue
		}
		code := CodeOK
		if t.done == 0 {
			code = CodeRefused
		}
		rec := a.newAudit(&c.Callers[i], code)
		rec.Action, rec.Done, rec.Unchanged, rec.Refused = "job.create", t.done, t.unchanged, t.refused
		if !t.several {
			rec.Namespace = t.namespace
		}
		if err := a.appendAudit(&rec); err != nil {
			return err
		}
	}
	return nil
}

// appendCaller writes a caller byte by byte as the library would.
func appendCaller(b []byte, c *Caller) []byte {
	b = msg.Map(b, msg.Given(c.Address != "", c.Bulk, c.Name != "", c.Request != "", c.Token != ""))
	if c.Address != "" {
		b = msg.Str(msg.Str(b, "a"), c.Address)
	}
	if c.Bulk {
		b = msg.Bool(msg.Str(b, "k"), true)
	}
	if c.Name != "" {
		b = msg.Str(msg.Str(b, "n"), c.Name)
	}
	if c.Request != "" {
		b = msg.Str(msg.Str(b, "q"), c.Request)
	}
	if c.Token != "" {
		b = msg.Str(msg.Str(b, "t"), c.Token)
	}
	return b
}

func (r *createReader) caller(c *Caller) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "a":
			c.Address = r.Str()
		case "k":
			c.Bulk = r.Bool()
		case "n":
			c.Name = r.Str()
		case "q":
			c.Request = r.Str()
		case "t":
			c.Token = r.Str()
		default:
			r.Bad = true
		}
	})
}
