package insight

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
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
		return c, view.CheckCursor(err)
	}
	if rest, ok := strings.CutPrefix(s, "n"); ok {
		n, err := strconv.ParseUint(rest, 10, 8)
		c.notRun = int(n)
		return c, view.CheckCursor(err)
	}
	c.below, err = job.ParseRunKey(s)
	return c, view.CheckCursor(err)
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
	text     string       // of q.Error, in lower case
	failed   []failedAttempt
	page     wire.RunPage
	room     view.Room
}

// failedAttempt is an attempt in the page after which its run may have gone on.
type failedAttempt struct {
	run job.RunKey
	key string // a forced backfill has the id of others, and a key of its own
	seq uint64
	at  int // its place in the page
}

func (l *lister) wants(s job.RunStatus) bool {
	return len(l.q.Statuses) == 0 || slices.Contains(l.q.Statuses, s)
}

// between says that a time is in the interval that is asked for.
func (l *lister) between(first, last int64) bool {
	return last >= int64(l.q.From) && (l.q.To == 0 || first <= int64(l.q.To))
}

// wantsDue says that something which no worker has, and which has no error, is asked for.
func (l *lister) wantsDue(s job.RunStatus, first, last int64) bool {
	return l.wants(s) && l.between(first, last) && l.q.Worker == "" && l.q.Error == ""
}

// wantsRecord says that a record is asked for.
func (l *lister) wantsRecord(rec *store.Record) bool {
	return l.wants(rec.Status) && l.between(rec.Recorded, rec.Recorded) &&
		(l.q.Worker == "" || rec.Worker == l.q.Worker) &&
		(l.q.Error == "" || strings.Contains(strings.ToLower(rec.Error), l.text))
}

// shows says that runs of a namespace are in the list. Of one job all are in the same.
func (l *lister) shows(namespace string) bool {
	if l.id != 0 {
		return l.space.Finds(namespace)
	}
	return l.space.Lists(namespace)
}

// run is the page.
func (l *lister) run(ctx context.Context, cur runCursor) (wire.RunPage, error) {
	page, err := l.fill(ctx, cur)
	if err == nil {
		err = l.follow(ctx)
	}
	return page, err
}

// maxFollow bounds how many records are looked at to find what became of the runs of a page.
const maxFollow = 2 * view.Rows

