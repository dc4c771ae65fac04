package insight

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// summaryTime is over how long runs are counted unless the request says otherwise.
	summaryTime = time.Hour
	// summaryRecords bounds how many records are counted: the newest.
	summaryRecords = 500_000
	// longestRuns is how many of those that run for longest are shown.
	longestRuns = 20
)

// RunSummary implements api.Backend.
func (b *Service) RunSummary(ctx context.Context, q wire.RunQuery, rd api.Read) (wire.RunSummary, error) {
	out := wire.RunSummary{From: q.From, To: cmp.Or(q.To, job.Instant(b.now())), ByStatus: map[string]int64{},
		ByReason: map[string]int64{}, Longest: []wire.LongRun{}}
	out.From = cmp.Or(q.From, out.To-job.Instant(summaryTime.Milliseconds()))
	out.CountedFrom = out.From
	s := &summary{b: b, out: &out, space: rd.Space}
	done, err := b.Turn(ctx, rd)
	if err != nil {
		return out, err
	}
	defer done()
	err = b.view(func(r *view.Reader) (err error) {
		if q.Job == "" {
			return nil
		}
		if s.id, s.gone, err = r.FindRuns(q.Job, rd.Space); err == nil && !s.gone {
			s.head, err = r.ChainFrom(s.id, 0)
		}
		return err
	})
	err = b.wasThere(ctx, s.id, s.gone, rd.Space, err)
	switch {
	case err != nil:
	case s.id != 0 && !s.gone:
		err = s.countChain(ctx)
	default:
		err = s.count(ctx)
	}
	if err == nil {
		err = s.longest(ctx)
	}
	return out, err
}

// summary is one while it is made.
type summary struct {
	b     *Service
	out   *wire.RunSummary
	space api.Space
	id    job.ID // 0: of all jobs
	gone  bool   // the job is: the log is looked through for it
	head  uint64 // of its history
}

func (s *summary) add(status job.RunStatus, reason job.Reason, count int64) {
	n := max(1, count)
	s.out.ByStatus[status.String()] += n
	if text := reason.String(); text != "" {
		s.out.ByReason[text] += n
	}
}

// count goes through the log, in short views.
func (s *summary) count(ctx context.Context) error {
	var after uint64
	begun, end := false, false
	for !end {
		if err := ctx.Err(); err != nil {
			return err
		}
		end = true
		err := s.b.view(func(r *view.Reader) error {
			if !begun {
				begun = true
				behind, _, err := firstSince(r, r.C.HistFloor, int64(s.out.To)+1)
				if err != nil {
					return err
				}
				floor := r.C.HistFloor
				if behind > summaryRecords {
					floor = max(floor, behind-1-summaryRecords)
				}
				first, complete, err := firstSince(r, floor, int64(s.out.From))
				if err != nil {
					return err
				}
				after, s.out.CountedFrom = first-1, job.Instant(complete)
			}
			n := 0
			return r.EachEnded(after, func(seq uint64, e *store.Ended) bool {
				if e.Recorded > int64(s.out.To) {
					return false
				}
				if n == view.Rows {
					end = false
					return false
				}
				n++
				after = seq
				if view.Counts(s.space, e.Namespace) {
					s.out.Scanned++
				}
				if s.shows(e.Namespace, e.Job) {
					s.add(e.Status, e.Reason, e.Count)
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

func (s *summary) shows(namespace string, id job.ID) bool {
	if s.id == 0 {
		return s.space.Lists(namespace)
	}
	return id == s.id && s.space.Finds(namespace)
}

// countChain goes through the history of one job, newest first.
func (s *summary) countChain(ctx context.Context) error {
	for next := s.head; next != 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		found, end := 0, false
		err := s.b.view(func(r *view.Reader) error {
			return r.EachOfJob(next, func(_ uint64, rec store.Record) bool {
				if found == view.Rows {
					return false
				}
				found++
				next = rec.Prev
				if end = rec.Recorded < int64(s.out.From); end {
					return false
				}
				if s.out.Scanned++; rec.Recorded <= int64(s.out.To) {
					s.out.CountedFrom = job.Instant(rec.Recorded)
					s.add(rec.Status, rec.Reason, rec.Interval.Count)
				}
				return true
			})
		})
		if err != nil {
			return err
		}
		if end {
			break
		}
		if next != 0 && (found < view.Rows || s.out.Scanned >= view.MaxRows) {
			return nil // what follows was trimmed, or is too much
		}
	}
	s.out.CountedFrom = s.out.From
	return nil
}

// longest finds what has been with a worker for longest.
func (s *summary) longest(ctx context.Context) error {
	type claim struct {
		k  job.RunKey
		at int64
	}
	var all []claim
	var below job.RunKey
	for looked, end := 0, false; !end && looked < view.MaxRows; looked += view.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		end = true
		n := 0
		err := s.b.view(func(r *view.Reader) error {
			return r.EachRunBack(below, func(k job.RunKey, row store.Row) bool {
				if n == view.Rows {
					end = false
					return false
				}
				n++
				below = k
				namespace := r.Namespace(row.Class)
				if view.Counts(s.space, namespace) {
					s.out.Scanned++
				}
				if (row.Status == job.RunClaimed || row.Status == job.RunCanceling) &&
					s.shows(namespace, k.Job) {
					all = append(all, claim{k, row.ClaimedAt})
				}
				return true
			})
		})
		if err != nil {
			return err
		}
		slices.SortFunc(all, func(x, y claim) int { return cmp.Compare(x.at, y.at) })
		all = all[:min(len(all), longestRuns)]
	}
	now := s.b.now()
	err := s.b.view(func(r *view.Reader) error {
		for _, c := range all {
			row, ok, err := r.Run(c.k)
			if err != nil {
				return err
			}
			if !ok {
				continue // it has ended meanwhile
			}
			run, err := r.OpenRun(c.k, &row)
			if err != nil {
				return err
			}
			began := cmp.Or(run.StartedAt, run.ClaimedAt)
			s.out.Longest = append(s.out.Longest, wire.LongRun{Run: run, RunningMS: max(0, now-int64(began))})
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(s.out.Longest, func(x, y wire.LongRun) int { return cmp.Compare(y.RunningMS, x.RunningMS) })
	usual := map[job.ID]*int64{}
	for i := range s.out.Longest {
		run := &s.out.Longest[i]
		p95, known := usual[run.JobID]
		if !known {
			stats, err := s.b.jobStats(ctx, run.JobID.String(), api.Read{Stale: true, Space: s.space})
			if err != nil && job.CodeOf(err) != job.CodeNotFound {
				return err
			}
			p95 = stats.DurationMS.P95
			usual[run.JobID] = p95
		}
		run.P95MS = p95
	}
	return nil
}
