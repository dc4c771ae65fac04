package proof

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// TestLeaderWithLittleRoomHandsOver fills the disk of the node that leads, on a file system of its own: another one
// leads soon, jobs are created through every node, and the one with little room says only what is true.
func TestLeaderWithLittleRoomHandsOver(t *testing.T) {
	beside(t)
	disk, why := harness.NewSmallDisk(t, 128)
	if why != "" {
		t.Skip(why)
	}
	cl := harness.NewClusterAt(t, harness.Build(t), 3, func(i int, n *harness.Node) {
		if i == 0 {
			n.Dir = filepath.Join(disk.Path, "data")
		}
	}, "--min-free-disk", "32MiB")
	ctx := context.Background()
	small := cl.Nodes[0]
	harness.Eventually(t, harness.ReadyLimit, "the node on the small disk leads", func() bool {
		return small.Client.TransferLeadership(ctx, small.ID) == nil && cl.Leader() == small
	})
	create := func(n *harness.Node, name string) error {
		_, err := n.Client.CreateJob(ctx,
			job.Spec{Name: name, Type: job.TypeHTTP, Schedule: job.ScheduleManual,
				Payload: json.RawMessage(`{"url":"http://127.0.0.1:1/"}`)})
		return err
	}
	if err := create(small, "before"); err != nil {
		t.Fatal(err)
	}
	disk.FillBut(16 << 20)
	harness.Eventually(t, time.Minute, "another node leads", func() bool {
		s, err := cl.Nodes[1].Client.Status(ctx)
		return err == nil && s.Ready && s.Leader != small.ID && s.Leader != ""
	})
	for i, n := range cl.Nodes {
		if err := create(n, fmt.Sprintf("after-%d", i)); err != nil {
			t.Errorf("through %s: %v", n.ID, err)
		}
		s, err := n.Client.Status(ctx)
		i := slices.IndexFunc(s.Troubles,
			func(t client.Trouble) bool { return t.Code == client.TroubleDisk && t.Node == small.ID })
		if err != nil || i < 0 || !strings.Contains(s.Troubles[i].Text, "jobs can still be created") {
			t.Errorf("%s: %v %+v", n.ID, err, s.Troubles)
		}
	}
	disk.Empty()
	harness.Eventually(t, time.Minute, "nothing is wrong any more", func() bool {
		s, err := small.Client.Status(ctx)
		return err == nil && s.Ready && len(s.Troubles) == 0
	})
	cl.StopAndCheck()
}
