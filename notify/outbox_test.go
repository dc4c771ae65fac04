package notify

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// A receiver may answer with a text of any length, and many of them at once: all ends are recorded, and none keeps those
// of others from it.
func TestLongErrorsAreSettled(t *testing.T) {
	st, err := store.Open(filepath.Join(t.TempDir(), "state.db"), store.Options{NoSync: true, MmapSize: 1 << 24})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	settled := map[uint64]bool{}
	o := NewOutbox(Options{Settings: &Settings{}, Store: st, Logger: slog.New(slog.DiscardHandler), Recorded: func(string) {},
		Propose: func(cmd fsm.Command) (*fsm.Reply, error) {
			if _, err := fsm.Encode(cmd); err != nil {
				return nil, err
			}
			c := cmd.(*fsm.SettleNotices)
			for _, id := range c.Jobs {
				settled[id] = true
			}
			return &fsm.Reply{Items: make([]fsm.Outcome, len(c.Jobs))}, nil
		}})
	const n = 5000 // they come together after a time in which nothing could be recorded
	for i := range n {
		d := &delivery{n: store.Notice{Job: job.ID(i + 1), Seq: 1, Trying: store.ChannelWebhook}, try: store.ChannelWebhook,
			where: map[store.Channels]string{store.ChannelWebhook: "hook"}}
		d.results = map[store.Channels]Result{store.ChannelWebhook: {Outcome: Unknown, Err: errors.New(strings.Repeat("x", 200<<10))}}
		o.landed(d)
	}
	for range n {
		o.settle(time.Now().UnixMilli())
	}
	if len(settled) != n || len(o.unsettled) > 0 {
		t.Errorf("%d of %d are settled, %d are not", len(settled), n, len(o.unsettled))
	}
}

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
