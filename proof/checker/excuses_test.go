package checker

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// TestHeldTakeover: a leader whose clock is behind serves no worker until it has caught up with the last stamp. That
// takes runs from their workers if it takes as long as their patience; anything less does not.
func TestHeldTakeover(t *testing.T) {
	const ttl = 6 * time.Second // a worker that hears nothing for 2.8 s may have given up
	for name, tc := range map[string]struct {
		amount   time.Duration
		node     string
		stop, at int64 // when the leader before stopped, and when the next took over, after the claim
		want     Rule
	}{
		"its clock was far enough behind":        {-3 * time.Second, "n2", 2000, 2010, ""},
		"the election took some of the time":     {-2500 * time.Millisecond, "n2", 1500, 2010, ""},
		"its clock was a little behind":          {-400 * time.Millisecond, "n2", 2000, 2010, RuleLive},
		"its clock was ahead":                    {3 * time.Second, "n2", 2000, 2010, RuleLive},
		"the leader before was ahead":            {3 * time.Second, "n3", 2000, 2010, ""},
		"the leader before was a little ahead":   {400 * time.Millisecond, "n3", 2000, 2010, RuleLive},
		"the clock of another was behind":        {-3 * time.Second, "n3", 2000, 2010, RuleLive},
		"it took over before that run's claim":   {-3 * time.Second, "n2", -8000, -7900, RuleLive},
		"it took over after the run was stopped": {-3 * time.Second, "n2", 9000, 9010, RuleLive},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(nil)
			s.in.TTL = ttl
			s.in.Takeovers = []Takeover{{Node: "n2", Term: 3, At: job.Instant(minute(1) + tc.at)}}
			s.fault(FaultStop, "n3", minute(1)+tc.stop, minute(1)+tc.stop+1000)
			s.fault(FaultClock, tc.node, minute(1)-20_000, minute(1)+20_000)
			s.in.Faults[1].Amount = tc.amount
			s.attempt(sched(minute(1)), 1, worker, minute(1), 5200, Canceled, job.RunFailed, job.ReasonNone)
			s.attempt(sched(minute(1)), 2, worker, minute(1)+15_000, 1000, Succeeded, job.RunSucceeded, job.ReasonNone)
			check(t, s.end(1), tc.want)
		})
	}
}

// TestHeartbeatOnItsWay: a leader that stands still keeps the heartbeats that are on their way to it, and its answers do
// not arrive. The silence of a worker is that much older than the fault, and not a millisecond more.
func TestHeartbeatOnItsWay(t *testing.T) {
	const ttl = 6 * time.Second // a worker that hears nothing for 2.8 s may have given up
	for name, tc := range map[string]struct {
		latency time.Duration
		queues  []string
		stopped int64 // after the leader stood still
		want    Rule
	}{
		"no time on the way":                         {0, nil, 2800, ""},
		"no time on the way, and stopped too soon":   {0, nil, 2799, RuleLive},
		"there and back":                             {10 * time.Millisecond, nil, 2780, ""},
		"there and back, and stopped too soon":       {10 * time.Millisecond, nil, 2779, RuleLive},
		"two calls passed on":                        {10 * time.Millisecond, []string{"w1"}, 2720, ""},
		"two calls passed on, and stopped too soon":  {10 * time.Millisecond, []string{"w1"}, 2719, RuleLive},
		"another worker's calls are those passed on": {10 * time.Millisecond, []string{"w2"}, 2779, RuleLive},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(nil)
			s.in.TTL, s.in.Latency, s.in.QueueWorkers = ttl, tc.latency, tc.queues
			s.fault(FaultPause, "n3", minute(1)+1000, minute(1)+7000)
			s.in.Faults[0].Led = []uint32{0}
			s.attempt(sched(minute(1)), 1, "w1", minute(1), 1000+tc.stopped, Canceled, job.RunFailed, job.ReasonNone)
			s.attempt(sched(minute(1)), 2, "w1", minute(1)+15_000, 1000, Succeeded, job.RunSucceeded, job.ReasonNone)
			check(t, s.end(1), tc.want)
		})
	}
}

