package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-scheduler/carillon/client"
)

// Load fills the cluster with jobs, and measures what they cost: disk, memory, a takeover and a start.
func (b *Bench) Load(ctx context.Context) (*Result, error) {
	b.o.Target = ""
	used := b.meter(nil)
	rate, err := b.fill(ctx, b.o.Jobs)
	if err != nil {
		return nil, err
	}
	s, err := b.cluster.ready(ctx)
	if err != nil {
		return nil, err
	}
	r := b.result("load", s)
	r.LoadRate = rate
	r.Created = b.o.Jobs
	b.spent(r, used, nil)
	if got := int(s.Jobs); got != b.o.Jobs && b.o.Addr == "" {
		r.Lost = b.o.Jobs - got
		r.problem("%d jobs were acknowledged, and the cluster has %d", b.o.Jobs, got)
	}
	r.DiskPerJob = float64(b.disk()) / float64(s.Jobs)
	b.memory(ctx, r)
	if len(b.cluster.nodes) < 3 || len(r.Problems) > 0 {
		return r.judged(), nil
	}
	b.o.Progress("taking over", 0, 0)
	p, err := b.cluster.leader(ctx)
	if err != nil {
		return nil, err
	}
	p.kill()
	if r.TakeoverMS, err = b.takeover(ctx, p); err != nil {
		return nil, err
	}
	b.memory(ctx, r) // a new leader has a wheel to fill
	b.o.Progress("starting a node", 0, 0)
	begin := time.Now()
	if err := p.start(b.cluster.binary); err != nil {
		return nil, err
	}
	for i, n := range b.cluster.nodes {
		if n != p {
			continue
		}
		c := b.cluster.at(b.cluster.addrs[i], client.WithAttempts(1))
		for {
			if s, err := c.Status(ctx); err == nil && s.Ready && s.Leader != "" {
				break
			}
			if !p.alive() || time.Since(begin) > 5*time.Minute {
				return nil, fmt.Errorf("%s did not come back: %s", p.name, tail(p.log))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	r.StartMS = float64(time.Since(begin).Microseconds()) / 1000
	return r, nil
}

// takeover is how long it takes from a kill of the leader until another one works.
func (b *Bench) takeover(ctx context.Context, dead *process) (float64, error) {
	begin := time.Now()
	for time.Since(begin) < time.Minute {
		for i, n := range b.cluster.nodes {
			if n == dead {
				continue
			}
			s, err := b.cluster.at(b.cluster.addrs[i], client.WithAttempts(1)).Status(ctx)
			if err == nil && s.State == "leader" && s.Ready {
				return float64(time.Since(begin).Microseconds()) / 1000, nil
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	return 0, fmt.Errorf("no leader was elected within a minute")
}

// Growth is Hot again and again with more and more jobs that are not due.
func (b *Bench) Growth(ctx context.Context, sizes []int, each func(*Result)) ([]*Result, error) {
	var out []*Result
	for _, n := range sizes {
		b.o.Idle = max(0, n-b.o.Jobs*(len(out)+1))
		if _, err := b.fill(ctx, b.o.Idle); err != nil {
			return out, err
		}
		r, err := b.Hot(ctx)
		if err != nil {
			return out, err
		}
		r.Scenario = "growth"
		out = append(out, r)
		each(r)
	}
	return out, nil
}
