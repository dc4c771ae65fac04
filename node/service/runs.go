package service

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// viewRuns is how many runs or records one view looks at, runsLimit how many one request does.
	viewRuns  = 512
	runsLimit = 50_000
	// chainSlack is how far, in ms, a record may be dated before the time of its run. The dates in a chain do not go
	// back, unless the clock was reset, but runs by hand in one millisecond get times of their own.
	chainSlack = 10_000
)

// runCursor is where a list of runs goes on: behind some of the intervals that are not in the history yet, below an
// open run, or below a history record.
type runCursor struct {
	notRun  int
	history bool
	below   job.RunKey
	seq     uint64
}

func (c runCursor) String() string {
	switch {
	case c.history:
		return "h" + strconv.FormatUint(c.seq, 32)
	case c.below == job.RunKey{}:
		return "n" + strconv.Itoa(c.notRun)
	}
	return c.below.String()
}

func parseRunCursor(s string) (c runCursor, err error) {
	if s == "" {
		return c, nil
	}
	if rest, ok := strings.CutPrefix(s, "h"); ok {
		c.history = true
		c.seq, err = strconv.ParseUint(rest, 32, 64)
		return c, badCursor(err)
	}
	if rest, ok := strings.CutPrefix(s, "n"); ok {
		n, err := strconv.ParseUint(rest, 10, 8)
		c.notRun = int(n)
		return c, badCursor(err)
	}
	c.below, err = job.ParseRunKey(s)
	return c, badCursor(err)
}

// lister walks runs, newest first, in short views, of all jobs or of one: of one job first what did not run and is not
// in the history yet, then the open ones, then the history. Of all jobs the open ones are listed together with what is
// due: an occurrence has the same key before and after its claim, so one cursor serves both.
type lister struct {
	b        *Service
	q        wire.RunQuery
	space    api.Space
	id       job.ID // 0: all jobs
	gone     bool   // the job is: its chain cannot be followed, and the whole log is looked through instead
	notRun   []job.Run
	due      []job.RunKey // of all jobs: what is due and not claimed, newest first
	open     bool         // list open runs
	finished bool         // list the history
	page     wire.RunPage
}

func (l *lister) wants(s job.RunStatus) bool {
	return len(l.q.Statuses) == 0 || slices.Contains(l.q.Statuses, s)
}

// shows says that runs of a namespace are in the list. Of one job all are in the same.
func (l *lister) shows(namespace string) bool {
	if l.id != 0 {
		return l.space.Finds(namespace)
	}
	return l.space.Lists(namespace)
}

// run fills the page.
func (l *lister) run(ctx context.Context, cur runCursor) (wire.RunPage, error) {
	l.page.Runs = []job.Run{}
	if !cur.history && cur.below == (job.RunKey{}) {
		for ; cur.notRun < len(l.notRun); cur.notRun++ {
			if l.full() {
				l.page.NextCursor = cur.String()
				return l.page, nil
			}
			if run := l.notRun[cur.notRun]; l.wants(run.Status) {
				l.page.Runs = append(l.page.Runs, run)
			}
		}
	}
	if !cur.history && !l.open {
		cur = runCursor{history: true}
	}
	for looked := 0; looked < runsLimit; looked += viewRuns {
		if err := ctx.Err(); err != nil {
			return l.page, err
		}
		end := false
		err := l.b.view(func(r *reader) (err error) {
			if !cur.history {
				var last bool
				if cur, last, err = l.openRuns(r, cur); err != nil || !last {
					return err
				}
				if end = !l.finished; end {
					return nil
				}
				cur = runCursor{history: true}
			}
			if l.full() {
				return nil
			}
			cur, end, err = l.records(r, cur)
			return err
		})
		if err != nil || end {
			return l.page, err
		}
		if l.full() {
			break
		}
	}
	l.page.NextCursor = cur.String()
	return l.page, nil
}

func (l *lister) full() bool { return len(l.page.Runs) >= l.q.Limit }

