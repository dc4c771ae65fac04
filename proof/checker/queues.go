package checker

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
)

// setting is what a queue was told to be, by one call.
type setting struct {
	limit  int // 0: none
	paused bool
	lo, hi int64 // it took effect between these, if it did
	sure   bool
}

// queues: nothing is claimed from a queue that is paused, nor more than its limit allows. Both are held against a claim
// only if no call that may have been in force then permits it.
func (c *checker) queues() {
	told := map[string][]setting{}
	for _, ch := range c.settings {
		told[ch.Name] = append(told[ch.Name],
			setting{limit: ch.Limit, paused: ch.Paused, lo: ch.lo + c.clock, hi: ch.hi - c.clock, sure: ch.sure})
	}
	if len(told) == 0 {
		return
	}
	claims := map[string][]*attempt{}
	for _, id := range c.order {
		l := c.lives[id]
		if l.w == nil {
			continue
		}
		for _, k := range sortedKeys(l.runs) {
			for _, a := range l.runs[k].attempts {
				if queue := c.claimedFrom(l, a); queue != "" {
					claims[queue] = append(claims[queue], a)
				}
			}
		}
	}
	for queue, all := range claims {
		slices.SortFunc(all, func(a, b *attempt) int { return cmp.Compare(a.Fence, b.Fence) })
		for i, a := range all {
			c.claimOf(queue, told[queue], a, all[:i])
		}
	}
}

func (c *checker) claimOf(queue string, told []setting, a *attempt, before []*attempt) {
	at := int64(a.ClaimedAt)
	l := c.lives[a.key.Job]
	paused, limit := true, 0
	for _, s := range c.inForce(told, at) {
		if s.paused {
			continue
		}
		if paused || limit != 0 && (s.limit == 0 || s.limit > limit) {
			limit = s.limit
		}
		paused = false
	}
	if paused {
		c.bad(RuleQueue, l, a.key.At, "attempt %d was claimed at %s, while the queue %s was paused",
			a.Attempt, a.ClaimedAt, queue)
		return
	}
	if limit == 0 {
		return
	}
	n := 0
	for _, b := range before {
		// Retries and runs by hand count like any other. A worker's word comes before its commit: what it had not ended
		// was in hand. The stamp of that commit says less: the claim may have been stamped before it, and committed
		// after.
		end := int64(b.FinishedAt)
		if b.isOpen {
			end = forever
		}
		if int64(b.ClaimedAt) <= at && end > at+c.clock {
			n++
		}
	}
	if n >= limit {
		c.bad(RuleQueue, l, a.key.At,
			"attempt %d was claimed at %s, while %d runs of the queue %s were with workers, of %d allowed", a.Attempt,
			a.ClaimedAt, n, queue, limit)
	}
}

// inForce are the settings that may have held at a time: those that were asked for by then and that no later one surely
// took the place of.
func (c *checker) inForce(told []setting, at int64) (out []setting) {
	first := setting{lo: -forever, hi: -forever, sure: true}
	for _, s := range append([]setting{first}, told...) {
		replaced := slices.ContainsFunc(told, func(o setting) bool {
			return o.sure && o.lo > s.hi && o.hi < at-c.clock
		})
		if s.lo <= at+c.clock && !replaced {
			out = append(out, s)
		}
	}
	return out
}

// claimedFrom is the queue that an attempt was claimed from; empty if it was of none, or if that is not certain.
func (c *checker) claimedFrom(l *life, a *attempt) string {
	specs, _ := c.startedWith(l, l.w, a)
	for _, s := range specs {
		if queueOf(s) != queueOf(specs[0]) {
			return ""
		}
	}
	if len(specs) == 0 || queueOf(specs[0]) == "" {
		return ""
	}
	return In(specs[0].Namespace, queueOf(specs[0]))
}

// queueOf is the queue that a definition names, empty if its type has none.
func queueOf(s *job.Spec) string {
	var p job.QueuePayload
	if s.Type != job.TypeQueue || json.Unmarshal(s.Payload, &p) != nil {
		return ""
	}
	return p.Queue
}
