package notify

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// A leader that holds because its clock is far behind dates what it records by that clock, and the notification with
// it. Its age says nothing then: only what was tried in vain is given up.
func TestNoNotificationIsGivenUpUntried(t *testing.T) {
	o := NewOutbox(Options{Settings: &Settings{}})
	spec := &job.Spec{Name: "pay", Notify: &job.Notify{Webhook: "http://127.0.0.1:9/hook"}}
	now := time.Now().UnixMilli()
	for _, tc := range []struct {
		name   string
		age    time.Duration
		tries  uint32
		giveUp bool
	}{
		{"dated back", maxAge + 2*time.Hour, 0, false},
		{"tried for too long", maxAge + 2*time.Hour, 1, true},
		{"tried for a while", maxAge - 2*time.Hour, 1, false},
	} {
		n := store.Notice{Job: 1, Seq: 1, At: now - tc.age.Milliseconds(), Kind: store.NotifyFailure,
			Attempts: tc.tries}
		d := o.prepare(now, n, spec, "c", map[string]int{})
		if d == nil || d.giveUp != tc.giveUp || d.try != store.ChannelWebhook {
			t.Errorf("%s: %+v, want one that is given up: %v", tc.name, d, tc.giveUp)
		}
	}
}
