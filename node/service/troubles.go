package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
	"github.com/carillon-scheduler/carillon/node/disk"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/node/membership"
	"github.com/carillon-scheduler/carillon/node/placement"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/scheduler/stamp"
	"github.com/carillon-scheduler/carillon/store"
)

// Troubles are what is wrong, one line each, with what to do about it. They are the same wherever the request lands:
// what concerns the cluster is the leader's to say, and a follower asks it; if it does not answer, the follower says
// that and what it knows itself.

// troubles are what this node knows to be wrong.
func (b *Service) troubles(ctx context.Context, s *wire.Status) []wire.Trouble {
	var out []wire.Trouble
	if why := b.o.Members.WhyStopped(); why != nil {
		return []wire.Trouble{stopped(s.Node, why)} // of the others it hears nothing
	}
	// A node that has not joined yet, or was removed, says that instead.
	if s.Leader == "" && len(s.Members) > 0 && !b.o.Members.Removed() {
		out = append(out, b.leaderless(ctx))
	}
	if h := b.o.Members.Hold(); h != nil {
		out = append(out, wire.Trouble{Code: wire.TroubleHold, Node: s.Leader, Since: s.Now - job.Instant(h.ForMS),
			Text: h.Text + "; nothing is started or created", Remedy: h.Remedy})
	}
	if h := b.o.Store.Info().Hold; h.On {
		hold := holdStatus(h)
		out = append(out, wire.Trouble{Code: wire.TroubleRestored, Since: hold.Since,
			Text:   "the cluster was restored from a backup of " + hold.FromCluster + ", and nothing runs",
			Remedy: hold.Remedy})
	}
	if ids := b.o.Members.Insecure(); len(ids) > 0 {
		s.Insecure = true
		out = append(out, insecure(ids))
	}
	if text, remedy := b.o.Members.Mentioned(); text != "" {
		out = append(out, wire.Trouble{Code: wire.TroubleOtherCluster, Node: s.Node, Text: text, Remedy: remedy})
	}
	if b.o.Scrub != nil {
		if text := b.o.Scrub.Progress().Split; text != "" {
			out = append(out, wire.Trouble{Code: wire.TroubleStatesDiffer, Text: text,
				Remedy: "find out which node's disk or memory is faulty; then stop that node, run `carillon node " +
					"rebuild` on its directory, and start it again"})
		}
	}
	e := b.o.Tracker.Epoch()
	if e == nil {
		if d := s.Disk; d != nil && d.Low {
			out = append(out, diskTrouble(s, s.Node, *d))
		}
		return append(out, b.notReady(s, out)...)
	}
	out = append(out, b.memberTroubles(s)...)
	out = append(out, b.o.Members.KeyTroubles(s)...)
	out = append(out, unscheduled(e)...)
	out = append(out, b.unmatched(e)...)
	return append(out, b.notReady(s, out)...)
}

// stopped says that a member takes no part, and why.
func stopped(id string, why *datadir.Stopped) wire.Trouble {
	code := wire.TroubleStopped
	if why.Reason == datadir.StoppedOtherCluster {
		code = wire.TroubleOtherCluster
	}
	return wire.Trouble{Code: code, Node: id, Since: why.At,
		Text: "node " + id + " takes no part: " + why.Text, Remedy: why.Remedy}
}

// leaderless is why no node leads.
func (b *Service) leaderless(ctx context.Context) wire.Trouble {
	t := wire.Trouble{Code: wire.TroubleNoLeader, Text: "no node leads; an election is under way",
		Remedy: "wait a moment; if that does not help, check the logs of the nodes"}
	if why := b.o.Members.WhyNoLeader(ctx); why != "" {
		t.Text, t.Remedy, _ = strings.Cut("no node leads: "+why, "; ")
	}
	return t
}

