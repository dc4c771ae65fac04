package bench

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// everySecond makes jobs that run once a second each, spread over it by their phase.
func everySecond(prefix string, t target) maker {
	return func(w *bytes.Buffer, i int) {
		fmt.Fprintf(w, `{"name":%q,"type":%q,"schedule":"@every 1s","overlap":"allow","payload":%s}`, name(prefix, i),
			t.typ, t.payloads[i%len(t.payloads)])
	}
}

// Steady is a fixed number of runs a second, for a time.
func (b *Bench) Steady(ctx context.Context) (*Result, error) { return b.steady(ctx, "steady", nil) }

// Lag is Steady at a rate that costs nothing: what is left is how late a run starts.
func (b *Bench) Lag(ctx context.Context) (*Result, error) { return b.steady(ctx, "lag", nil) }

// Failover is Steady while the leader is killed and comes back, over and over. The workers live in other processes, so
// that nothing may be repeated.
func (b *Bench) Failover(ctx context.Context) (*Result, error) {
	if len(b.cluster.nodes) < 3 {
		return nil, fmt.Errorf(
			"killing leaders needs a cluster of three nodes that this command started: use --nodes 3, without --addr")
	}
	return b.steady(ctx, "failover", b.kills)
}

// killing is what happened to leaders, in milliseconds since 1970.
type killing struct{ at int64 }

func (b *Bench) steady(ctx context.Context, scenario string,
	disturb func(context.Context) ([]killing, error)) (*Result, error) {
	t, c, _, err := b.begin(ctx, b.o.Idle)
	if err != nil {
		return nil, err
	}
	defer t.stop()
	before, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	ids, _, err := load(ctx, c, b.o.Rate, everySecond(scenario, t), nil)
	if err != nil {
		return nil, err
	}
	const settling = 2 * time.Second // the first second comes while jobs are still created
	time.Sleep(settling)
	from, used := time.Now(), b.meter(t.crew)
	var kills []killing
	if disturb != nil {
		if kills, err = disturb(ctx); err != nil {
			return nil, err
		}
	} else {
		for d := time.Duration(0); d < b.o.Duration; d = time.Since(from) {
			b.o.Progress("running", int(d.Seconds()), int(b.o.Duration.Seconds()))
			time.Sleep(100 * time.Millisecond)
		}
	}
	to := time.Now()
	if c, err = b.cluster.client(ctx); err != nil { // another one may lead
		return nil, err
	}
	r := b.result(scenario, before)
	r.Jobs += uint64(len(ids))
	r.Runs = int(to.Sub(from).Seconds() * float64(b.o.Rate))
	b.spent(r, used, t.crew)
	b.memory(ctx, r)
	if err := b.quiet(ctx, c, ids); err != nil {
		return nil, err
	}
	a, err := b.account(ctx, c, t, r, before.History.Last, ids)
	if err != nil {
		return nil, err
	}
	a.every(ids, 1000, from.UnixMilli(), to.UnixMilli())
	r.Runs, r.Seconds = len(a.records), to.Sub(from).Seconds()
	in := 0
	a.lags = a.lags[:0]
	for _, e := range a.seen {
		if at := time.UnixMilli(e.run.At); !at.Before(from) && at.Before(to) {
			a.lags = append(a.lags, float64(e.at-e.run.At))
			in++
		}
	}
	r.Rate = float64(in) / r.Seconds
	a.figures()
	if kills != nil {
		r.Gap = gaps(a.seen, kills)
	}
	return r.judged(), nil
}

// quiet pauses the jobs and waits until nothing is open.
func (b *Bench) quiet(ctx context.Context, c *client.Client, ids []job.ID) error {
	for i, id := range ids {
		b.o.Progress("pausing the jobs", i, len(ids))
		if _, err := c.PauseJob(ctx, id.String()); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		if s.OpenRuns == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d runs are still open a minute after their jobs were paused", s.OpenRuns)
		}
	}
}

// kills kills the leader, waits until another one works, brings it back and waits until all is well.
func (b *Bench) kills(ctx context.Context) (out []killing, err error) {
	for i := range b.o.Kills {
		b.o.Progress("killing leaders", i, b.o.Kills)
		p, err := b.cluster.leader(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, killing{time.Now().UnixMilli()})
		p.kill()
		time.Sleep(3 * time.Second)
		if err := p.start(b.cluster.binary); err != nil {
			return nil, err
		}
		if _, err := b.cluster.ready(ctx); err != nil {
			return nil, err
		}
		time.Sleep(2 * time.Second)
	}
	return out, nil
}

// gaps is for how long nothing started around each kill.
func gaps(seen []effect, kills []killing) *Spread {
	times := make([]int64, len(seen))
	for i, e := range seen {
		times[i] = e.at
	}
	slices.Sort(times)
	var out []float64
	for _, k := range kills {
		worst := int64(0)
		i, _ := slices.BinarySearch(times, k.at)
		for ; i > 0 && i < len(times) && times[i-1] < k.at+3000; i++ {
			worst = max(worst, times[i]-max(times[i-1], k.at))
		}
		out = append(out, float64(worst))
	}
	return spread(out)
}
