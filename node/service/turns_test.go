package service

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/insight"
	"github.com/carillon-scheduler/carillon/node/names"
	"github.com/carillon-scheduler/carillon/node/view"
)

// What looks at all jobs, or at much that is stored, takes turns, as the reads of package insight do.
func TestExpensiveReadsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Service{Service: insight.New(insight.Options{Fresh: func(context.Context, api.Read) error { return nil },
			Source: &view.Source{Now: func() int64 { return time.Now().UnixMilli() }}, Turns: insight.NewTurns(true)})}
		ctx := api.WithIdentity(t.Context(), api.Identity{Token: "greedy", Role: job.RoleViewer})
		for {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			end, err := b.Turn(ctx, api.Read{})
			if err != nil {
				break
			}
			defer end()
		}
		for name, read := range map[string]func(context.Context) error{
			"secrets, and what jobs use": func(ctx context.Context) error {
				_, err := b.allUses(ctx, names.UsesOf{})
				return err
			},
			"calendars": func(ctx context.Context) error {
				_, err := b.Calendars(ctx, api.Read{})
				return err
			},
			"preview over calendars": func(ctx context.Context) error {
				_, err := b.Preview(ctx, wire.PreviewRequest{Schedule: "@daily", Count: 1, Calendars: []string{"x"}}, api.Read{})
				return err
			},
			"dead letters": func(ctx context.Context) error {
				_, err := b.DeadLetters(ctx, wire.DeadQuery{Limit: 1}, api.Read{})
				return err
			},
			"history": func(ctx context.Context) error {
				_, err := b.ExportHistory(ctx, 0, 1, api.Read{})
				return err
			},
		} {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			if err := read(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: waits for no turn: %v", name, err)
			}
			cancel()
		}
	})
}