// openRuns adds open runs below the cursor; last says that there are no more.
func (l *lister) openRuns(r *reader, cur runCursor) (next runCursor, last bool, err error) {
	next, last = cur, true
	var inner error
	n := 0
	room := func() bool {
		last = last && n < viewRuns && !l.full()
		return last
	}
	// dueBefore adds what is due and newer than a run.
	dueBefore := func(k job.RunKey) bool {
		for len(l.due) > 0 && before(k, l.due[0]) {
			if !room() {
				return false
			}
			n++
			next.below, l.due = l.due[0], l.due[1:]
			if inner = l.addDue(r, next.below); inner != nil {
				return false
			}
		}
		return true
	}
	each := func(k job.RunKey, row store.Row) bool {
		if !dueBefore(k) || !room() {
			return false
		}
		n++
		next.below = k
		if !l.shows(r.Namespace(row.Class)) {
			return true
		}
		run, err := r.openRun(k, &row)
		if err != nil {
			inner = err
			return false
		}
		if l.wants(run.Status) {
			l.page.Runs = append(l.page.Runs, run)
		}
		return true
	}
	if l.id == 0 {
		err = r.EachRunBack(cur.below, each)
	} else {
		refs := r.Open(l.id)
		for i := len(refs) - 1; i >= 0; i-- {
			k := job.RunKey{Job: l.id, At: refs[i].At, Origin: refs[i].Origin}
			if cur.below != (job.RunKey{}) && !before(k, cur.below) {
				continue
			}
			row, ok, rerr := r.Run(k)
			if rerr != nil {
				return next, last, rerr
			}
			if ok && !each(k, row) {
				break
			}
		}
	}
	if err == nil && inner == nil && last {
		dueBefore(job.RunKey{})
	}
	if err == nil {
		err = inner
	}
	return next, last, err
}

// before is the order of the runs bucket.
func before(a, b job.RunKey) bool {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Origin, b.Origin)) < 0
}

// records adds history below the cursor; end says that there is no more.
func (l *lister) records(r *reader, cur runCursor) (next runCursor, end bool, err error) {
	next, end = cur, true
	var inner error
	n := 0
	each := func(seq uint64, rec store.Record) bool {
		if n == viewRuns || l.full() {
			end = false
			return false
		}
		n++
		next.seq = seq
		if l.gone && rec.Job != l.id || !l.wants(rec.Status) || !l.shows(rec.Namespace) {
			return true
		}
		run, err := r.record(seq, &rec)
		if err != nil {
			inner = err
			return false
		}
		l.page.Runs = append(l.page.Runs, run)
		return true
	}
	if l.id == 0 || l.gone {
		err = r.EachRecordBack(cur.seq, each)
	} else {
		from, ferr := r.chainFrom(l.id, cur.seq)
		if ferr != nil {
			return next, true, ferr
		}
		err = r.EachOfJob(from, each)
	}
	if err == nil {
		err = inner
	}
	return next, end, err
}

// chainFrom is the record of a job's chain below a sequence number; 0: its head.
func (r *reader) chainFrom(id job.ID, below uint64) (uint64, error) {
	if below == 0 {
		st, _, ok, err := r.State(id)
		if err != nil || !ok {
			return 0, err
		}
		return st.HistHead, nil
	}
	rec, ok, err := r.Record(below)
	if err != nil || !ok || rec.Job != id {
		return 0, err // trimmed meanwhile: everything older is gone, too
	}
	return rec.Prev, nil
}

func (b *Service) JobRuns(ctx context.Context, ref string, q wire.RunQuery, rd api.Read) (wire.RunPage, error) {
	cur, err := parseRunCursor(q.Cursor)
	if err != nil {
		return wire.RunPage{}, err
	}
	l := &lister{b: b, q: q, space: rd.Space, open: true, finished: true}
	var h held
	var due job.Run
	waits := false
	err = b.read(ctx, rd, func(r *reader) (err error) {
		if l.id, l.gone, err = r.findRuns(ref, rd.Space); err == nil && !l.gone {
			if h, err = r.held(l.id); err == nil && q.Cursor == "" {
				due, waits = r.dueRun(&h, b.why())
			}
		}
		return err
	})
	if err != nil {
		return wire.RunPage{}, err
	}
	if !l.gone {
		l.notRun = h.notRunYet(b.now()) // outside of the view: counting may take a moment
	}
	if waits {
		return l.withDue(due, func() (wire.RunPage, error) { return l.run(ctx, cur) })
	}
	return l.run(ctx, cur)
}