// TestLeaderOfAGroup: a node that stood still takes runs from the workers of the groups that it led, whichever these
// are, and from no others.
func TestLeaderOfAGroup(t *testing.T) {
	for name, tc := range map[string]struct {
		led  []uint32
		want Rule
	}{
		"it led this one":             {[]uint32{3}, ""},
		"it led this one and others":  {[]uint32{1, 3}, ""},
		"it led another":              {[]uint32{1}, RuleLive},
		"it led the one without jobs": {[]uint32{0}, RuleLive},
		"it led none":                 {nil, RuleLive},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(nil)
			s.in.TTL, s.in.Group = 6*time.Second, 3
			s.fault(FaultPause, "n3", minute(1)+1000, minute(1)+7000)
			s.in.Faults[0].Led = tc.led
			s.attempt(sched(minute(1)), 1, "w1", minute(1), 4000, Canceled, job.RunFailed, job.ReasonNone)
			s.attempt(sched(minute(1)), 2, "w1", minute(1)+15_000, 1000, Succeeded, job.RunSucceeded, job.ReasonNone)
			check(t, s.end(1), tc.want)
		})
	}
}

// TestUnsureLeader: a leader that no majority answers because of a slow disk extends no lease. That takes runs from
// their workers if it lasts as long as their patience; anything less does not.
func TestUnsureLeader(t *testing.T) {
	const ttl = 6 * time.Second // a worker that hears nothing for 2.8 s may have given up
	type fault struct {
		kind       FaultKind
		node, peer string
		from, to   int64 // after the claim; its worker stops the attempt 5.2 s after that
		amount     time.Duration
	}
	disk := fault{FaultDisk, "n2", "", -8000, 5000, time.Second}
	away := fault{FaultKill, "n1", "", 1000, 5000, 0}
	later := func(f fault) fault { f.from, f.to = 5000, 20_000; return f }
	five := []string{"n4", "n5"}
	for name, tc := range map[string]struct {
		faults []fault
		nodes  []string // besides n1 to n3
		want   Rule
	}{
		"one is away and one is slow":     {[]fault{disk, away}, nil, ""},
		"one has no vote and one is slow": {[]fault{disk, {FaultLeader, "n1", "", 1000, 5000, 0}}, nil, ""},
		"one is cut off and one is slow":  {[]fault{disk, {FaultCut, "n1", "n3", 1000, 5000, 0}}, nil, ""},
		"its link is slow":                {[]fault{disk, {FaultLink, "n3", "n1", 1000, 5000, time.Second}}, nil, ""},
		"one is away and one far":         {[]fault{{FaultLink, "n3", "n2", -8000, 5000, 1100e6}, away}, nil, ""},
		"one is away and one less far":    {[]fault{{FaultLink, "n3", "n2", -8000, 5000, 300e6}, away}, nil, RuleLive},
		"both are away":                   {[]fault{away, {FaultPause, "n2", "", -3000, 4500, 0}}, nil, ""},
		"both are away for too short":     {[]fault{away, {FaultPause, "n2", "", -3000, 3700, 0}}, nil, RuleLive},
		"both are slow":                   {[]fault{disk, {FaultDisk, "n1", "", 1000, 4000, time.Second}}, nil, ""},
		"the last write takes its time":   {[]fault{{FaultDisk, "n2", "", 1000, 3000, time.Second}, away}, nil, ""},
		"the disk hangs":                  {[]fault{{FaultDisk, "n2", "", 1000, 5000, 0}, away}, nil, ""},
		"only one is slow":                {[]fault{disk}, nil, RuleLive},
		"only one is away":                {[]fault{away}, nil, RuleLive},
		"the one away is the slow one":    {[]fault{disk, {FaultKill, "n2", "", 1000, 5000, 0}}, nil, RuleLive},
		"the leader is the slow one":      {[]fault{{FaultDisk, "n3", "", -8000, 5000, time.Second}, away}, nil, RuleLive},
		"the disk is hardly slower":       {[]fault{{FaultDisk, "n2", "", -8000, 5000, 50e6}, away}, nil, RuleLive},
		"the link is hardly slower":       {[]fault{disk, {FaultLink, "n3", "n1", 1000, 5000, 50e6}}, nil, RuleLive},
		"the two are cut off mutually":    {[]fault{disk, {FaultCut, "n1", "n2", 1000, 5000, 0}}, nil, RuleLive},
		"another worker is away":          {[]fault{disk, {FaultKill, "w2", "", 1000, 5000, 0}}, nil, RuleLive},
		"a clock is wrong":                {[]fault{disk, {FaultClock, "n1", "", 1000, 5000, time.Second}}, nil, RuleLive},
		"both for too short a time":       {[]fault{disk, {FaultKill, "n1", "", 1000, 3700, 0}}, nil, RuleLive},
		"they overlap for a moment":       {[]fault{{FaultDisk, "n2", "", -8000, 1000, time.Second}, away}, nil, RuleLive},
		"the worker was cut off before": {[]fault{disk, {FaultStop, "n1", "", 2500, 5000, 0},
			{FaultCut, "w1", "n3", 1000, 2500, 0}}, nil, ""},
		"they take turns":                   {[]fault{{FaultDisk, "n2", "", -8000, 900, 100e6}, away}, nil, RuleLive},
		"it ended long before that claim":   {[]fault{disk, {FaultKill, "n1", "", -20_000, -6000, 0}}, nil, RuleLive},
		"it began when the run was stopped": {[]fault{later(disk), later(away)}, nil, RuleLive},
		"the others are a majority":         {[]fault{disk, away}, five, RuleLive},
		"three of five":                     {[]fault{disk, away, {FaultPause, "n4", "", 1000, 5000, 0}}, five, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(nil)
			s.in.TTL = ttl
			for _, n := range tc.nodes {
				s.in.Final.Digests[n] = "x"
			}
			s.in.Takeovers = []Takeover{{Node: "n3", Term: 2, At: job.Instant(minute(0))}}
			for _, f := range tc.faults {
				s.in.Faults = append(s.in.Faults, Fault{Kind: f.kind, Node: f.node, Peer: f.peer, Amount: f.amount,
					From: job.Instant(minute(1) + f.from), To: job.Instant(minute(1) + f.to)})
			}
			s.attempt(sched(minute(1)), 1, "w1", minute(1), 5200, Canceled, job.RunFailed, job.ReasonNone)
			s.attempt(sched(minute(1)), 2, "w1", minute(1)+15_000, 1000, Succeeded, job.RunSucceeded, job.ReasonNone)
			check(t, s.end(1), tc.want)
		})
	}
}

