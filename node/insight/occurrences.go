package insight

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// stripDay is how far back the occurrences of a job are shown unless the request says more.
	stripDay = 24 * time.Hour
	// stripAhead is how many of those to come are shown unless the request says until when.
	stripAhead = 20
	// stripMost is how many of those to come are shown if the request does: until 9999 there are billions.
	stripMost = 10_000
	// openRowsSeen bounds of how many open runs of a job more than the status is read: it may have tens of thousands.
	openRowsSeen = 500
)

// Occurrences implements api.Backend: what the schedule has, joined with what became of it. All that may change is read
// in one view: the place of the job, its open runs and the head of its history. The chain behind that head is read in
// short views; it only gets shorter, by trimming, and what is not known for that is not claimed.
func (b *Service) Occurrences(ctx context.Context, ref string, q wire.OccurrenceQuery,
	rd api.Read) (wire.OccurrencePage, error) {
	page := wire.OccurrencePage{Occurrences: []wire.Occurrence{}}
	before := int64(math.MaxInt64)
	if q.Cursor != "" {
		n, err := strconv.ParseInt(q.Cursor, 36, 64)
		if err != nil {
			return page, view.CheckCursor(err)
		}
		before = n
	}
	now := b.now()
	from, to, ahead := int64(q.From), int64(q.To), stripMost
	if to == 0 {
		to, ahead = math.MaxInt64>>16, stripAhead
	}
	if from == 0 {
		from = min(now, to) - stripDay.Milliseconds()
	}
	var h view.Held
	st := Strip{Now: now, Left: -1, Runs: map[int64]*wire.Occurrence{}, Backfills: map[int64]string{}}
	var forbidden []*schedule.Blackout
	done, err := b.Turn(ctx, rd)
	if err != nil {
		return page, err
	}
	defer done()
	err = b.view(func(r *view.Reader) error {
		id, err := r.Find(ref, rd.Space)
		if err != nil {
			return err
		}
		if h, err = r.Held(id); err != nil {
			return err
		}
		if forbidden, err = r.Blackouts(h.Def.Spec.Namespace, h.Def.Spec.Calendars); err != nil {
			return err
		}
		return openOccurrences(r, &h, st.Runs)
	})
	if err != nil {
		return page, err
	}
	describe(&h, &st, forbidden)
	for _, run := range h.NotRunYet(now) {
		st.Gaps = append(st.Gaps, store.Interval{First: int64(run.First), Last: int64(run.Last), Count: run.Count,
			AtLeast: run.CountAtLeast, Status: run.Status, Reason: run.Reason})
	}
	if st.Known, err = b.recordedOccurrences(ctx, &h, from, &st); err != nil {
		return page, err
	}
	if q.Cells > 0 {
		st.Shorten(from, to)
	}
	cells, ok := st.Cells(from, to, ahead)
	if !ok {
		return page, job.Invalid("from", "ask for a shorter interval",
			"the job has more than %d occurrences between %s and %s", MaxCells, job.Instant(from),
			job.Instant(min(to, now)))
	}
	page.JobID, page.From, page.KnownFrom = h.ID, job.Instant(from), job.Instant(max(from, st.From()))
	page.To = q.To
	if n := len(cells); page.To == 0 {
		page.To = job.Instant(now)
		if n > 0 {
			page.To = max(page.To, cells[n-1].ScheduledAt)
		}
	} else if n >= ahead && int64(cells[n-ahead].ScheduledAt) > now { // there may be more than are shown
		page.To = cells[n-1].ScheduledAt
	}
	page.Summary = Summarize(cells, now)
	if q.Cells > 0 {
		page.Occurrences = append(page.Occurrences, Ranges(cells, now, q.Cells)...)
		return page, nil
	}
	end := len(cells)
	for end > 0 && int64(cells[end-1].ScheduledAt) >= before {
		end--
	}
	begin := max(0, end-q.Limit)
	for begin > 0 && begin < end && cells[begin].ScheduledAt == cells[begin-1].ScheduledAt {
		begin++ // the cursor is a time: what is at one time stays together
	}
	if begin == end && end > 0 {
		begin = max(0, end-q.Limit)
	}
	page.Occurrences = append(page.Occurrences, cells[begin:end]...)
	if begin > 0 {
		page.NextCursor = strconv.FormatInt(int64(cells[begin].ScheduledAt), 36)
	}
	return page, nil
}