// findRuns resolves a reference to a job whose history is wanted. Of one that is gone the number is enough.
func (r *reader) findRuns(ref string, sc api.Space) (id job.ID, gone bool, err error) {
	if id, err = r.find(ref, sc); err == nil {
		return id, false, nil
	}
	if n, perr := job.ParseID(ref); perr == nil && job.CodeOf(err) == job.CodeNotFound && n > 0 &&
		uint64(n) <= r.C.NextJob {
		if def, gerr := r.definition(n); gerr != nil || def != nil { // it is not gone, but in another namespace
			return 0, false, cmp.Or(gerr, err)
		}
		return n, true, nil
	}
	return 0, false, err
}

// Runs implements api.Backend. With a job it lists what JobRuns does. Without one it has what is due and not claimed at
// its place among the open runs. The intervals that are not in the history yet are not in it: they sit in the states of
// their jobs, and finding them would need a scan of all jobs.
func (b *Service) Runs(ctx context.Context, q wire.RunQuery, rd api.Read) (wire.RunPage, error) {
	if q.Job != "" {
		return b.JobRuns(ctx, q.Job, q, rd)
	}
	cur, err := parseRunCursor(q.Cursor)
	if err != nil {
		return wire.RunPage{}, err
	}
	if err := b.fresh(ctx, rd); err != nil {
		return wire.RunPage{}, err
	}
	l := &lister{b: b, q: q, space: rd.Space, open: len(q.Statuses) == 0}
	for _, s := range q.Statuses {
		l.open = l.open || s.Open()
		l.finished = l.finished || !s.Open()
	}
	if l.wants(job.RunPending) && !cur.history {
		err := b.view(func(r *reader) (err error) {
			l.due, err = r.dueKeys(cur.below, rd.Space)
			return err
		})
		if err != nil {
			return wire.RunPage{}, err
		}
	}
	return l.run(ctx, cur)
}

func (b *Service) CancelRun(ctx context.Context, runID string, rq api.Request) (job.Run, error) {
	k, err := job.ParseRunKey(runID)
	if err != nil {
		return job.Run{}, noRun(runID)
	}
	if _, ok, err := b.replay(ctx, rq); err != nil || ok {
		if err != nil {
			return job.Run{}, err
		}
		return b.showRun(k, rq.Space)
	}
	if err := b.verify(ctx); err != nil {
		return job.Run{}, err
	}
	if err := b.view(func(r *reader) error { return r.runIn(k, rq.Space) }); err != nil {
		return job.Run{}, err
	}
	o, err := b.change(ctx, rq, func(a attempt) (fsm.Command, error) {
		return &fsm.Cancel{Head: a.head, Request: a.req, Job: uint64(k.Job), At: k.At, Origin: byte(k.Origin)}, nil
	})
	if err != nil {
		return job.Run{}, err
	}
	if o.Code == fsm.CodeNotFound {
		run, err := b.showRun(k, rq.Space) // it may have ended already, which is another thing than never having been
		if err != nil {
			return job.Run{}, err
		}
		return job.Run{}, job.Errorf(job.CodeState, "", "the run has ended already: %s", run.Status)
	}
	if err := outcomeError(o, runID); err != nil {
		return job.Run{}, err
	}
	return b.showRun(k, rq.Space)
}

