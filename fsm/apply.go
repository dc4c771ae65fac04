package fsm

import (
	"fmt"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/mutant"
	"github.com/carillon-scheduler/carillon/store"
)

// applier is one command being applied. Its methods return an error only if the store failed, which ends the process; whatever
// is wrong with an item is in the item's outcome.
type applier struct {
	b     *store.Batch
	now   int64
	reply *Reply

	// What an item that ends an attempt works on; the next item overwrites it. On the heap they would be three allocations an item.
	scratch struct {
		row    store.Row
		state  store.State
		record store.Record
	}
}

// apply changes the state by one command. term is that of the log entry.
func apply(b *store.Batch, cmd any, term uint64) (*Reply, error) {
	h, n := headOf(cmd)
	a := &applier{b: b, now: h.Now, reply: &Reply{Items: make([]Outcome, 0, n)}}
	if h.Term != term && !mutant.On(mutant.ForgetTerm) {
		// The proposer led in another term than the one in which the entry was written: what it computed may be about another
		// leader's state.
		return a.all(n, Outcome{Code: CodeStale}), nil
	}
	if h.Now < 0 || h.Now > maxTime {
		return a.all(n, Outcome{Code: CodeRefused, Text: "the stamp is out of range"}), nil
	}
	markBefore := b.C.Mark
	b.C.Mark = max(b.C.Mark, h.Now)
	if b.Info().Hold.On && stopsOnHold(cmd) {
		return a.all(n, Outcome{Code: CodeStale}), nil
	}
	var err error
	switch c := cmd.(type) {
	case *Create:
		err = a.create(c)
	case *Update:
		err = a.once(c.Request, func() (Outcome, error) { return a.update(c) })
	case *Delete:
		err = a.once(c.Request, func() (Outcome, error) { return a.delete(c) })
	case *Pause:
		err = a.once(c.Request, func() (Outcome, error) { return a.pause(c) })
	case *Resume:
		err = a.once(c.Request, func() (Outcome, error) { return a.resume(c) })
	case *Trigger:
		err = a.once(c.Request, func() (Outcome, error) { return a.trigger(c) })
	case *Backfill:
		err = a.once(c.Request, func() (Outcome, error) { return a.backfill(c) })
	case *Claim:
		err = a.claim(c)
	case *Complete:
		err = a.complete(c)
	case *Expire:
		err = a.expire(c)
	case *Advance:
		err = a.advance(c)
	case *Admit:
		err = a.admit(c)
	case *Cancel:
		err = a.once(c.Request, func() (Outcome, error) { return a.cancel(c) })
	case *Redrive:
		err = a.once(c.Request, func() (Outcome, error) { return a.redrive(c) })
	case *Purge:
		err = a.once(c.Request, func() (Outcome, error) { return a.purge(c) })
	case *Trim:
		err = a.trim(c)
	case *Stamp:
		a.stamp(c, markBefore)
	case *Calendar:
		err = a.once(c.Request, func() (Outcome, error) { return a.calendar(c) })
	case *Quarantine:
		err = a.quarantine(c)
	case *ClockReset:
		err = a.once(c.Request, func() (Outcome, error) {
			a.resetClock()
			return Outcome{Code: CodeOK}, nil
		})
	case *Cleanup:
		err = a.cleanup(c)
	case *Init:
		a.init(c)
	case *PutNode:
		err = a.putNode(c)
	case *RemoveNode:
		err = a.removeNode(c)
	case *SetLevel:
		err = a.setLevel(c)
	case *PutQueue:
		err = a.once(c.Request, func() (Outcome, error) { return a.putQueue(c) })
	case *DeleteQueue:
		err = a.once(c.Request, func() (Outcome, error) { return a.deleteQueue(c) })
	case *Release:
		err = a.once(c.Request, func() (Outcome, error) { return a.releaseHold() })
	case *Lose:
		err = a.loseOpen(c)
	case *ClaimNotices:
		err = a.claimNotices(c, term)
	case *SettleNotices:
		err = a.settleNotices(c)
	default:
		err = fmt.Errorf("fsm: %T has no apply", cmd)
	}
	return a.reply, err
}

