package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// Submit creates jobs one by one by many clients, each at a node of its own, for a time.
func (b *Bench) Submit(ctx context.Context) (*Result, error) {
	s, err := b.cluster.ready(ctx)
	if err != nil {
		return nil, err
	}
	used := b.meter(nil)
	var made atomic.Int64
	var all sync.WaitGroup
	var mu sync.Mutex
	ids := map[job.ID]bool{}
	var waits []float64
	ctx2, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begin := time.Now()
	end := begin.Add(b.o.Duration)
	for i := range b.o.Clients {
		c := client.New(b.cluster.addrs[i%len(b.cluster.addrs)])
		all.Go(func() {
			for n := 0; time.Now().Before(end) && ctx2.Err() == nil; n++ {
				sent := time.Now()
				j, err := c.CreateJob(ctx2, job.Spec{Name: name(fmt.Sprintf("submit-%d", i), n), Type: job.TypeHTTP, Schedule: "0 3 1 1 *",
					Payload: []byte(`{"url":"http://127.0.0.1:9/yearly"}`)})
				if err != nil {
					cancel(err)
					return
				}
				made.Add(1)
				mu.Lock()
				ids[j.ID] = true
				waits = append(waits, float64(time.Since(sent).Microseconds())/1000)
				mu.Unlock()
				if i == 0 {
					b.o.Progress("submitting", int(time.Since(begin).Seconds()), int(b.o.Duration.Seconds()))
				}
			}
		})
	}
	all.Wait()
	took := time.Since(begin)
	if err := context.Cause(ctx2); err != nil {
		return nil, err
	}
	r := b.result("submit", s)
	r.Target = ""
	r.Created, r.Seconds = int(made.Load()), took.Seconds()
	r.Rate = float64(r.Created) / r.Seconds
	r.Latency = spread(waits)
	b.spent(r, used, nil)
	after, err := b.cluster.ready(ctx)
	if err != nil {
		return nil, err
	}
	r.Jobs = after.Jobs
	if got := int(after.Jobs - s.Jobs); got != r.Created || len(ids) != r.Created {
		r.Lost = r.Created - got
		r.problem("%d creates were acknowledged with %d ids, and the cluster has %d more jobs", r.Created, len(ids), got)
	}
	return r.judged(), nil
}
