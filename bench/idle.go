package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/carillon-scheduler/carillon/client"
)

// settled is how long a cluster is left alone before it counts as idle.
const settled = 5 * time.Second

// IdleCPU is what a cluster costs that has nothing to do: its nodes with their own workers, and jobs that are not due.
func (b *Bench) IdleCPU(ctx context.Context) (*Result, error) {
	if len(b.cluster.nodes) == 0 {
		return nil, fmt.Errorf("the resource use of nodes is only known if this command started the cluster: leave " +
			"out --addr")
	}
	if _, err := b.fill(ctx, b.o.Idle); err != nil {
		return nil, err
	}
	before, err := b.cluster.ready(ctx)
	if err != nil {
		return nil, err
	}
	time.Sleep(settled)
	used := make([]usage, len(b.cluster.nodes))
	for i, p := range b.cluster.nodes {
		if used[i], err = usageOf(p.pid()); err != nil {
			return nil, err
		}
	}
	from := time.Now()
	b.wait("idle", from)
	r := b.result("idle", before)
	r.Seconds = time.Since(from).Seconds()
	for i, p := range b.cluster.nodes {
		now, err := usageOf(p.pid())
		if err != nil {
			return nil, err
		}
		r.CPUPercent += 100 * (now.cpu - used[i].cpu) / r.Seconds
		r.Wakeups += float64(now.wakeups-used[i].wakeups) / r.Seconds
	}
	after, err := b.cluster.ready(ctx)
	if err != nil {
		return nil, err
	}
	r.Jobs = after.Jobs
	elections := int(after.Term - before.Term)
	r.Elections = &elections
	return r, nil
}

// Elections is Steady on a machine that is busy with other things: how often a leader that is alive is replaced.
func (b *Bench) Elections(ctx context.Context) (*Result, error) {
	if len(b.cluster.nodes) < 3 {
		return nil, fmt.Errorf(
			"this scenario needs a cluster of three nodes that this command started: use --nodes 3, without --addr")
	}
	var before, after client.Status
	r, err := b.steady(ctx, "elections", func(ctx context.Context) (_ []killing, err error) {
		if before, err = b.cluster.ready(ctx); err != nil {
			return nil, err
		}
		stop, err := b.spin(b.o.Load)
		if err != nil {
			return nil, err
		}
		b.wait("electing", time.Now())
		stop()
		after, err = b.cluster.ready(ctx)
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	n := int(after.Term - before.Term)
	r.Elections, r.Load = &n, b.o.Load
	return r, nil
}

// wait is until the duration of the measurement is over.
func (b *Bench) wait(what string, from time.Time) {
	for d := time.Duration(0); d < b.o.Duration; d = time.Since(from) {
		b.o.Progress(what, int(d.Seconds()), int(b.o.Duration.Seconds()))
		time.Sleep(min(100*time.Millisecond, b.o.Duration))
	}
}

// spin starts processes that do nothing but keep a processor busy.
func (b *Bench) spin(n int) (stop func(), err error) {
	dir, err := os.MkdirTemp(b.o.Dir, "load-")
	if err != nil {
		return nil, err
	}
	var all []*process
	stop = func() {
		for _, p := range all {
			p.kill()
		}
	}
	for i := range n {
		p := &process{name: fmt.Sprintf("spin%d", i+1), log: filepath.Join(dir, fmt.Sprintf("%d.log", i+1)),
			args: []string{"bench", "spin"}}
		if err := p.start(b.o.Binary); err != nil {
			stop()
			return nil, err
		}
		all = append(all, p)
	}
	return stop, nil
}

// Spin keeps one processor busy until ctx ends.
func Spin(ctx context.Context) {
	for ctx.Err() == nil {
		for range 1 << 20 { //nolint:revive // to be busy is all it is for
		}
	}
}