// headOf is a command's head and how many items it has.
func headOf(cmd any) (Head, int) {
	switch c := cmd.(type) {
	case *Create:
		return c.Head, len(c.Items)
	case *Update:
		return c.Head, 1
	case *Delete:
		return c.Head, 1
	case *Pause:
		return c.Head, 1
	case *Resume:
		return c.Head, 1
	case *Trigger:
		return c.Head, 1
	case *Backfill:
		return c.Head, 1
	case *Claim:
		return c.Head, len(c.Jobs)
	case *Complete:
		return c.Head, len(c.Jobs)
	case *Expire:
		return c.Head, len(c.Jobs)
	case *Advance:
		return c.Head, len(c.Jobs)
	case *Admit:
		return c.Head, len(c.Jobs)
	case *Cancel:
		return c.Head, 1
	case *Redrive:
		return c.Head, 1
	case *Purge:
		return c.Head, 1
	case *Trim:
		return c.Head, 1
	case *Stamp:
		return c.Head, 1
	case *Calendar:
		return c.Head, 1
	case *Quarantine:
		return c.Head, 1
	case *ClockReset:
		return c.Head, 1
	case *Cleanup:
		return c.Head, len(c.Jobs)
	case *Init:
		return c.Head, 1
	case *PutNode:
		return c.Head, 1
	case *RemoveNode:
		return c.Head, 1
	case *SetLevel:
		return c.Head, 1
	case *PutQueue:
		return c.Head, 1
	case *DeleteQueue:
		return c.Head, 1
	case *Release:
		return c.Head, 1
	case *Lose:
		return c.Head, 1
	case *ClaimNotices:
		return c.Head, len(c.Jobs)
	case *SettleNotices:
		return c.Head, len(c.Jobs)
	}
	return Head{}, 0
}

// all answers every item alike.
func (a *applier) all(n int, o Outcome) *Reply {
	for range n {
		a.outcome(o)
	}
	return a.reply
}

func (a *applier) outcome(o Outcome) { a.reply.Items = append(a.reply.Items, o) }

// storedOutcome is what requests keeps.
type storedOutcome struct {
	Fingerprint uint64  `codec:"f"`
	Outcome     Outcome `codec:"o"`
}

// once answers a repeated request with its first outcome. Only outcomes that changed something are kept: what was refused may
// be tried again under the same key.
func (a *applier) once(q Request, do func() (Outcome, error)) error {
	if o, ok, err := a.repeat(q); err != nil || ok {
		a.outcome(o)
		return err
	}
	o, err := do()
	if err != nil {
		return err
	}
	a.outcome(o)
	return a.remember(q, o)
}

// maxRequestID bounds what becomes a key of the store; bbolt's own bound would end the process.
const maxRequestID = 1 << 10

// repeat is the answer to a request that need not, or may not, be done.
func (a *applier) repeat(q Request) (Outcome, bool, error) {
	if q.ID == "" {
		return Outcome{}, false, nil
	}
	if len(q.ID) > maxRequestID {
		return Outcome{Code: CodeRefused, Text: "the request id is too long"}, true, nil
	}
	data := a.b.Request(q.ID)
	if data == nil {
		return Outcome{}, false, nil
	}
	var s storedOutcome
	if err := codec.NewDecoderBytes(data, handle).Decode(&s); err != nil {
		return Outcome{}, false, fmt.Errorf("fsm: stored outcome of request %q: %w", q.ID, err)
	}
	if s.Fingerprint != q.Fingerprint {
		return Outcome{Code: CodeKeyReused}, true, nil
	}
	s.Outcome.Replay = true
	return s.Outcome, true, nil
}

func (a *applier) remember(q Request, o Outcome) error {
	if q.ID == "" || (o.Code != CodeOK && o.Code != CodeQueued) {
		return nil
	}
	data, err := encodeStored(q.Fingerprint, &o)
	if err != nil {
		return err
	}
	return a.b.PutRequest(q.ID, data, q.Expires)
}

// notRun accounts for occurrences that do not run: they join the interval in the state, or that is written out first.
func (a *applier) notRun(id job.ID, s *store.State, i store.Interval) error {
	if i.Empty() {
		return nil
	}
	s.LastNominal = max(s.LastNominal, i.Last)
	if s.NotRun.Add(i) {
		return nil
	}
	if err := a.flush(id, s); err != nil {
		return err
	}
	s.NotRun = i
	return nil
}

