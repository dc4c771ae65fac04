package service

import (
	"context"
	"fmt"
	"strings"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// RotateCA implements api.Backend. The new keys are on a majority of the voters before the state hears of them.
func (b *Service) RotateCA(ctx context.Context, r wire.RotateRequest, rq api.Request) (wire.Rotation, error) {
	if r.Abort {
		return b.abortRotation(ctx, rq)
	}
	var made store.Rotation
	o, err := b.change(ctx, rq, func(a attempt) (fsm.Command, error) {
		if !r.Force && !r.DistrustOld {
			if err := b.lockedOut(a.now); err != nil {
				return nil, err
			}
		}
		next, replaces, err := b.o.Members.PrepareRotation(ctx, r.DistrustOld)
		if err != nil {
			return nil, err
		}
		made = next
		if now := b.o.Store.Info().Security.Rotation; now != nil && now.CA == next.CA {
			return &fsm.Lookup{Head: a.head, Request: a.req}, nil // nothing to begin
		}
		made.StartedBy = callerOf(ctx)
		return &fsm.BeginRotation{Head: a.head, Request: a.req, Rotation: made, Replaces: replaces}, nil
	})
	if err != nil {
		return wire.Rotation{}, err
	}
	if err := outcomeError(o, ""); err != nil && o.Code != fsm.CodeNotFound {
		return wire.Rotation{}, err
	}
	if o.Count > 0 && !o.Replay {
		b.o.Logger.Info("rotation of the CA begun", "ca", made.CA, "distrust_old", made.Distrust, "by", made.StartedBy)
	}
	out := b.o.Members.Rotation()
	if r.DistrustOld {
		for _, t := range b.o.Store.Tokens() {
			if t.Suspended && t.RevokedAt == 0 {
				out.Suspended = append(out.Suspended, b.token(t))
			}
		}
		b.heard(ctx, "suspended tokens may be used there")
	}
	return out, nil
}

// maxNamed is how many tokens an error names.
const maxNamed = 10

// lockedOut refuses a rotation that would begin and forget the CA of tokens that are in use. One that is under way was
// judged when it began.
func (b *Service) lockedOut(now int64) error {
	s := b.o.Store.Info().Security
	if s.Rotation != nil {
		return nil
	}
	var names []string
	for _, t := range b.o.Store.Tokens() {
		if t.Usable(now) && s.Standing(t.CA) == store.CALeaving {
			names = append(names, fmt.Sprintf("%s (%s)", t.Name, t.ID))
		}
	}
	if len(names) == 0 {
		return nil
	}
	more := ""
	if n := len(names) - maxNamed; n > 0 {
		names, more = names[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	return job.Errorf(job.CodeState,
		"replace them first: create new ones with `carillon token create`, distribute them, and revoke the old "+
			"ones; --force locks the old ones out",
		"the cluster remembers its last %d CAs, and this rotation would make it forget the one of these tokens, so "+
			"that they no longer work: %s%s", keys.MaxFormer, strings.Join(names, ", "),
		more)
}

func (b *Service) abortRotation(ctx context.Context, rq api.Request) (wire.Rotation, error) {
	o, err := b.changeNamed(ctx, rq, "", func(a attempt) (fsm.Command, error) {
		return &fsm.AbortRotation{Head: a.head, Request: a.req}, nil
	})
	if err != nil {
		return wire.Rotation{}, err
	}
	if o.Count > 0 && !o.Replay {
		b.o.Logger.Info("rotation of the CA given up", "by", callerOf(ctx))
	}
	return b.o.Members.Rotation(), nil
}
