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
		queue := c.queueOf(id)
		if queue == "" || l.w == nil {
			continue
		}
		for _, k := range sortedKeys(l.runs) {
			claims[queue] = append(claims[queue], l.runs[k].attempts...)
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

// queueOf is the queue of a job, empty if it has none. No edit changes it in what is judged here.
func (c *checker) queueOf(id job.ID) string {
	spec := c.lives[id].create.Spec
	if spec == nil || spec.Type != job.TypeQueue {
		return ""
	}
	var p job.QueuePayload
	if json.Unmarshal(spec.Payload, &p) != nil {
		return ""
	}
	return In(spec.Namespace, p.Queue)
}
