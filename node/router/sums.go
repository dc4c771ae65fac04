package router

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// Stats adds up the buckets. Each group is asked, whatever node answers for it.
func (b *backend) Stats(ctx context.Context, _ time.Duration, rd api.Read) (out wire.Stats, err error) {
	parts, err := gather[wire.Stats](ctx, b.rt, b.rt.o.Groups(), rd.Stale)
	if err != nil || len(parts) == 0 {
		return out, err
	}
	out = parts[0]
	buckets := map[job.Instant]*wire.StatsBucket{}
	for _, p := range parts {
		out.From, out.To = min(out.From, p.From), max(out.To, p.To)
		if p.CompleteFrom == 0 || out.CompleteFrom == 0 { // one of them still reads
			out.CompleteFrom = 0
		} else {
			out.CompleteFrom = max(out.CompleteFrom, p.CompleteFrom)
		}
		for _, x := range p.Buckets {
			have := buckets[x.At]
			if have == nil {
				have = &wire.StatsBucket{At: x.At}
				buckets[x.At] = have
			}
			addCounts(&have.StatsCounts, &x.StatsCounts)
			have.LagMS, have.DurationMS = addEach(have.LagMS, x.LagMS), addEach(have.DurationMS, x.DurationMS)
		}
	}
	out.Buckets = nil
	for _, at := range slices.Sorted(maps.Keys(buckets)) {
		out.Buckets = append(out.Buckets, *buckets[at])
	}
	return out, nil
}

func addCounts(to, x *wire.StatsCounts) {
	to.Succeeded += x.Succeeded
	to.Failed += x.Failed
	to.Dead += x.Dead
	to.Retried += x.Retried
	to.Lost += x.Lost
	to.Canceled += x.Canceled
	to.NotRun.Skipped += x.NotRun.Skipped
	to.NotRun.Missed += x.NotRun.Missed
	to.NotRun.Expired += x.NotRun.Expired
	to.NotRun.Paused += x.NotRun.Paused
	to.NotRun.Blackout += x.NotRun.Blackout
}

func addEach(to, x []uint32) []uint32 {
	if len(to) < len(x) {
		to, x = slices.Clone(x), to
	}
	for i := range x {
		to[i] += x[i]
	}
	return to
}

// longestRuns is how many of those that run for longest are shown.
const longestRuns = 20

// RunSummary adds up the counts.
func (b *backend) RunSummary(ctx context.Context, _ wire.RunQuery, rd api.Read) (out wire.RunSummary, err error) {
	parts, err := gather[wire.RunSummary](ctx, b.rt, b.rt.o.Groups(), rd.Stale)
	if err != nil || len(parts) == 0 {
		return out, err
	}
	out = wire.RunSummary{From: parts[0].From, To: parts[0].To, ByStatus: map[string]int64{},
		ByReason: map[string]int64{}}
	for _, p := range parts {
		out.From, out.To = min(out.From, p.From), max(out.To, p.To)
		out.CountedFrom = max(out.CountedFrom, p.CountedFrom)
		out.Scanned += p.Scanned
		addTo(out.ByStatus, p.ByStatus)
		addTo(out.ByReason, p.ByReason)
		out.Longest = append(out.Longest, p.Longest...)
	}
	slices.SortStableFunc(out.Longest, func(x, y wire.LongRun) int { return cmp.Compare(y.RunningMS, x.RunningMS) })
	out.Longest = out.Longest[:min(len(out.Longest), longestRuns)]
	return out, nil
}

func addTo(to, x map[string]int64) {
	for k, n := range x {
		to[k] += n
	}
}

// loadTop is how many schedules of a bucket are named.
const loadTop = 10

