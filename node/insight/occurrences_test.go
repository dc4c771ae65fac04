package insight

import (
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

// An occurrence whose run died and was redriven has the fate of the new attempt, and says that it was.
func TestRedrivenOccurrencesSaySo(t *testing.T) {
	st := Strip{Runs: map[int64]*wire.Occurrence{}, Backfills: map[int64]string{}}
	for _, rec := range []store.Record{ // newest first
		{Job: 1, At: 1000, Status: job.RunSucceeded, Attempt: 3},
		{Job: 1, At: 2000, Status: job.RunSucceeded, Attempt: 2},
		{Job: 1, At: 2000, Status: job.RunFailed, Attempt: 1},
		{Job: 1, At: 1000, Status: job.RunDead, Attempt: 2},
		{Job: 1, At: 1000, Status: job.RunFailed, Attempt: 1},
		{Job: 1, At: 500, Status: job.RunDead, Attempt: 1},
	} {
		rec.Origin = job.OriginSchedule
		addRecord(&view.Held{}, &rec, &st)
	}
	for at, want := range map[int64]wire.Occurrence{1000: {Fate: wire.FateSucceeded, Redriven: true},
		2000: {Fate: wire.FateSucceeded}, 500: {Fate: wire.FateDead}} {
		if got := st.Runs[at]; got.Fate != want.Fate || got.Redriven != want.Redriven {
			t.Errorf("%d: %+v", at, got)
		}
	}
}
