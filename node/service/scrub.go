package service

import (
	"context"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
)

// Scrub implements api.Backend.
func (b *Service) Scrub(ctx context.Context, _ api.Request) (wire.ScrubStatus, error) {
	if _, err := b.o.Tracker.Leading(); err != nil {
		return wire.ScrubStatus{}, err
	}
	b.o.Scrub.Start()
	b.o.Logger.Info("state is compared at once, as somebody asked for it")
	return b.ScrubStatus(ctx, api.Read{})
}

// ScrubStatus implements api.Backend.
func (b *Service) ScrubStatus(context.Context, api.Read) (wire.ScrubStatus, error) {
	if _, err := b.o.Tracker.Leading(); err != nil {
		return wire.ScrubStatus{}, err
	}
	a := b.o.Scrub.Asked()
	g := wire.GroupScrub{Group: b.o.Group, Leader: b.o.NodeID, Pass: a.Number, Done: a.Done,
		Bytes: a.Progress.Bytes, Of: a.Progress.Of, Differ: a.Differ, Missing: a.Missing, Split: a.Progress.Split}
	return wire.ScrubStatus{Groups: []wire.GroupScrub{g}}, nil
}