// UpcomingLoad adds up the buckets.
func (b *backend) UpcomingLoad(ctx context.Context, _ wire.LoadQuery, rd api.Read) (out wire.UpcomingLoad, err error) {
	parts, err := gather[wire.UpcomingLoad](ctx, b.rt, b.rt.o.Groups(), rd.Stale)
	if err != nil || len(parts) == 0 {
		return out, err
	}
	out = parts[0]
	buckets := map[job.Instant]*wire.LoadBucket{}
	type key struct{ schedule, zone string }
	tops := map[job.Instant]map[key]*wire.LoadSchedule{}
	out.Scanned, out.Total = 0, 0
	for _, p := range parts {
		out.From, out.To = min(out.From, p.From), max(out.To, p.To)
		out.ExactUntil = min(out.ExactUntil, p.ExactUntil)
		out.Sampled = out.Sampled || p.Sampled
		out.Scanned, out.Total = out.Scanned+p.Scanned, out.Total+p.Total
		for _, x := range p.Buckets {
			have := buckets[x.At]
			if have == nil {
				have = &wire.LoadBucket{At: x.At, Kind: x.Kind}
				buckets[x.At] = have
			}
			if have.Count += x.Count; x.Kind == wire.LoadProjected {
				have.Kind = x.Kind
			}
		}
		for _, t := range p.Top {
			if tops[t.At] == nil {
				tops[t.At] = map[key]*wire.LoadSchedule{}
			}
			for _, x := range t.Schedules {
				have := tops[t.At][key{x.Schedule, x.Timezone}]
				if have == nil {
					tops[t.At][key{x.Schedule, x.Timezone}] = &x
					continue
				}
				have.Count, have.Jobs = have.Count+x.Count, have.Jobs+x.Jobs
			}
		}
	}
	out.Buckets, out.Top = nil, nil
	for _, at := range slices.Sorted(maps.Keys(buckets)) {
		out.Buckets = append(out.Buckets, *buckets[at])
	}
	for _, at := range slices.Sorted(maps.Keys(tops)) {
		t := wire.LoadTop{At: at}
		for _, x := range tops[at] {
			t.Schedules = append(t.Schedules, *x)
		}
		slices.SortFunc(t.Schedules, func(x, y wire.LoadSchedule) int {
			return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Schedule, y.Schedule),
				cmp.Compare(x.Timezone, y.Timezone))
		})
		t.Schedules = t.Schedules[:min(len(t.Schedules), loadTop)]
		out.Top = append(out.Top, t)
	}
	return out, nil
}

// Preview is what the group of the job says, or any; how many jobs share a minute all of them know together.
func (b *backend) Preview(ctx context.Context, p wire.PreviewRequest, _ api.Read) (out wire.PreviewResult, err error) {
	first := uint32(control)
	if p.JobID != nil && b.rt.has(uint32(p.JobID.Group())) {
		first = uint32(p.JobID.Group())
	}
	body := bodyOf(ctx)
	preview := func(g uint32) (res wire.PreviewResult, err error) {
		s := stateOf(ctx)
		r := request(ctx, s.r, http.MethodPost, s.r.URL.EscapedPath(), s.query(), body())
		return res, b.rt.do(r, g, &res)
	}
	if out, err = preview(first); err != nil || out.Sharing == nil {
		return out, err
	}
	var mu sync.Mutex
	others := slices.DeleteFunc(slices.Clone(b.rt.all()), func(g uint32) bool { return g == first })
	return out, b.rt.each(ctx, others, false, func(g uint32) error {
		res, err := preview(g)
		if err != nil || res.Sharing == nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		out.Sharing.Jobs += res.Sharing.Jobs
		if res.Sharing.Jobs > 0 {
			// The peaks of two groups may be in different minutes: their sum is the most that it can be.
			out.Sharing.Kind = wire.LoadProjected
		}
		for i, x := range res.Sharing.Peaks {
			if i < len(out.Sharing.Peaks) && out.Sharing.Peaks[i].JitterMS == x.JitterMS {
				out.Sharing.Peaks[i].Peak += x.Peak
			}
		}
		return nil
	})
}

// clockSlack is how long the answers of groups may be on their way before what they say of the past is taken to be by
// another clock.
const clockSlack = 2 * time.Second

// Status is the cluster as its control group sees it, with the sums of all groups. A group that does not answer is a
// trouble, not an error: this is where people look why something does not work.
func (b *backend) Status(ctx context.Context, rd api.Read) (out wire.Status, err error) {
	if err := b.rt.get(ctx, control, path("/status"), stateOf(ctx).query(), &out); err != nil {
		return out, err
	}
	groups := slices.DeleteFunc(slices.Clone(b.rt.o.Groups()), func(g uint32) bool { return g == control })
	parts := make([]wire.Status, len(groups))
	errs := make([]error, len(groups))
	_ = b.rt.each(ctx, groups, false, func(g uint32) error { //nolint:errcheck // they are in errs
		i := slices.Index(groups, g)
		errs[i] = b.rt.get(ctx, g, path("/status"), stateOf(ctx).query(), &parts[i])
		return nil
	})
	for i := range parts {
		if errs[i] != nil {
			stateOf(ctx).miss(groups[i])
			text := strings.TrimPrefix(errs[i].Error(), job.GroupNames(groups[i])+": ")
			out.Groups = append(out.Groups, wire.GroupStatus{ID: groups[i], Members: []string{}, Problem: text})
			parts[i].Troubles = []wire.Trouble{{Code: wire.TroubleNoLeader, Text: text}}
			continue
		}
		parts[i].OnClock(out.Now, clockSlack)
		addStatus(&out, groups[i], &parts[i])
	}
	nameLeaderless(&out, groups, parts)
	return out, nil
}

