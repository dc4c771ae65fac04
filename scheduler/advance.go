package scheduler

import (
	"errors"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/scheduler/decide"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// maxWaitingAdvances stops claims while this many entries wait to be moved on: after an outage of hours every entry
	// may be.
	maxWaitingAdvances = 4 * maxBatch
	maxQuarantines     = 8
	// maxBatchRows is how many runs of run_all one command puts up, give or take one job's: a key may have half a
	// kilobyte.
	maxBatchRows = 256
	// triageChunk is how many entries of buckets that do not run are looked at in a second.
	triageChunk = 2048
	// cleanupLater is when a one-off job with dead letters or open runs is looked at again.
	cleanupLater = time.Hour
)

// advance is an entry that is moved on without a run.
type advance struct {
	key      store.DueKey
	gen      uint32
	decision decide.Decision
	keys     []string // of the rows: their idempotency keys where those are not the default
}

// quarantine is a job that the scheduler cannot handle.
type quarantine struct {
	key store.DueKey
	gen uint32
	why string
}

// triage looks at entries that wait for a slot: their deadline may have passed, or they fell into an outage or a
// blackout. None of that needs a worker.
func (l *loop) triage() {
	left := triageChunk
	for _, b := range l.buckets {
		if served := b.served; served || b.head.len() == 0 || left <= 0 {
			b.served = false // it moves: its entries are looked at when their turn comes
			continue
		}
		if b.expires > 0 && l.now > b.expires {
			l.expireHead(b)
		}
		items := b.head.all()
		for i := 0; i < len(items) && left > 0; i++ {
			if !items[i].looked {
				left -= l.triageBucket(b, left)
				break
			}
		}
	}
}

// expireHead makes triage look again at the entries of a bucket whose deadline has passed.
func (l *loop) expireHead(b *bucket) {
	b.expires = 0
	items := b.head.all()
	for i := range items {
		if items[i].expires > 0 {
			items[i].looked = l.now <= items[i].expires
			if items[i].looked && (b.expires == 0 || items[i].expires < b.expires) {
				b.expires = items[i].expires
			}
		}
	}
}

// triageBucket looks at up to limit entries of a bucket that were not looked at, and takes out those that will not run.
func (l *loop) triageBucket(b *bucket, limit int) int {
	var picks []pick
	items := b.head.all()
	var at []int
	for i := range items {
		if len(picks) == limit {
			break
		}
		if !items[i].looked {
			picks, at = append(picks, pick{item: items[i], b: b}), append(at, i)
		}
	}
	out := map[int]bool{}
	for start := 0; start < len(picks); start += buildChunk {
		end := min(start+buildChunk, len(picks))
		if err := l.load(picks[start:end]); err != nil {
			l.noteScan(err)
			break
		}
		for i := start; i < end; i++ {
			if len(l.advances) >= maxWaitingAdvances {
				break
			}
			p := &picks[i]
			if !l.judge(p) {
				out[at[i]] = true
				continue
			}
			items[at[i]] = p.item
			if p.expires > 0 && (b.expires == 0 || p.expires < b.expires) {
				b.expires = p.expires
			}
		}
	}
	if len(out) > 0 {
		kept := items[:0]
		for i := range items {
			if !out[i] {
				kept = append(kept, items[i])
			}
		}
		l.ready -= len(items) - len(kept)
		b.head.items = b.head.items[:b.head.first+len(kept)]
		l.wantRefill(b)
	}
	return len(picks)
}

