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

// Submit creates jobs by many clients, each at a node of its own, for a time: one by one, or some with every request.
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
		c := b.cluster.at(b.cluster.addrs[i%len(b.cluster.addrs)])
		create := single(c, i)
		if b.o.Bulk > 0 {
			create = bulk(c, i, b.o.Bulk)
		}
		all.Go(func() {
			for n := 0; time.Now().Before(end) && ctx2.Err() == nil; n++ {
				sent := time.Now()
				fresh, err := create(ctx2, n)
				if err != nil {
					cancel(err)
					return
				}
				made.Add(int64(len(fresh)))
				mu.Lock()
				for _, id := range fresh {
					ids[id] = true
				}
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
		r.problem("%d creates were acknowledged with %d ids, and the cluster has %d more jobs",
			r.Created, len(ids), got)
	}
	return r.judged(), nil
}

// single creates one job with the n-th request of a client.
func single(c *client.Client, i int) func(context.Context, int) ([]job.ID, error) {
	prefix := fmt.Sprintf("submit-%d", i)
	return func(ctx context.Context, n int) ([]job.ID, error) {
		j, err := c.CreateJob(ctx,
			job.Spec{Name: name(prefix, n), Type: job.TypeHTTP, Schedule: "0 3 1 1 *",
				Payload: []byte(`{"url":"http://127.0.0.1:9/yearly"}`)})
		return []job.ID{j.ID}, err
	}
}

// bulk creates some jobs with the n-th request of a client.
func bulk(c *client.Client, i, jobs int) func(context.Context, int) ([]job.ID, error) {
	line := idle(time.Now())
	return func(ctx context.Context, n int) (ids []job.ID, err error) {
		from := (i<<24 + n) * jobs // of this client and request alone
		err = c.BulkCreate(ctx, &lines{next: from, end: from + jobs, line: line}, func(r client.BulkResult) error {
			if r.Error != nil || r.JobID == nil {
				return fmt.Errorf("a job was refused: %w", r.Error)
			}
			ids = append(ids, *r.JobID)
			return nil
		})
		if err == nil && len(ids) != jobs {
			err = fmt.Errorf("%d of %d jobs were answered", len(ids), jobs)
		}
		return ids, err
	}
}