// insecure says that everybody may do everything. It is on purpose, and must not be forgotten.
func insecure(ids []string) wire.Trouble {
	return wire.Trouble{Code: wire.TroubleInsecure,
		Text: fmt.Sprintf("the cluster is insecure (--insecure on %s): without TLS and tokens, everybody who can "+
			"reach a port may do everything", strings.Join(ids, ", ")),
		Remedy: "stop all nodes, run `carillon cluster init --data-dir D --out DIR` with the directory of one, and " +
			"start every node with --secure --keys-from DIR"}
}

// notReady is why this node is not ready, if none of the others says it.
func (b *Service) notReady(s *wire.Status, others []wire.Trouble) []wire.Trouble {
	explained := slices.ContainsFunc(others, func(t wire.Trouble) bool {
		return t.Code == wire.TroubleHold || t.Code == wire.TroubleRestored || t.Code == wire.TroubleNoLeader
	})
	err := b.Ready()
	if err == nil || explained {
		return nil
	}
	t := wire.Trouble{Code: wire.TroubleNotReady, Node: s.Node,
		Text: "node " + s.Node + " is not ready: " + err.Error()}
	if known, ok := errors.AsType[*job.Error](err); ok {
		t.Text, t.Remedy = "node "+s.Node+" is not ready: "+known.Message, known.Remedy
	}
	return []wire.Trouble{t}
}

// lagWorth is how many entries a member may be behind without being mentioned.
const lagWorth = 10 * membership.PromoteLag

// memberTroubles are what the leader sees of the members.
func (b *Service) memberTroubles(s *wire.Status) (out []wire.Trouble) {
	voters, living := 0, 0
	for _, m := range s.Members {
		if m.Suffrage == suffrage(raft.Voter) {
			voters++
			if m.State != "unreachable" {
				living++
			}
		}
	}
	for _, m := range s.Members {
		switch {
		case m.State == "unreachable":
			remedy := "start it, or run `carillon cluster remove " + m.ID + "` if it is gone for good"
			if m.Suffrage == suffrage(raft.Voter) && living-1 <= voters/2 {
				remedy += fmt.Sprintf("; %d of %d voters are left, and the cluster stops if it loses another",
					living, voters)
			}
			out = append(out, wire.Trouble{Code: wire.TroubleUnreachable, Node: m.ID, Since: m.LastHeard,
				Text: fmt.Sprintf("node %s (%s) %s", m.ID, m.Address, m.Problem), Remedy: remedy})
			continue
		case b.o.Members.StoppedPeer(m.ID) != nil:
			out = append(out, stopped(m.ID, b.o.Members.StoppedPeer(m.ID)))
		case m.Problem != "":
			out = append(out, wire.Trouble{Code: wire.TroubleMember, Node: m.ID,
				Text: "node " + m.ID + ": " + m.Problem, Remedy: "check its log"})
		}
		if m.SkewMS != nil {
			if d := time.Duration(*m.SkewMS) * time.Millisecond; d.Abs() > placement.FitSkew {
				out = append(out, wire.Trouble{Code: wire.TroubleClock, Node: m.ID,
					Remedy: "correct the clock of that machine",
					Text: fmt.Sprintf("the clock of node %s differs by %s from the majority's; it should not lead, "+
						"because a leader holds beyond %s", m.ID, d, stamp.MaxSkew)})
			}
		}
		if m.Disk != nil && m.Disk.Low {
			out = append(out, diskTrouble(s, m.ID, *m.Disk))
		}
		if m.Lag != nil && *m.Lag > lagWorth {
			out = append(out, wire.Trouble{Code: wire.TroubleLag, Node: m.ID,
				Text:   fmt.Sprintf("node %s is %d log entries behind", m.ID, *m.Lag),
				Remedy: "wait; if the lag does not shrink, check its disk and its network"})
		}
	}
	if t, few := fewVoters(s, voters); few {
		out = append(out, t)
	}
	return out
}