// sendAdvances proposes what is to be moved on.
func (l *loop) sendAdvances() {
	for len(l.advances) > 0 && l.advancing < maxInFlight && (l.advancing == 0 || len(l.advances) >= worthwhile) {
		n, rows := 0, 0
		for n < min(maxBatch, len(l.advances)) && rows < maxBatchRows {
			rows += len(l.advances[n].decision.Rows)
			n++
		}
		batch := append([]advance(nil), l.advances[:n]...)
		l.advances = append(l.advances[:0], l.advances[n:]...)
		cmd := &fsm.Advance{Head: l.s.head(l.now)}
		for i := range batch {
			a := &batch[i]
			cmd.Lane = append(cmd.Lane, byte(a.key.Lane))
			cmd.Kind = append(cmd.Kind, byte(a.key.Kind)<<4|byte(a.key.Origin))
			cmd.Ready = append(cmd.Ready, a.key.Ready)
			cmd.Jobs = append(cmd.Jobs, uint64(a.key.Job))
			cmd.At = append(cmd.At, a.key.At)
			cmd.Gen = append(cmd.Gen, a.gen)
			cmd.Next = append(cmd.Next, a.decision.Next.At)
			cmd.NextReady = append(cmd.NextReady, a.decision.Next.Ready)
			cmd.Gaps = append(cmd.Gaps, a.decision.Gap)
			for j, at := range a.decision.Rows {
				cmd.Rows = append(cmd.Rows, fsm.CatchUp{Item: uint16(i), At: at, Key: a.keys[j]})
			}
		}
		l.advancing++
		l.submit(cmd, func(reply *fsm.Reply, err error) {
			l.advancing--
			if l.applied("advance", n, func(i int) store.DueKey { return batch[i].key }, reply, err) {
				l.advanced(batch, reply)
			}
		})
	}
}

func (l *loop) advanced(batch []advance, reply *fsm.Reply) {
	for i := range batch {
		a := &batch[i]
		switch o := &reply.Items[i]; {
		case o.Code == fsm.CodeRefused && a.key.Kind == store.KindOccurrence:
			l.bad = append(l.bad, quarantine{a.key, a.gen, "advancing to the next occurrence was refused: " + o.Text})
			continue
		case o.Code != fsm.CodeOK:
			l.refused(a.key)
			continue
		}
		l.settled(a.key)
		if a.decision.Next.At != 0 {
			l.mark(store.DueMark{Lane: a.key.Lane, Ready: a.decision.Next.Ready})
		}
	}
}

// lostProposal notes a proposal that failed. After an ambiguous error the entries stay as they are: the log will show.
func (l *loop) lostProposal(n int, what string, err error) {
	l.refusedAll(err)
	if errors.Is(err, ErrNotApplied) {
		return
	}
	l.s.log.Error("proposal with unknown outcome", "proposal", what, "items", n, "error", err)
	l.s.mu.Lock()
	l.s.unknown += n
	l.s.mu.Unlock()
}

func (l *loop) sendQuarantines() {
	for len(l.bad) > 0 && l.quarantined < maxQuarantines {
		q := l.bad[0]
		l.bad = l.bad[1:]
		l.quarantined++
		cmd := &fsm.Quarantine{Head: l.s.head(l.now), Job: uint64(q.key.Job), Gen: q.gen,
			Why: job.Head(q.why, job.MaxErrorBytes)}
		l.submit(cmd, func(reply *fsm.Reply, err error) {
			l.quarantined--
			switch {
			case errors.Is(err, ErrNotApplied):
				l.refusedAll(err)
				l.forget(q.key)
			case err != nil:
				l.lostProposal(1, "quarantine", err)
			case reply.Items[0].Code == fsm.CodeOK:
				l.s.log.Warn("job quarantined", event.JobQuarantined, "job", q.key.Job, "why", q.why)
				l.settled(q.key)
			default:
				l.refused(q.key)
			}
		})
	}
}

// sendCleanups removes one-off jobs whose retention is over.
func (l *loop) sendCleanups() {
	if len(l.cleanups) == 0 || l.cleaning {
		return
	}
	n := min(maxBatch, len(l.cleanups))
	batch := append([]store.DueKey(nil), l.cleanups[:n]...)
	l.cleanups = append(l.cleanups[:0], l.cleanups[n:]...)
	cmd := &fsm.Cleanup{Head: l.s.head(l.now), Later: l.now + cleanupLater.Milliseconds()}
	for _, k := range batch {
		cmd.Lane = append(cmd.Lane, byte(k.Lane))
		cmd.Ready = append(cmd.Ready, k.Ready)
		cmd.Jobs = append(cmd.Jobs, uint64(k.Job))
	}
	l.cleaning = true
	l.submit(cmd, func(reply *fsm.Reply, err error) {
		l.cleaning = false
		if l.applied("cleanup", n, func(i int) store.DueKey { return batch[i] }, reply, err) {
			for _, k := range batch {
				l.settled(k)
			}
		}
	})
}