// follow says of failed attempts what their runs came to later. Of those that are too far from the newest record of
// their job it says nothing.
func (l *lister) follow(ctx context.Context) error {
	left := maxFollow
	for all := l.failed; len(all) > 0 && left > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		id, oldest := all[0].run.Job, all[0].seq
		var of, rest []failedAttempt
		for _, f := range all {
			if f.run.Job != id {
				rest = append(rest, f)
				continue
			}
			of, oldest = append(of, f), min(oldest, f.seq)
		}
		all = rest
		err := l.b.view(func(r *view.Reader) error {
			for _, f := range of {
				row, ok, err := r.Run(f.run)
				if err != nil {
					return err
				}
				if ok && row.Key == f.key {
					l.page.Runs[f.at].LaterStatus = row.Status
				}
			}
			head, err := r.ChainFrom(id, 0)
			if err != nil || head == 0 {
				return err
			}
			n := 0
			return r.EachOfJob(head, func(seq uint64, rec store.Record) bool {
				if seq <= oldest || n == view.Rows || left == 0 {
					return false
				}
				n++
				left--
				for _, f := range of {
					if run := &l.page.Runs[f.at]; rec.Interval.Empty() && run.LaterStatus == job.RunNone &&
						seq > f.seq && rec.Run() == f.run && rec.Key == f.key {
						run.LaterStatus = rec.Status
					}
				}
				return true
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fill fills the page.
func (l *lister) fill(ctx context.Context, cur runCursor) (wire.RunPage, error) {
	l.page.Runs, l.text, l.room = []job.Run{}, strings.ToLower(l.q.Error), view.NewRoom(l.q.Limit)
	if !cur.history && cur.below == (job.RunKey{}) {
		for ; cur.notRun < len(l.notRun); cur.notRun++ {
			if l.room.Full() {
				l.page.NextCursor = cur.String()
				return l.page, nil
			}
			if run := l.notRun[cur.notRun]; l.wantsDue(run.Status, int64(run.First), int64(run.Last)) {
				l.add(run)
			}
		}
	}
	if !cur.history && !l.open {
		cur = runCursor{history: true}
	}
	for looked := 0; looked < view.MaxRows; looked += view.Rows {
		if err := ctx.Err(); err != nil {
			return l.page, err
		}
		end := false
		err := l.b.view(func(r *view.Reader) (err error) {
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
			if l.room.Full() {
				return nil
			}
			if cur.seq == 0 && l.q.To != 0 && (l.id == 0 || l.gone) {
				if cur.seq, _, err = firstSince(r, r.C.HistFloor, int64(l.q.To)+1); err != nil {
					return err
				}
			}
			cur, end, err = l.records(r, cur)
			return err
		})
		if err != nil || end {
			return l.page, err
		}
		if l.room.Full() {
			break
		}
	}
	l.page.NextCursor = cur.String()
	return l.page, nil
}

func (l *lister) add(run job.Run) {
	l.page.Runs = append(l.page.Runs, run)
	l.room.Take(len(run.Output) + len(run.Error))
}

// openRuns adds open runs below the cursor; last says that there are no more.
func (l *lister) openRuns(r *view.Reader, cur runCursor) (next runCursor, last bool, err error) {
	next, last = cur, true
	var inner error
	n := 0
	room := func() bool {
		last = last && n < view.Rows && !l.room.Full()
		return last
	}
	// dueBefore adds what is due and newer than a run.
	dueBefore := func(k job.RunKey) bool {
		for len(l.due) > 0 && view.Before(k, l.due[0]) {
			if !room() {
				return false
			}
			n++
			next.below, l.due = l.due[0], l.due[1:]
			l.looked(l.space.Name()) // they are of the list's namespace
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
		namespace := r.Namespace(row.Class)
		l.looked(namespace)
		if !l.shows(namespace) {
			return true
		}
		run, err := r.OpenRun(k, &row)
		if err != nil {
			inner = err
			return false
		}
		if l.wants(run.Status) && l.between(k.At, k.At) && l.q.Error == "" &&
			(l.q.Worker == "" || l.q.Worker == run.Worker) {
			l.add(run)
		}
		return true
	}
	if l.id == 0 {
		err = r.EachRunBack(cur.below, each)
	} else {
		refs := r.Open(l.id)
		for i := len(refs) - 1; i >= 0; i-- {
			k := job.RunKey{Job: l.id, At: refs[i].At, Origin: refs[i].Origin}
			if cur.below != (job.RunKey{}) && !view.Before(k, cur.below) {
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

// records adds history below the cursor; end says that there is no more.
func (l *lister) records(r *view.Reader, cur runCursor) (next runCursor, end bool, err error) {
	next, end = cur, true
	var inner error
	n := 0
	each := func(seq uint64, rec store.Record) bool {
		if n == view.Rows || l.room.Full() {
			end = false
			return false
		}
		n++
		next.seq = seq
		l.looked(rec.Namespace)
		if rec.Recorded+view.ChainSlack < int64(l.q.From) {
			return false
		}
		if l.gone && rec.Job != l.id || !l.wantsRecord(&rec) || !l.shows(rec.Namespace) {
			return true
		}
		run, err := r.RecordedRun(seq, &rec)
		if err != nil {
			inner = err
			return false
		}
		switch rec.Status {
		case job.RunFailed, job.RunDead, job.RunLost:
			l.failed = append(l.failed, failedAttempt{rec.Run(), rec.Key, seq, len(l.page.Runs)})
		}
		l.add(run)
		return true
	}
	if l.id == 0 || l.gone {
		err = r.EachRecordBack(cur.seq, each)
	} else {
		from, ferr := r.ChainFrom(l.id, cur.seq)
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

// looked counts what was looked at for a search.
func (l *lister) looked(namespace string) {
	if l.q.Searches() && view.Counts(l.space, namespace) {
		l.page.Scanned++
	}
}

func (b *Service) JobRuns(ctx context.Context, ref string, q wire.RunQuery, rd api.Read) (wire.RunPage, error) {
	cur, err := parseRunCursor(q.Cursor)
	if err != nil {
		return wire.RunPage{}, err
	}
	l := &lister{b: b, q: q, space: rd.Space, open: true, finished: true}
	var h view.Held
	var due job.Run
	waits := false
	done, err := b.Turn(ctx, rd)
	if err != nil {
		return wire.RunPage{}, err
	}
	defer done()
	err = b.view(func(r *view.Reader) (err error) {
		if l.id, l.gone, err = r.FindRuns(ref, rd.Space); err == nil && !l.gone {
			if h, err = r.Held(l.id); err == nil && q.Cursor == "" {
				due, waits = r.DueRun(&h)
			}
		}
		return err
	})
	if err = b.wasThere(ctx, l.id, l.gone, rd.Space, err); err != nil {
		return wire.RunPage{}, err
	}
	if !l.gone {
		l.notRun = h.NotRunYet(b.now()) // outside of the view: counting may take a moment
	}
	if waits {
		return l.withDue(due, func() (wire.RunPage, error) { return l.run(ctx, cur) })
	}
	return l.run(ctx, cur)
}

// maxGone is how many records are looked through for one of a job that is gone.
const maxGone = 500_000

// wasThere looks for the history of a job that FindRuns found to be gone, where err says so: without any that the
// caller may see there was none for them, and err stays. It is what a number says that never was a job's.
func (b *Service) wasThere(ctx context.Context, id job.ID, gone bool, sc api.Space, err error) error {
	if !gone || job.CodeOf(err) != job.CodeNotFound {
		return err
	}
	found, end := false, false
	for seq, looked := uint64(0), 0; looked < maxGone && !end && !found; looked += view.Rows {
		if cerr := ctx.Err(); cerr != nil {
			return cerr
		}
		verr := b.view(func(r *view.Reader) error {
			n := 0
			end = true
			return r.EachRecordBack(seq, func(at uint64, rec store.Record) bool {
				if n++; n > view.Rows {
					end = false
					return false
				}
				seq, found = at, rec.Job == id && sc.Finds(rec.Namespace)
				return !found
			})
		})
		if verr != nil {
			return verr
		}
	}
	if found {
		return nil
	}
	return err
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
	done, err := b.Turn(ctx, rd)
	if err != nil {
		return wire.RunPage{}, err
	}
	defer done()
	l := &lister{b: b, q: q, space: rd.Space, open: len(q.Statuses) == 0}
	for _, s := range q.Statuses {
		l.open = l.open || s.Open()
		l.finished = l.finished || !s.Open()
	}
	l.finished = l.finished || q.Searches() && len(q.Statuses) == 0
	if l.wants(job.RunPending) && !cur.history {
		err := b.view(func(r *view.Reader) (err error) {
			l.due, err = r.DueKeys(cur.below, rd.Space)
			return err
		})
		if err != nil {
			return wire.RunPage{}, err
		}
	}
	return l.run(ctx, cur)
}

// addDue adds the occurrence that a key of dueKeys stands for, if it is still due.
func (l *lister) addDue(r *view.Reader, k job.RunKey) error {
	h, err := r.Held(k.Job)
	if job.CodeOf(err) == job.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if due, ok := r.DueRun(&h); ok && due.RunID == k.String() && l.wantsDue(job.RunPending, k.At, k.At) {
		l.add(due)
	}
	return nil
}

// withDue puts the occurrence that is due before the first page of a job's runs.
func (l *lister) withDue(due job.Run, list func() (wire.RunPage, error)) (wire.RunPage, error) {
	if at := int64(due.ScheduledAt); !l.wantsDue(job.RunPending, at, at) {
		return list()
	}
	if l.q.Limit <= 1 {
		return wire.RunPage{Runs: []job.Run{due}, NextCursor: runCursor{}.String()}, nil
	}
	l.q.Limit--
	page, err := list()
	page.Runs = slices.Insert(page.Runs, 0, due)
	return page, err
}