// describe says what a job's state means for its occurrences.
func describe(h *view.Held, st *Strip, forbidden []*schedule.Blackout) {
	spec := &h.Def.Spec
	st.Last, st.Follows = h.State.LastNominal, h.Def.Follows
	if sched, err := view.Compile(spec, h.ID); err == nil {
		st.Sched = sched
	}
	if st.Follows == 0 {
		st.Follows = h.Def.CreatedAt
		if st.Sched != nil && st.Sched.Kind() == schedule.Instant {
			st.Follows = -1 // a one-off may be made for a time in the past
		}
	}
	if h.Stopped() {
		st.Stopped = h.StopReason()
	}
	due := h.Due()
	st.Due, st.Ready = due.At, due.Ready
	if spec.MaxRuns > 0 {
		st.Left = max(0, int64(spec.MaxRuns)-int64(h.State.Runs))
	}
	if len(forbidden) > 0 {
		st.Forbidden = func(at int64) bool { return view.Forbids(forbidden, time.UnixMilli(at)) }
	}
}

// openOccurrences are the open runs of a job's schedule.
func openOccurrences(r *view.Reader, h *view.Held, runs map[int64]*wire.Occurrence) error {
	refs := r.Open(h.ID)
	for i, ref := range slices.Backward(refs) {
		if ref.Origin != job.OriginSchedule {
			continue
		}
		k := job.RunKey{Job: h.ID, At: ref.At, Origin: ref.Origin}
		cell := &wire.Occurrence{ScheduledAt: job.Instant(ref.At), Count: 1, Fate: Fate(ref.Status, 0),
			RunID: k.String(), Reason: waitsFor(ref)}
		runs[ref.At] = cell
		if len(refs)-i > openRowsSeen {
			continue
		}
		row, ok, err := r.Run(k)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		run, err := r.OpenRun(k, &row)
		if err != nil {
			return err
		}
		cell.Attempts, cell.StartedAt, cell.LagMS = run.Attempt, run.StartedAt, run.LagMS
	}
	return nil
}

// waitsFor is what an open run waits for; empty if a worker has it.
func waitsFor(ref store.OpenRef) string {
	switch {
	case ref.Held:
		return job.ReasonPaused.String()
	case ref.Status == job.RunWaiting && ref.Delayed:
		return job.ReasonBackfill.String()
	case ref.Status == job.RunWaiting:
		return job.ReasonOverlap.String()
	case ref.Status == job.RunRetrying:
		return "retry"
	case ref.Status == job.RunPending:
		return "due"
	}
	return ""
}

// recordedOccurrences adds what the history has of a job's occurrences from a time on, and returns the time after which
// it has all of them.
func (b *Service) recordedOccurrences(ctx context.Context, h *view.Held, from int64,
	st *Strip) (known int64, err error) {
	next, cut := h.State.HistHead, st.Now
	for looked := 0; next != 0; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		found, end := 0, false
		err := b.view(func(r *view.Reader) error {
			return r.EachOfJob(next, func(_ uint64, rec store.Record) bool {
				if found == view.Rows {
					return false
				}
				found++
				cut, next = rec.Recorded, rec.Prev
				if end = rec.Recorded+view.ChainSlack < from; !end {
					addRecord(h, &rec, st)
				}
				return !end
			})
		})
		if err != nil || end {
			return 0, err
		}
		// What follows was trimmed, or is too much: of the occurrences before this record nothing can be said.
		if looked += found; next != 0 && (found < view.Rows || looked >= MaxCells) {
			return cut, nil
		}
	}
	return 0, nil
}

// addRecord adds a record of the history, newest first.
func addRecord(h *view.Held, rec *store.Record, st *Strip) {
	switch {
	case !rec.Interval.Empty():
		st.Gaps = append(st.Gaps, rec.Interval)
		return
	case rec.Origin == job.OriginBackfill:
		if st.Backfills[rec.At] == "" {
			st.Backfills[rec.At] = rec.Status.String()
		}
		return
	case rec.Origin != job.OriginSchedule:
		return
	case st.Runs[rec.At] != nil:
		st.Runs[rec.At].Redriven = st.Runs[rec.At].Redriven || rec.Status == job.RunDead
		return
	}
	run := job.Run{StartedAt: job.Instant(rec.StartedAt), ClaimedAt: job.Instant(rec.ClaimedAt),
		ReadyAt: job.Instant(rec.Ready)}
	cell := &wire.Occurrence{ScheduledAt: job.Instant(rec.At), Count: 1, Fate: Fate(rec.Status, rec.Reason),
		Reason: rec.Reason.String(), RunID: rec.Run().String(), Attempts: int(rec.Attempt), StartedAt: run.StartedAt,
		LagMS: view.Lag(&run, &h.Def), DurationMS: took(rec)}
	st.Runs[rec.At] = cell
}

// took is how long an attempt ran; nil if it is not known.
func took(rec *store.Record) *int64 {
	if rec.StartedAt == 0 || rec.EndedAt == 0 || rec.Reason == job.ReasonWorkerLost { // found lost, not ended
		return nil
	}
	ms := max(0, rec.EndedAt-rec.StartedAt)
	return &ms
}
