package node

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/store"
)

// A leader that holds because its clock is far behind dates what it records by that clock, and the notification with it. Its age says nothing then:
// only what was tried in vain is given up.
func TestNoNotificationIsGivenUpUntried(t *testing.T) {
	t.Parallel()
	h := newHook(t)
	n := start(t, t.TempDir())
	j := n.create(newTarget(t).spec("pay", "@manual", notifying(h.URL)...))
	f := newNotifier(n.group, nil)
	now := time.Now().UnixMilli()
	for _, tc := range []struct {
		name   string
		age    time.Duration
		tries  uint32
		giveUp bool
	}{
		{"dated back", notifyMaxAge + 2*time.Hour, 0, false},
		{"tried for too long", notifyMaxAge + 2*time.Hour, 1, true},
		{"tried for a while", notifyMaxAge - 2*time.Hour, 1, false},
	} {
		err := n.group.store.View(func(v *store.View) error {
			d := f.consider(v, now, store.Notice{Job: j.ID, Seq: 1, At: now - tc.age.Milliseconds(), Kind: store.NotifyFailure, Attempts: tc.tries}, map[string]int{})
			if d == nil || d.giveUp != tc.giveUp || d.try != store.ChannelWebhook {
				t.Errorf("%s: %+v, want one that is given up: %v", tc.name, d, tc.giveUp)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
