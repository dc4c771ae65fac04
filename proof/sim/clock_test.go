package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/client"
)

// TestClockOfTheOnlyReplica: a group with one replica does not go by a clock that the other nodes know is wrong. It
// would stamp a time that never was, and stand still until that comes once the clock is right again.
func TestClockOfTheOnlyReplica(t *testing.T) {
	const wrong, group = 26 * time.Hour, 1
	p, dir := directedPlan("planned", 1), scratch(t)
	p.o.groups = 3
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(p, dir, &logs{})
		defer c.down()
		wait := func(what string, not func(context.Context) error) {
			t.Helper()
			if !c.eventually(10*time.Minute, what, not) {
				t.Fatal(c.problems)
			}
		}
		if !c.up() {
			t.Fatal(c.problems)
		}
		only := (c.leader() + 1) % len(c.servers) // which has no clock of others to compare with
		s, other := c.servers[only], c.clients[c.leader()]
		wait("the group has one replica", func(ctx context.Context) error {
			m, err := other.MoveGroup(ctx, client.MoveGroupRequest{Group: group, To: []string{s.id}})
			if err == nil && !m.Done {
				err = fmt.Errorf("%+v", m)
			}
			return err
		})
		holds := func(ctx context.Context) (string, error) {
			st, err := other.Status(ctx)
			if err != nil {
				return "", err
			}
			for _, t := range st.Troubles {
				if t.Code == client.TroubleHold {
					return t.Text, nil
				}
			}
			if i := slices.IndexFunc(st.Groups, func(g client.GroupStatus) bool { return g.ID == group }); i < 0 ||
				st.Groups[i].Leader != s.id {
				return "", fmt.Errorf("group %d is not led by %s: %+v", group, s.id, st.Groups)
			}
			return "", nil
		}

		s.kill()
		s.clock.set(wrong)
		s.start()
		wait("the group holds because of the clock", func(ctx context.Context) error {
			why, err := holds(ctx)
			if err == nil && !strings.Contains(why, "from the majority's") {
				err = fmt.Errorf("it says %q", why)
			}
			return err
		})
		s.clock.set(0)
		wait("the group works", func(ctx context.Context) error {
			why, err := holds(ctx)
			if err == nil && why != "" {
				err = fmt.Errorf("it says %q", why)
			}
			return err
		})
		if mark, now := s.current().n.States()[group].Counters().Mark, c.t.now().UnixMilli(); mark > now {
			t.Errorf("the mark is %s ahead", time.Duration(mark-now)*time.Millisecond)
		}
	})
}