// flush writes the interval of the state into the history.
func (a *applier) flush(id job.ID, s *store.State) error {
	if s.NotRun.Empty() {
		return nil
	}
	if mutant.On(mutant.ForgetNotRun) {
		s.NotRun = store.Interval{}
		return nil
	}
	rec := store.Record{Job: id, Recorded: a.now, Interval: s.NotRun}
	s.NotRun = store.Interval{}
	_, err := a.b.Append(&rec, s)
	return err
}

func (g Gap) interval() store.Interval {
	if g.Count == 0 {
		return store.Interval{}
	}
	return store.Interval{First: g.First, Last: g.Last, Count: g.Count, AtLeast: g.AtLeast, Status: g.Status, Reason: g.Reason}
}

func (g Gap) covers(at int64) bool { return g.Count > 0 && g.First <= at && at <= g.Last }

// maxTime is far beyond every schedule and well within what a place in the index can hold.
const maxTime = 1 << 48

// wrong says what is wrong with a next occurrence and the interval before it; "" if nothing is. last is the last nominal time that is
// accounted for. Applied all the same it would leave a job that nothing can ever be claimed from, or an occurrence with two fates.
func wrong(w When, g Gap, last int64) string {
	switch {
	case w.At < 0 || w.At > maxTime || w.At != 0 && (w.Ready < w.At || w.Ready > maxTime):
		return "the next occurrence is out of range"
	case g.Count == 0:
		return ""
	case g.Count < 0 || g.First <= 0 || g.First > g.Last || g.Last > maxTime || !notRun(g.Status):
		return "the interval that does not run makes no sense"
	case g.First <= last:
		return "the interval that does not run contains what is accounted for already"
	case w.At != 0 && w.At <= g.Last:
		return "the next occurrence lies in the interval that does not run"
	}
	return ""
}

// wrongGap says what is wrong with the next occurrence of a job and the interval that does not run before it. A one-off has one occurrence: what an edit into
// one recorded behind it is accounted for already, and no interval may have it once more.
func wrongGap(s *store.State, w When, g Gap) string {
	if s.OneOff && g.Count != 0 && (g.Count != 1 || g.First != g.Last) {
		return "the interval that does not run has more than the one occurrence of the job"
	}
	return wrong(w, g, s.LastNominal)
}

// wrongAfter says what is wrong with an interval behind the next occurrence.
func wrongAfter(oneOff bool, w When, g Gap, last int64) string {
	switch {
	case g.Count == 0:
		return ""
	case !oneOff: // whoever has more occurrences meets them again
		return "only the occurrence of a one-off has an interval behind it"
	case g.Count < 0 || w.At == 0 || g.First <= w.At:
		return "the interval behind the next occurrence makes no sense"
	}
	return wrong(When{}, g, last)
}

// notRun says that a status is one of an occurrence that did not run.
func notRun(s job.RunStatus) bool {
	return s == job.RunSkipped || s == job.RunMissed || s == job.RunExpired || s == job.RunCanceled
}

// waiting is the occurrence that a job has before it: in the due index, or put aside while it is stopped. 0 if there is none.
func waiting(s *store.State, p store.Place) int64 {
	if p.Parked {
		return s.ParkedAt
	}
	return p.At
}

// account records the occurrence at, which was due, unless it is kept as the next one or the proposer's interval has it. Its reason
// may be unknown to a proposer that counts by a schedule which no longer has it; silence would be a bug all the same.
func (a *applier) account(id job.ID, s *store.State, at int64, next When, g Gap, reason job.Reason) error {
	if at == 0 || at > a.now || at == next.At || g.covers(at) {
		return nil
	}
	i := store.Interval{First: at, Last: at, Count: 1, Status: job.RunSkipped, Reason: reason}
	if next.At != 0 && next.At < at { // an edit may go back; then the last nominal time must not go forward
		_, err := a.b.Append(&store.Record{Job: id, Recorded: a.now, Interval: i}, s)
		return err
	}
	return a.notRun(id, s, i)
}