// nameLeaderless names the groups without a leader, those together that are without one for the same reason: when nodes
// are lost that is all of them.
func nameLeaderless(to *wire.Status, groups []uint32, parts []wire.Status) {
	var leaderless, others []wire.Trouble
	in := map[wire.Trouble][]uint32{}
	add := func(group uint32, troubles []wire.Trouble) {
		for _, t := range troubles {
			if t.Code != wire.TroubleNoLeader {
				continue
			}
			if in[t] == nil {
				leaderless = append(leaderless, t)
			}
			in[t] = append(in[t], group)
		}
	}
	for _, t := range to.Troubles {
		if t.Code == wire.TroubleNoLeader {
			add(control, []wire.Trouble{t})
		} else {
			others = append(others, t)
		}
	}
	for i := range parts {
		add(groups[i], parts[i].Troubles)
	}
	for i, t := range leaderless {
		leaderless[i].Text = job.GroupNames(in[t]...) + ": " + t.Text
	}
	to.Troubles = append(leaderless, others...)
}

func addStatus(to *wire.Status, group uint32, x *wire.Status) {
	to.Jobs, to.OpenRuns, to.DeadLetters = to.Jobs+x.Jobs, to.OpenRuns+x.OpenRuns, to.DeadLetters+x.DeadLetters
	to.Backlog, to.BacklogMore = to.Backlog+x.Backlog, to.BacklogMore || x.BacklogMore
	to.History.Records += x.History.Records
	to.Groups = append(to.Groups, x.Groups...)
	if x.NextDueAt != 0 && (to.NextDueAt == 0 || x.NextDueAt < to.NextDueAt) {
		to.NextDueAt = x.NextDueAt
	}
	if !x.Ready {
		to.Ready, to.NotReady = false, cmp.Or(to.NotReady, fmt.Sprintf("group %d: %s", group, x.NotReady))
	}
	if h := x.Hold; h != nil && to.Hold == nil { // the control group was released, and this one follows
		to.Hold = &wire.HoldStatus{Since: h.Since, FromCluster: h.FromCluster, FromIndex: h.FromIndex, Releasing: true,
			Remedy: fmt.Sprintf("wait a moment; group %d is being released", group)}
	}
	if n := x.Notifications; n != nil {
		if have := to.Notifications; have != nil {
			n = &wire.NotificationStatus{Waiting: have.Waiting + n.Waiting, Since: min(have.Since, n.Since),
				Error: have.Error}
		}
		to.Notifications = n
	}
	for _, t := range x.Troubles {
		same := func(have wire.Trouble) bool {
			return have.Code == t.Code && have.Node == t.Node && have.Text == t.Text
		}
		if t.Code != wire.TroubleNoLeader && !slices.ContainsFunc(to.Troubles, same) {
			to.Troubles = append(to.Troubles, t)
		}
	}
	for _, w := range x.Workers {
		addWorker(to, &w)
	}
}

// addWorker adds a session of a worker: it has one with each group, over the same slots.
func addWorker(to *wire.Status, w *wire.WorkerStatus) {
	for i := range to.Workers {
		if have := &to.Workers[i]; have.Worker == w.Worker && have.Namespace == w.Namespace {
			have.Slots, have.Busy = max(have.Slots, w.Slots), have.Busy+w.Busy
			have.LastHeard, have.Waiting = max(have.LastHeard, w.LastHeard), have.Waiting || w.Waiting
			return
		}
	}
	to.Workers = append(to.Workers, *w)
}

// ClockReset is done in every group.
func (b *backend) ClockReset(ctx context.Context, _ api.Request) error {
	s := stateOf(ctx)
	return b.rt.each(ctx, b.rt.all(), false, func(g uint32) error {
		return b.rt.do(request(ctx, s.r, http.MethodPost, s.r.URL.EscapedPath(), s.query(), nil), g, nil)
	})
}

// Scrub is asked of the leader of every group.
func (b *backend) Scrub(ctx context.Context, _ api.Request) (out wire.ScrubStatus, err error) {
	s, groups := stateOf(ctx), b.rt.all()
	parts := make(map[uint32]*wire.ScrubStatus)
	for _, g := range groups {
		parts[g] = &wire.ScrubStatus{}
	}
	err = b.rt.each(ctx, groups, false, func(g uint32) error {
		return b.rt.do(request(ctx, s.r, http.MethodPost, s.r.URL.EscapedPath(), s.query(), nil), g, parts[g])
	})
	for _, g := range groups {
		out.Groups = append(out.Groups, parts[g].Groups...)
	}
	return out, err
}

// ScrubStatus is that of every group.
func (b *backend) ScrubStatus(ctx context.Context, _ api.Read) (out wire.ScrubStatus, err error) {
	parts, err := gather[wire.ScrubStatus](ctx, b.rt, b.rt.all(), false)
	for _, p := range parts {
		out.Groups = append(out.Groups, p.Groups...)
	}
	return out, err
}
