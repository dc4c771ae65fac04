package cmd

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// restated is a backend whose status says something else than the node's.
type restated struct {
	api.Backend
	change func(*client.Status)
}

func (r restated) Status(ctx context.Context, rd api.Read) (client.Status, error) {
	st, err := r.Backend.Status(ctx, rd)
	r.change(&st)
	return st, err
}

// Each trouble is one line: what, since when, and what to do. A follower's low disk does not claim that nothing is
// created.
func TestStatusShowsTroubles(t *testing.T) {
	s := newShell(t)
	now := job.At(time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC))
	troubles := []client.Trouble{
		{Code: client.TroubleHold, Node: "n2", Since: now - 12_000,
			Text:   "the leader n2 holds: its clock differs by 2m0s from the majority's; nothing is started or created",
			Remedy: "correct the clock of that machine"},
		{Code: client.TroubleBacklog, Text: "7 runs are due: no worker takes queue mail",
			Remedy: "start a worker that takes them"},
	}
	s.wrap = func(b api.Backend) api.Backend {
		return restated{b, func(st *client.Status) { st.Troubles = troubles }}
	}
	out, _, code := s.run("", "status")
	for _, want := range []string{
		"! the leader n2 holds: its clock differs by 2m0s from the majority's; nothing is started or created, since 12s ago: correct the clock of that machine\n",
		"! 7 runs are due: no worker takes queue mail: start a worker that takes them\n",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d, not %q in\n%s", code, want, out)
		}
	}
	p := printer{a: &app{}}
	low := client.Status{State: "follower",
		Disk: &client.DiskSpace{Free: 100 << 20, Total: 10 << 30, Limit: 512 << 20, Low: true}}
	if text := p.DiskSpace(low); !strings.Contains(text, "created through the leader") || strings.Contains(text, "no jobs") {
		t.Error(text)
	}
	low.State = "leader"
	if text := p.DiskSpace(low); !strings.Contains(text, "creates no jobs while it leads") {
		t.Error(text)
	}
}
