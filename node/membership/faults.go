package membership

import (
	"context"
	"time"

	"github.com/carillon-scheduler/carillon/node/forward"
)

// Faults lets tests of whole clusters see and steer a handover.
type Faults struct{ m *Members }

// Faults is for tests only.
func (m *Members) Faults() Faults { return Faults{m} }

// Handed is why the leader before handed this leadership over by itself.
func (f Faults) Handed() string {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.m.handover.handed
}

// PassedOn is how long ago this node last handed over by itself; false: never.
func (f Faults) PassedOn() (time.Duration, bool) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	at := f.m.handover.passedOn
	return time.Since(at), !at.IsZero()
}

// SetPassedOn has this node have handed over by itself so long before it may do so again.
func (f Faults) SetPassedOn(before time.Duration) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.handover.passedOn = time.Now().Add(before - passOnEvery)
}

// Stall keeps the membership from changing until the function it returns is called. That hands the leadership over as
// it was planned before, if it still should be.
func (f Faults) Stall(ctx context.Context) (resume func(e *forward.Epoch, target, why string), err error) {
	if err := f.m.lock(ctx); err != nil {
		return nil, err
	}
	return func(e *forward.Epoch, target, why string) {
		defer f.m.unlock()
		f.m.handTo(ctx, e, target, why)
	}, nil
}

// Plan is who should lead instead of this node and why.
func (f Faults) Plan(e *forward.Epoch) (target, why string) {
	target, why, _ = f.m.plan(e)
	return target, why
}