// TestOutageOfFarNodes: a leader whose followers are far extends no lease for some time longer than no node led.
func TestOutageOfFarNodes(t *testing.T) {
	const ttl = 6 * time.Second // a worker that hears nothing for 2.8 s may have given up
	far := Fault{Kind: FaultLink, Node: "n3", Peer: "n1", Amount: time.Second, From: job.Instant(minute(1)), To: job.Instant(minute(1) + 9000)}
	with := func(change func(*Fault)) []Fault { f := far; change(&f); return []Fault{f} }
	for name, tc := range map[string]struct {
		faults []Fault
		want   Rule
	}{
		"far":                 {with(func(*Fault) {}), ""},
		"near":                {nil, RuleLive},
		"less far":            {with(func(f *Fault) { f.Amount = 300 * time.Millisecond }), RuleLive},
		"near again":          {with(func(f *Fault) { f.To = f.From + 1000 }), RuleLive},
		"far only later":      {with(func(f *Fault) { f.From += 6000 }), RuleLive},
		"another worker":      {with(func(f *Fault) { f.Peer = "w2" }), RuleLive},
		"the outage is short": {with(func(f *Fault) { f.Amount = 500 * time.Millisecond }), RuleLive},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(nil)
			s.in.TTL = ttl
			s.in.Faults = tc.faults
			s.in.Outages = []Outage{{job.Instant(minute(1) + 500), job.Instant(minute(1) + 2000)}}
			s.attempt(sched(minute(1)), 1, "w1", minute(1), 5200, Canceled, job.RunFailed, job.ReasonNone)
			s.attempt(sched(minute(1)), 2, "w1", minute(1)+15_000, 1000, Succeeded, job.RunSucceeded, job.ReasonNone)
			check(t, s.end(1), tc.want)
		})
	}
}