func stopReason(s *store.State) job.Reason {
	switch {
	case s.Quarantined:
		return job.ReasonQuarantined
	case s.Paused:
		return job.ReasonPaused
	}
	return job.ReasonEdited
}

// place is where a state goes whose next occurrence is w.
func place(s *store.State, w When) store.Place {
	if w.At == 0 || s.Paused || s.Quarantined {
		return store.Place{Parked: true}
	}
	return store.Place{Lane: s.Lane, Ready: w.Ready, At: w.At}
}

// seen says whether the proposer looked at this state.
func seen(s *store.State, p store.Place, x Seen) bool {
	if s.Gen != x.Gen || p.Parked != x.Parked {
		return false
	}
	return p.Parked || p.At == x.At && p.Ready == x.Ready
}

// settle plans the end of a one-off job that has nothing left to do.
func (a *applier) settle(id job.ID, s *store.State, p store.Place) error {
	return a.settleIn(id, s, p, int64(s.Retention)*1000)
}

func (a *applier) settleIn(id job.ID, s *store.State, p store.Place, keep int64) error {
	if !s.OneOff || !p.Parked || s.Paused || s.Quarantined || s.Active != 0 || s.Waiting != 0 {
		return nil
	}
	if mutant.On(mutant.CleanEarly) {
		keep /= 2
	}
	return a.b.PutCleanup(cleanupKey(id, a.now+keep))
}

func cleanupKey(id job.ID, ready int64) store.DueKey {
	return store.DueKey{Lane: job.Lanes - 1, Ready: ready, Job: id, Kind: store.KindCleanup}
}

func (a *applier) stamp(c *Stamp, markBefore int64) {
	if c.Takeover && mutant.On(mutant.ForgetRequests) {
		_, _ = a.b.TrimRequests(maxTime, 1<<20)
	}
	if c.Takeover {
		info := a.b.Info()
		edge := a.b.LeftEdge()
		// Whatever still waits in the index decides which outages matter: an entry that is due at or before the end of one may
		// have fallen into it.
		kept := make([]store.Outage, 0, len(info.Outages)+1)
		for _, o := range info.Outages {
			if o.To >= edge {
				kept = append(kept, o)
			}
		}
		if markBefore > 0 && c.Head.Now-markBefore > minOutage {
			kept = append(kept, store.Outage{From: markBefore, To: c.Head.Now})
		}
		if len(kept) > maxOutages {
			kept = kept[len(kept)-maxOutages:]
		}
		info.Outages = kept
		a.b.SetInfo(info)
	}
	a.outcome(Outcome{Code: CodeOK})
}

const (
	minOutage  = 1000 // ms; a shorter one is younger than any grace worth setting
	maxOutages = 64
)

func (a *applier) calendar(c *Calendar) (Outcome, error) {
	if c.Name == "" || len(c.Name) > job.MaxName {
		return Outcome{Code: CodeRefused, Text: "a calendar needs a name of reasonable length"}, nil
	}
	if len(c.Data) == 0 {
		if a.b.Calendar(c.Name) == nil {
			return Outcome{Code: CodeNotFound}, nil
		}
		return Outcome{Code: CodeOK}, a.b.PutCalendar(c.Name, nil)
	}
	return Outcome{Code: CodeOK}, a.b.PutCalendar(c.Name, c.Data)
}

func (a *applier) init(c *Init) {
	info := a.b.Info()
	if info.ClusterID != "" {
		a.outcome(Outcome{Code: CodeRefused, Text: "the cluster has an id already"})
		return
	}
	info.ClusterID = c.ClusterID
	a.b.SetInfo(info)
	a.outcome(Outcome{Code: CodeOK})
}

func (a *applier) trim(c *Trim) error {
	more := false
	_, err := a.b.TrimHistory(c.Limit, func(seq uint64, r *store.Record) bool {
		old := r.Recorded < c.Before || c.MaxCount > 0 && a.b.C.HistSeq-seq >= c.MaxCount
		if mutant.On(mutant.TrimMore) && !old && more {
			more = false
			return true
		}
		more = old
		return old
	})
	if err != nil {
		return err
	}
	if _, err := a.b.TrimRequests(a.now, c.Limit); err != nil {
		return err
	}
	a.outcome(Outcome{Code: CodeOK})
	return nil
}
