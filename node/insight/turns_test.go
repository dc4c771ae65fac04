package insight

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
)

// reads are those that compute more than what they answer with.
func reads(b *Service) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"occurrences": func(ctx context.Context) error {
			_, err := b.Occurrences(ctx, "x", wire.OccurrenceQuery{To: job.Instant(253402300799000)}, api.Read{})
			return err
		},
		"job stats": func(ctx context.Context) error {
			_, err := b.JobStats(ctx, "x", api.Read{})
			return err
		},
		"upcoming": func(ctx context.Context) error {
			_, err := b.Upcoming(ctx, wire.UpcomingQuery{Limit: 1}, api.Read{})
			return err
		},
		"load": func(ctx context.Context) error {
			_, err := b.UpcomingLoad(ctx, wire.LoadQuery{Step: 60_000}, api.Read{})
			return err
		},
		"summary": func(ctx context.Context) error {
			_, err := b.RunSummary(ctx, wire.RunQuery{}, api.Read{})
			return err
		},
		"dead groups": func(ctx context.Context) error {
			_, err := b.DeadGroups(ctx, wire.DeadQuery{}, api.Read{})
			return err
		},
		"jobs": func(ctx context.Context) error {
			_, err := b.ListJobs(ctx, wire.JobQuery{Limit: 1}, api.Read{})
			return err
		},
		"runs": func(ctx context.Context) error {
			_, err := b.Runs(ctx, wire.RunQuery{Limit: 1}, api.Read{})
			return err
		},
		"queues": func(ctx context.Context) error {
			_, err := b.Queues(ctx, wire.QueueQuery{Limit: 1}, api.Read{})
			return err
		},
		"queue": func(ctx context.Context) error {
			_, err := b.GetQueue(ctx, "x", api.Read{})
			return err
		},
		"runs of a job": func(ctx context.Context) error {
			_, err := b.Runs(ctx, wire.RunQuery{Job: "x", Limit: 1}, api.Read{})
			return err
		},
	}
}

// Attack: a viewer asks hundreds of times at once for a million occurrences. As many are computed as leave room for the
// leader; the rest waits, and who asks for more than may wait is told so. Another token has its turn all the same.
func TestExpensiveReadsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := map[api.Refusal]int{}
		b := New(Options{Fresh: func(context.Context, api.Read) error { return nil },
			Source: &view.Source{Now: func() int64 { return time.Now().UnixMilli() }}, Turns: NewTurns(true),
			Refused: func(why api.Refusal, _ string) { refused[why]++ }})
		greedy := api.WithIdentity(t.Context(), api.Identity{Token: "greedy", Role: job.RoleViewer})
		var ends []func()
		for {
			ctx, cancel := context.WithTimeout(greedy, time.Second)
			defer cancel()
			end, err := b.Turn(ctx, api.Read{})
			if err != nil {
				break
			}
			ends = append(ends, end)
		}
		honest := api.WithIdentity(t.Context(), api.Identity{Token: "honest", Role: job.RoleViewer})
		end, err := b.Turn(honest, api.Read{})
		if err != nil {
			t.Fatalf("one token has all turns: %v", err)
		}
		end()
		for name, read := range reads(b) {
			ctx, cancel := context.WithTimeout(greedy, time.Second)
			if err := read(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s waits for no turn: %v", name, err)
			}
			cancel()
		}
		waits, cancel := context.WithCancel(greedy)
		var wg sync.WaitGroup
		for range readsWaiting {
			wg.Go(func() { _ = reads(b)["occurrences"](waits) })
		}
		synctest.Wait()
		for name, read := range reads(b) {
			err := read(greedy)
			if job.CodeOf(err) != job.CodeTooManyRequests {
				t.Errorf("%s: %v", name, err)
			}
		}
		if refused[api.RefusedExpensive] != len(reads(b)) {
			t.Errorf("%v", refused)
		}
		cancel()
		wg.Wait()
		for _, end := range ends {
			end()
		}
	})
}
