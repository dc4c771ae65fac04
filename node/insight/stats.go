package insight

import (
	"cmp"
	"context"
	"sort"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// feedTick is how often viewers are told what is new, and statsEvery after how many of them statistics are; without
	// viewers the history is read that often.
	feedTick   = 250 * time.Millisecond
	statsEvery = 4
	// refillRecords bounds how much of the history is counted when a node starts.
	refillRecords = 1_000_000
	// lateLag is from where on a lag is looked at twice: a job that was made for a time in the past could not start
	// before it was there, and its definition says when that was.
	lateLag = 60_000
)

// statsFeed follows the history. Its place is that of one goroutine, Follow; the rings have a lock of their own.
type statsFeed struct {
	rings *Rings
	seq   uint64 // the last record that was counted
	begun bool

	records []store.Ended // of the view under way
	lags    []int64
}

// follow counts what is new in the history. Each view is short.
func (b *Service) follow(ctx context.Context) error {
	f := &b.feed
	for ctx.Err() == nil {
		f.records, f.lags = f.records[:0], f.lags[:0]
		end := true
		err := b.view(func(r *view.Reader) error {
			// Otherwise the state was replaced, or trimmed meanwhile.
			if !f.begun || f.seq < r.C.HistFloor || f.seq > r.C.HistSeq {
				if err := f.begin(r, b.now()); err != nil {
					return err
				}
			}
			var inner error
			err := r.EachEnded(f.seq, func(seq uint64, e *store.Ended) bool {
				if len(f.records) == view.Rows {
					end = false
					return false
				}
				lag, err := lagOf(r, e)
				inner = err
				f.seq, f.records, f.lags = seq, append(f.records, *e), append(f.lags, lag)
				return err == nil
			})
			if err == nil {
				err = inner
			}
			return err
		})
		if err != nil {
			return err
		}
		f.rings.Add(f.records, f.lags)
		if end {
			f.rings.Caught()
			return nil
		}
	}
	return ctx.Err()
}

// begin finds where to count from.
func (f *statsFeed) begin(r *view.Reader, now int64) error {
	floor := r.C.HistFloor
	if r.C.HistSeq > refillRecords {
		floor = max(floor, r.C.HistSeq-refillRecords)
	}
	from := now - Window
	first, complete, err := firstSince(r, floor, from)
	if err != nil {
		return err
	}
	f.seq, f.begun = first-1, true
	f.rings.Begin(complete)
	return nil
}

// firstSince is the first record behind a floor that is dated at a time or later, and the time from which on there is
// none missing: records up to the floor are not looked at. Dates do not go back along the log, so that a search finds
// it.
func firstSince(r *view.Reader, floor uint64, at int64) (seq uint64, complete int64, err error) {
	dated := func(seq uint64) (at int64) {
		inner := r.EachEnded(seq-1, func(_ uint64, e *store.Ended) bool {
			at = e.Recorded
			return false
		})
		err = cmp.Or(err, inner)
		return at
	}
	n := sort.Search(int(r.C.HistSeq-floor), func(i int) bool { return dated(floor+1+uint64(i)) >= at })
	complete = at
	if n == 0 && floor > 0 { // what was before it is not known
		complete = max(at, r.C.Mark)
		if floor < r.C.HistSeq {
			complete = max(at, dated(floor+1)+1)
		}
	}
	return floor + 1 + uint64(n), complete, err
}

// lagOf is how late an attempt started; negative if that is not known.
func lagOf(r *view.Reader, e *store.Ended) (int64, error) {
	at := e.StartedAt
	if at == 0 {
		at = e.ClaimedAt
	}
	if at == 0 || e.Ready == 0 {
		return -1, nil
	}
	ms := max(0, at-e.Ready)
	if ms > lateLag {
		def, err := r.Def(e.Job)
		if err != nil {
			return -1, err
		}
		if def != nil {
			ms = max(0, at-max(e.Ready, def.CreatedAt))
		}
	}
	return ms, nil
}

// Stats implements api.Backend.
func (b *Service) Stats(_ context.Context, window time.Duration, rd api.Read) (wire.Stats, error) {
	s := b.feed.rings.Stats(rd.Space.Name(), b.now(), window.Milliseconds())
	s.Node = b.o.NodeID
	return s, nil
}