// fewVoters says that nodes are on standby in a cluster that would outlive a lost node if they had a vote.
func fewVoters(s *wire.Status, voters int) (wire.Trouble, bool) {
	var standby []string
	for _, m := range s.Members {
		if m.Standby && !m.Leaving && m.State != "unreachable" {
			standby = append(standby, m.ID)
		}
	}
	if len(standby) == 0 || voters >= 3 || voters+len(standby) < 3 {
		return wire.Trouble{}, false
	}
	return wire.Trouble{Code: wire.TroubleFewVoters, Node: standby[0],
		Text: fmt.Sprintf("only %d of %d nodes vote: if one of those is lost the cluster stops, although %s could "+
			"take over",
			voters, len(s.Members), strings.Join(standby, " and ")),
		Remedy: "run `carillon cluster promote " + standby[0] + "`, until three nodes vote"}, true
}

// diskTrouble says what a low disk means: on the leader nothing is created, on a follower nothing is refused.
func diskTrouble(s *wire.Status, id string, d wire.DiskSpace) wire.Trouble {
	t := wire.Trouble{Code: wire.TroubleDisk, Node: id, Remedy: diskRemedy}
	if id == s.Leader {
		t.Text = fmt.Sprintf("the disk of the leader %s has %s and needs %s: no jobs can be created unless another "+
			"node takes over; runs continue", id, disk.Text(d), job.Bytes(d.Limit))
	} else {
		t.Text = fmt.Sprintf("the disk of node %s has %s and should have %s; jobs can still be created, but this "+
			"node should not become the leader", id, disk.Text(d), job.Bytes(d.Limit))
	}
	return t
}

// unscheduled are jobs that stand still because they have no next occurrence, or that might run twice.
func unscheduled(e *forward.Epoch) []wire.Trouble {
	count, first := e.Scheduler.Unscheduled()
	if count == 0 {
		return nil
	}
	var named []string
	for _, u := range first {
		named = append(named, u.String())
	}
	text := plural(count, "job has", "jobs have") + " no next occurrence, or two: " + strings.Join(named, "; ")
	if more := count - len(first); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return []wire.Trouble{{Code: wire.TroubleUnscheduled, Text: text,
		Remedy: "take a backup and report this; a change of its schedule gives a job a next occurrence, and " +
			"`carillon check` looks at a stopped node"}}
}

// unmatched is work that is due and that no worker takes, by reason. What waits for a slot is backlog and no trouble.
func (b *Service) unmatched(e *forward.Epoch) []wire.Trouble {
	counts := map[string]int{}
	err := b.view(func(r *view.Reader) error {
		classes := map[uint32]int{}
		left := backlogLimit
		for lane := range job.Lane(job.Lanes) {
			err := r.ScanDue(store.DueKey{Lane: lane}, b.now(), func(d store.DueEntry) bool {
				if d.Kind != store.KindCleanup {
					classes[d.Class]++
				}
				left--
				return left > 0
			})
			if err != nil {
				return err
			}
		}
		for c, n := range classes {
			if why := e.Scheduler.NoWorker(r.Class(c)); why != "" {
				counts[why] += n
			}
		}
		return nil
	})
	if err != nil {
		return nil // the store is being closed, or says so by itself
	}
	var out []wire.Trouble
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, wire.Trouble{Code: wire.TroubleBacklog,
			Text:   fmt.Sprintf("%s due: %s", plural(counts[why], "run is", "runs are"), why),
			Remedy: "start a worker that takes them, or see the jobs with `carillon jobs`"})
	}
	return out
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// merge adds to the leader's troubles what only this node knows of itself.
func merge(leaders, own []wire.Trouble) []wire.Trouble {
	out := slices.Clone(leaders)
	for _, t := range own {
		if !slices.ContainsFunc(out, func(o wire.Trouble) bool {
			return o.Code == t.Code &&
				(o.Node == t.Node || t.Node == "")
		}) {
			out = append(out, t)
		}
	}
	return out
}

// silent is what a follower says of a leader that does not answer it.
func silent(p forward.Leader, err error) wire.Trouble {
	return wire.Trouble{Code: wire.TroubleUnreachable, Node: p.ID,
		Text:   fmt.Sprintf("the leader %s (%s) does not answer this node: %v", p.ID, p.Addr, err),
		Remedy: "check that node and the network to it; workers and members are shown as this node knows them"}
}
