package bench

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

func shifted(line maker, by int) maker { return func(w *bytes.Buffer, i int) { line(w, i+by) } }

// probe is how many idle jobs are created to learn how fast jobs are created.
const probe = 20_000

// Hot is many jobs that are due in one second.
func (b *Bench) Hot(ctx context.Context) (*Result, error) {
	t, c, rate, err := b.begin(ctx, max(b.o.Idle, b.loaded+min(probe, b.o.Jobs)))
	if err != nil {
		return nil, err
	}
	defer t.stop()
	if rate == 0 {
		rate = 5000
	}
	if b.o.Groups > 1 { // the names of most are at home in another group than their queue, which is asked first
		rate /= 4
	}
	lead := time.Duration(1.5*float64(b.o.Jobs)/rate*float64(time.Second)) + 5*time.Second
	at := time.Now().Add(lead).Truncate(time.Second)
	b.dues++
	ids, took, err := load(ctx, c, b.o.Jobs, dueAt(at, fmt.Sprintf("hot%d", b.dues), t), func(done int) {
		b.o.Progress("loading jobs for "+at.Format("15:04:05"), done, b.o.Jobs)
	})
	if err != nil {
		return nil, err
	}
	if time.Now().After(at) {
		return nil, fmt.Errorf("loading took %s, but the jobs were due after %s: there is nothing to measure; try "+
			"fewer jobs", took.Round(time.Second), lead.Round(time.Second))
	}
	b.o.Progress("waiting for "+at.Format("15:04:05"), 0, 0)
	time.Sleep(time.Until(at.Add(-500 * time.Millisecond)))
	before, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	used := b.meter(t.crew)
	time.Sleep(time.Until(at))
	end, err := b.recorded(ctx, c, before.History.Last, len(ids))
	if err != nil {
		return nil, err
	}
	r := b.result("hot", before)
	r.Runs, r.Seconds = len(ids), end.Sub(at).Seconds()
	r.Rate, r.LoadRate = float64(r.Runs)/r.Seconds, float64(len(ids))/took.Seconds()
	b.spent(r, used, t.crew)
	b.memory(ctx, r)
	a, err := b.account(ctx, c, t, r, before.History.Last, ids)
	if err != nil {
		return nil, err
	}
	a.once(ids, at.UnixMilli())
	a.figures()
	return r.judged(), nil
}
