package checker

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// Received is what a worker was given to do with an attempt.
type Received struct {
	Type     job.Type
	Payload  json.RawMessage // of a run of a queue: as its job's payload would say it
	Timeout  job.Duration
	Delivery string
}

func (r *Received) String() string {
	return fmt.Sprintf("%s %s, timeout %s, %s", r.Type, r.Payload, time.Duration(r.Timeout), r.Delivery)
}

// definitions are what is wrong with what the attempts of a job were given, if its definitions followed each other as
// in a world.
func (c *checker) definitions(l *life, w *world) (out []Problem) {
	var all []*attempt
	for _, k := range sortedKeys(l.runs) {
		all = append(all, l.runs[k].attempts...)
	}
	slices.SortStableFunc(all, func(a, b *attempt) int { return cmp.Compare(a.Fence, b.Fence) })
	var last *attempt
	for _, a := range all {
		say := func(format string, args ...any) {
			out = append(out, Problem{Rule: RuleDefinition, Job: l.id, Name: l.name, Occurrence: job.Instant(a.key.At),
				Text: fmt.Sprintf("attempt %d with fence %d, claimed at %s: "+format,
					append([]any{a.Attempt, a.Fence, a.ClaimedAt}, args...)...)})
		}
		// Fences and versions both grow in the order of the log, whatever the stamps are.
		if a.JobVersion != 0 {
			if last != nil && a.JobVersion < last.JobVersion {
				say("it was started with version %d of the job, and the claim with fence %d before it with version %d",
					a.JobVersion, last.Fence, last.JobVersion)
			}
			last = a
		}
		c.defined(l, w, a, say)
	}
	return out
}

// defined: an attempt is what the definition in force at its claim says: payload, timeout, selector and delivery.
// Neither an edit nor a change of leaders makes anything else of it afterwards. The key is that of the whole run, see
// keys.
func (c *checker) defined(l *life, w *world, a *attempt, say func(format string, args ...any)) {
	specs, inForce := c.startedWith(l, w, a)
	if len(specs) == 0 {
		say("it was started with version %d of the job, and version %d was in force", a.JobVersion, inForce)
		return
	}
	c.timedOut(a, specs, say)
	if a.effect == nil {
		return
	}
	if tags, ok := c.in.Tags[a.Worker]; ok && !anyOf(specs, func(s *job.Spec) bool { return has(tags, s.Workers) }) {
		say("it ran on %s, which has the tags %v, and the job selects %v", a.Worker, tags, specs[0].Workers)
	}
	if a.Key != "" && a.Key != a.effect.Key {
		say("it was sent with the key %q, and is recorded with %q", a.effect.Key, a.Key)
	}
	if a.effect.Got == nil {
		return
	}
	why := ""
	for _, s := range specs {
		if why = otherThan(a.effect.Got, s); why == "" {
			return
		}
	}
	say("it was given %s: %s", a.effect.Got, why)
}

// startedWith are the definitions that an attempt may have been started with: that which its record names, or all that
// may have been in force at its claim. There is none if the record names another; inForce is the last that was.
func (c *checker) startedWith(l *life, w *world, a *attempt) (specs []*job.Spec, inForce uint64) {
	at := int64(a.ClaimedAt)
	vs := w.committed(at-c.clock, at+c.clock)
	for _, v := range vs {
		if inForce = v.number; a.JobVersion == 0 || l.vague() || v.number == a.JobVersion {
			specs = append(specs, v.spec)
		}
	}
	return append(specs, l.unsure()...), inForce // an edit without an answer may have come at any time
}

func anyOf(specs []*job.Spec, pass func(*job.Spec) bool) bool {
	for _, s := range specs {
		if pass(s) {
			return true
		}
	}
	return false
}

// committed are the versions that may have been in force when a command stamped between from and to was applied.
func (w *world) committed(from, to int64) []*version {
	var out []*version
	for i := range w.versions {
		v := &w.versions[i]
		if i > 0 && v.sent.lo > to || i+1 < len(w.versions) && w.versions[i+1].sent.hi < from {
			continue
		}
		out = append(out, v)
	}
	if len(out) == 0 {
		out = append(out, &w.versions[len(w.versions)-1])
	}
	return out
}

// vague says that a job has edits whose outcome is unknown.
func (l *life) vague() bool { return len(l.unsure()) > 0 }

func (l *life) unsure() (out []*job.Spec) {
	for _, u := range l.of(CallUpdate) {
		if !u.sure && u.Spec != nil {
			s := *u.Spec
			s.Normalize()
			out = append(out, &s)
		}
	}
	return out
}

// has says whether a worker's tags are those that a job selects.
func has(tags, want map[string]string) bool {
	for k, v := range want {
		if tags[k] != v {
			return false
		}
	}
	return true
}

// otherThan says in what something that was received is not what a definition says.
func otherThan(got *Received, s *job.Spec) string {
	timeout := s.Timeout
	if timeout == 0 {
		timeout = job.DefaultTimeout
	}
	switch {
	case got.Type != s.Type:
		return fmt.Sprintf("the job's type is %s", s.Type)
	case !sameJSON(got.Payload, s.Payload):
		return fmt.Sprintf("the job's payload is %s", s.Payload)
	case got.Timeout != timeout:
		return fmt.Sprintf("the job's timeout is %s", time.Duration(timeout))
	case got.Delivery != s.Delivery:
		return fmt.Sprintf("the job's delivery is %s", s.Delivery)
	}
	return ""
}

func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}

// timedOut: an attempt ends for its timeout not before it is over, counted from the claim at the earliest. A worker
// that stopped for another reason, its lease for one, may report that later: what the leader can know is when it heard
// of it.
func (c *checker) timedOut(a *attempt, specs []*job.Spec, say func(string, ...any)) {
	if a.Reason != job.ReasonTimeout || a.isOpen {
		return
	}
	end, start := a.recorded, int64(a.ClaimedAt)
	if e := a.effect; e != nil && e.End != 0 && e.Outcome == TimedOut {
		end, start = int64(e.End), min(start, int64(e.Start))
	}
	least := forever
	for _, s := range specs {
		d := s.Timeout
		if d == 0 {
			d = job.DefaultTimeout
		}
		least = min(least, ms(d))
	}
	if end-start < least-1-c.clock { // the product cuts to milliseconds
		say("it is recorded as stopped at its timeout after %s, and that was %s",
			time.Duration(end-start)*time.Millisecond, time.Duration(least)*time.Millisecond)
	}
}

// sameAssignment says whether two assignments of one fence ask for the same.
func sameAssignment(a, b *Received) bool {
	return a == nil || b == nil ||
		otherThan(a, &job.Spec{Type: b.Type, Payload: b.Payload, Timeout: b.Timeout, Delivery: b.Delivery}) == ""
}