func (b *Service) ExportHistory(ctx context.Context, after uint64, limit int, rd api.Read) ([]job.Run, error) {
	if err := b.fresh(ctx, rd); err != nil {
		return nil, err
	}
	var out []job.Run
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		end := true
		err := b.view(func(r *reader) error {
			var inner error
			n := 0
			err := r.EachRecord(after, func(seq uint64, rec store.Record) bool {
				if n == viewRuns || len(out) == limit {
					end = false
					return false
				}
				n++
				after = seq
				if !rd.Space.Lists(rec.Namespace) {
					return true
				}
				run, err := r.record(seq, &rec)
				if err != nil {
					inner = err
					return false
				}
				out = append(out, run)
				return true
			})
			return cmp.Or(err, inner)
		})
		if err != nil || end || len(out) == limit {
			return out, err
		}
	}
}

// outputWait is how long a request for the output of a running attempt waits for more.
const outputWait = 5 * time.Second

// RunOutput implements api.Backend. The output of a running attempt comes from its worker, by way of the leader's
// memory; that of a finished one is the tail in the history.
func (b *Service) RunOutput(ctx context.Context, runID string, fence uint64, after int64, rd api.Read) (job.RunOutput,
	error) {
	k, err := job.ParseRunKey(runID)
	if err != nil {
		return job.RunOutput{}, noRun(runID)
	}
	if err := b.verify(ctx); err != nil {
		return job.RunOutput{}, err
	}
	wait, stop := context.WithTimeout(ctx, outputWait)
	defer stop()
	for {
		var row store.Row
		open := false
		if err := b.view(func(r *reader) (err error) {
			if row, open, err = r.Run(k); err == nil && open && !rd.Space.Finds(r.Namespace(row.Class)) {
				err = noRun(runID)
			}
			return err
		}); err != nil {
			return job.RunOutput{}, err
		}
		out := job.RunOutput{RunID: runID, Status: row.Status, Attempt: int(row.Attempt), Fence: fence, Offset: after,
			Next: after}
		if !open {
			return b.finishedOutput(ctx, k, rd.Space)
		}
		if row.Status == job.RunClaimed || row.Status == job.RunCanceling {
			if fence != row.Fence {
				fence, after = row.Fence, 0
			}
			e := b.o.Tracker.Epoch()
			if e == nil {
				return out, forward.ErrNoLeader()
			}
			part, found, err := e.Scheduler.Tail(wait, row.Worker, row.Incarnation, row.Fence, after)
			if err != nil {
				return out, err
			}
			if found && (len(part.Data) > 0 || wait.Err() != nil) {
				out.Fence, out.Offset, out.Next = fence, part.Offset, part.Offset+int64(len(part.Data))
				out.Text = string(part.Data)
				if cut := partial(part.Data); cut > 0 && cut < len(part.Data) {
					out.Text = string(part.Data[:len(part.Data)-cut])
					out.Next -= int64(cut)
				}
				if started, ok := e.Scheduler.Started(row.Worker, row.Incarnation, row.Fence); ok && started != 0 &&
					out.Status == job.RunClaimed {
					out.Status = job.RunRunning
				}
				return out, nil
			}
		}
		select { // its next attempt, or its end, is on its way
		case <-time.After(50 * time.Millisecond):
		case <-wait.Done():
			return out, nil
		}
	}
}

// partial is how many bytes at the end are the beginning of a character.
func partial(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return i
			}
			return 0
		}
	}
	return 0
}

// finishedOutput is the tail of the last attempt of a run that is over. What it wrote at the very end may be in no part
// that a client who watched it got, so the tail is given whole; where it begins in all of the output is not known.
func (b *Service) finishedOutput(ctx context.Context, k job.RunKey, sc api.Space) (job.RunOutput, error) {
	d, err := b.runDetail(ctx, k, sc)
	if err != nil {
		return job.RunOutput{}, err
	}
	run := d.Run
	if run.Output == "" && len(d.Attempts) > 0 {
		run.Output = d.Attempts[0].Output
	}
	return job.RunOutput{RunID: k.String(), Status: run.Status, Attempt: run.Attempt, Fence: run.Fence,
		Next: int64(len(run.Output)), Text: run.Output, Done: true}, nil
}
