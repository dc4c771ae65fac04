package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/carillon-scheduler/carillon/internal/faultpoint"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node"
	"github.com/carillon-scheduler/carillon/schedule"
)

// options are what a seed makes of the cluster.
type options struct {
	profile      string
	nodes        int
	groups       int // that have jobs when it begins; 0: one group has everything
	grow         int // how many it has in the end; 0: as many as when it begins
	workers      int
	slots        int
	ttl          time.Duration
	raft         node.RaftConfig
	members      node.MembersConfig
	pace         faultpoint.Pace
	latency      time.Duration
	base         time.Time
	length       time.Duration
	queueWorkers []plannedQueueWorker
	onlyByQueue  bool          // no other worker takes runs of queues
	spaces       bool          // there are two namespaces, and
	kept         bool          // the last worker takes runs of the second one only
	historyAge   time.Duration // 0: everything is kept
	historyCount uint64
	crowd        int           // how many jobs are due in one second, and
	keys         int           // how long their keys are
	hooks        time.Duration // how long the receiver of notifications takes at most, and
	refuses      float64       // how often it cannot take one now
	clocks       time.Duration // how far a clock may be off without its leader holding
	// how late an occurrence may be while only clocks of a minority are wrong; 0: that is not judged
	recovery time.Duration
}

// plan is everything that a seed decides in advance: who is there, what is asked of it and what is done to it, and
// when.
type plan struct {
	seed      uint64
	name      string // of a directed one
	o         options
	calendars []schedule.Calendar
	jobs      []plannedJob
	calls     []plannedCall
	faults    []plannedFault
}

type plannedJob struct {
	spec job.Spec
	m    behaviour
}

// plannedCall is a call at a time. Which job it is about is an index; what exists by then is seen then.
type plannedCall struct {
	at   time.Duration
	kind string
	job  int
	node int
	x    uint64
}

type plannedFault struct {
	at, lasts time.Duration
	kind      string
	a, b      int
	x         uint64
}

func (f plannedFault) String() string {
	return fmt.Sprintf("%s %s a=%d b=%d for %s", f.at.Round(time.Millisecond), f.kind, f.a, f.b,
		f.lasts.Round(time.Millisecond))
}

// changes are moments around which clocks are set: in the middle of the base times.
var changes = []struct {
	zone string
	at   string
}{
	{"America/New_York", "2027-03-14T07:00:00Z"}, {"America/New_York", "2027-11-07T06:00:00Z"},
	{"Europe/Berlin", "2027-03-28T01:00:00Z"}, {"Europe/Berlin", "2027-10-31T01:00:00Z"},
	{"Australia/Lord_Howe", "2027-04-03T15:00:00Z"}, {"Australia/Lord_Howe", "2027-10-02T15:30:00Z"},
	{"Africa/Cairo", "2027-04-29T22:00:00Z"}, {"Africa/Cairo", "2027-10-28T21:00:00Z"},
	{"Asia/Beirut", "2027-03-27T22:00:00Z"}, {"America/Santiago", "2027-09-05T04:00:00Z"},
	{"UTC", "2028-02-29T00:00:00Z"}, {"Asia/Kolkata", "2027-12-31T18:30:00Z"},
}

func newPlan(seed uint64) *plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := &plan{seed: seed}
	change := changes[rng.IntN(len(changes))]
	at, err := time.Parse(time.RFC3339, change.at)
	if err != nil {
		panic(err)
	}
	o := &p.o
	o.nodes = 3
	if rng.IntN(5) == 0 {
		o.nodes = 5
	}
	o.workers = rng.IntN(3)
	o.slots = 2 + rng.IntN(8)
	o.clocks = 0
	if seed%10 == 7 {
		p.season(rng, change.zone, at)
	} else {
		p.storm(rng, change.zone, at)
		p.queues(rand.New(rand.NewPCG(seed, 12)))
		p.addQueueWorkers(rand.New(rand.NewPCG(seed, 13)))
		p.unfit(rand.New(rand.NewPCG(seed, 16)))
	}
	p.distinguish(rand.New(rand.NewPCG(seed, 15)))
	p.more(rand.New(rand.NewPCG(seed, 20)))
	if o.profile == "storm" {
		p.namespaces(rand.New(rand.NewPCG(seed, 21)))
		p.groups(rand.New(rand.NewPCG(seed, 22)))
		p.growth(rand.New(rand.NewPCG(seed, 23)))
		p.bareCalls(rand.New(rand.NewPCG(seed, 24)))
		p.readCalls(rand.New(rand.NewPCG(seed, 25)))
		p.moveCalls(rand.New(rand.NewPCG(seed, 26)))
	}
	return p
}

// storm is a short and violent time.
func (p *plan) storm(rng *rand.Rand, zone string, at time.Time) {
	o := &p.o
	o.profile = "storm"
	o.ttl = pick(rng, 6*time.Second, 15*time.Second, 30*time.Second)
	o.latency = pick(rng, 0, time.Millisecond, 10*time.Millisecond)
	// Heartbeats are what idle time costs; a tenth of the seeds have those of a real cluster.
	o.raft = node.RaftConfig{Heartbeat: pick(rng, 2*time.Second, 3*time.Second, 4*time.Second),
		CommitTimeout: time.Second, SnapshotInterval: time.Hour}
	o.pace = faultpoint.Pace(pick(rng, 2, 3, 5))
	if rng.IntN(10) == 0 {
		o.raft.Heartbeat, o.raft.CommitTimeout, o.nodes, o.pace = 500*time.Millisecond, 50*time.Millisecond, 3, 1
	}
	if rng.IntN(3) == 0 {
		o.raft.SnapshotInterval, o.raft.SnapshotThreshold, o.raft.TrailingLogs = 5*time.Second, 32, 40
	}
	o.members = node.MembersConfig{Interval: 4 * time.Second}
	o.length = time.Duration(4+rng.IntN(6)) * time.Minute
	o.base = at.Add(-o.length/2 + time.Duration(rng.Int64N(int64(6*time.Minute)))).Truncate(time.Millisecond)
	n := 4 + rng.IntN(8)
	for i := range n {
		p.jobs = append(p.jobs, p.stormJob(rng, i, zone))
	}
	p.calls = p.planCalls(rng, n, 10+rng.IntN(40), 0.6)
	p.faults = p.planFaults(rng, 3+rng.IntN(12), 2*time.Second, 90*time.Second)
}

// season is a long and mostly quiet time.
func (p *plan) season(rng *rand.Rand, zone string, at time.Time) {
	o := &p.o
	o.profile, o.nodes = "season", 3
	o.pace = 600
	o.ttl = 2 * time.Hour
	o.raft = node.RaftConfig{Heartbeat: 10 * time.Minute, CommitTimeout: 5 * time.Minute,
		SnapshotInterval: 24 * time.Hour}
	o.members = node.MembersConfig{Interval: 30 * time.Minute}
	o.length = time.Duration(3+rng.IntN(3)) * 24 * time.Hour
	if p.seed%500 == 57 { // one costs as much as fifty storms
		o.length = time.Duration(40+rng.IntN(60)) * 24 * time.Hour
	}

	o.base = at.Add(-o.length/2 - time.Duration(rng.Int64N(int64(12*time.Hour)))).Truncate(time.Millisecond)
	n := 4 + rng.IntN(6)
	for i := range n {
		p.jobs = append(p.jobs, p.seasonJob(rng, i, zone))
	}
	p.calls = p.planCalls(rng, n, 5+rng.IntN(15), 0.8)
	p.faults = p.planFaults(rng, 2+rng.IntN(4), 10*time.Minute, 20*time.Hour)
}

var queueNames = []string{"mail", "bills"}

// queues makes some jobs those of queues, whose limits and pauses change.
func (p *plan) queues(rng *rand.Rand) {
	if !chance(rng, 0.5) {
		return
	}
	for i := range p.jobs {
		if chance(rng, 0.5) {
			s := &p.jobs[i].spec
			s.Type, s.Payload = job.TypeQueue, json.RawMessage(fmt.Sprintf(`{"queue":%q}`, pick(rng, queueNames...)))
		}
	}
	for range 3 + rng.IntN(8) {
		p.calls = append(p.calls,
			plannedCall{at: between(rng, 0, p.o.length), kind: "queue", job: rng.IntN(len(queueNames)),
				node: rng.IntN(p.o.nodes), x: rng.Uint64()})
	}
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

func chance(rng *rand.Rand, p float64) bool { return rng.Float64() < p }

func between(rng *rand.Rand, lo, hi time.Duration) time.Duration {
	return lo + time.Duration(rng.Int64N(int64(hi-lo)))
}

// ask adds calls of a kind between two times, about the first jobs and through any node.
func (p *plan) ask(rng *rand.Rand, n int, kind string, jobs int, from, to time.Duration) {
	for range n {
		p.calls = append(p.calls, plannedCall{at: between(rng, from, to), kind: kind, job: rng.IntN(jobs),
			node: rng.IntN(p.o.nodes), x: rng.Uint64()})
	}
}

// from is a moment of the simulation.
func (p *plan) from(d time.Duration) time.Time { return p.o.base.Add(d) }

func (p *plan) stormJob(rng *rand.Rand, i int, zone string) plannedJob {
	s := job.Spec{Timezone: pick(rng, zone, zone, "UTC", "Europe/Berlin")}
	local := p.from(p.o.length / 2)
	if loc, err := time.LoadLocation(zone); err == nil {
		local = local.In(loc)
	}
	switch rng.IntN(9) {
	case 0, 1:
		s.Schedule = fmt.Sprintf("*/%d * * * * *", pick(rng, 5, 7, 10, 15, 20, 30))
	case 2:
		s.Schedule = "* * * * *"
	case 3:
		s.Schedule = fmt.Sprintf("@every %ds", 3+rng.IntN(60))
	case 4: // a time of day near the change of the clocks
		s.Schedule = fmt.Sprintf("%d,%d,%d %d-%d * * *", rng.IntN(20), 20+rng.IntN(20), 40+rng.IntN(20),
			max(0, local.Hour()-1), min(23, local.Hour()+1))
	case 5:
		s.Schedule = fmt.Sprintf("%d %d * * *", local.Minute(), local.Hour())
	case 6:
		s.Schedule = p.from(between(rng, time.Minute, p.o.length)).UTC().Format(time.RFC3339)
	case 7:
		s.Schedule = fmt.Sprintf("DTSTART;TZID=%s:%s\nRRULE:FREQ=MINUTELY;INTERVAL=%d", s.Timezone,
			p.from(-time.Hour).In(mustZone(s.Timezone)).Format("20060102T150405"), 1+rng.IntN(4))
		s.Timezone = ""
	case 8:
		s.Schedule = job.ScheduleManual
	}
	return p.finish(rng, i, s, 5*time.Second, 90*time.Second)
}

func mustZone(name string) *time.Location {
	loc, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	return loc
}

func (p *plan) seasonJob(rng *rand.Rand, i int, zone string) plannedJob {
	s := job.Spec{Timezone: pick(rng, zone, zone, "UTC", "America/New_York")}
	switch rng.IntN(8) {
	case 0:
		s.Schedule = fmt.Sprintf("%d * * * *", rng.IntN(60))
	case 1:
		s.Schedule = fmt.Sprintf("%d %d * * *", rng.IntN(60), rng.IntN(5))
	case 2:
		s.Schedule = fmt.Sprintf("*/%d * * * *", pick(rng, 15, 20, 30))
	case 3:
		s.Schedule = fmt.Sprintf("@every %dm", 11+rng.IntN(200))
	case 4:
		s.Schedule = fmt.Sprintf("%d %d * * %s", rng.IntN(60), rng.IntN(24), pick(rng, "MON-FRI", "SAT,SUN", "1#1,5L"))
	case 5:
		s.Schedule = fmt.Sprintf("DTSTART;TZID=%s:%s\nRRULE:FREQ=DAILY;BYHOUR=%d,%d;BYMINUTE=%d", s.Timezone,
			p.from(-24*time.Hour).In(mustZone(s.Timezone)).Format("20060102T150405"), rng.IntN(4), 4+rng.IntN(20),
			rng.IntN(60))
		s.Timezone = ""
	case 6:
		s.Schedule = p.from(between(rng, time.Hour, p.o.length)).UTC().Format(time.RFC3339)
	case 7:
		s.Schedule = "H H(0-5) * * *"
	}
	return p.finish(rng, i, s, time.Minute, 40*time.Minute)
}

// finish gives a job its policies and its target.
func (p *plan) finish(rng *rand.Rand, i int, s job.Spec, lo, hi time.Duration) plannedJob {
	s.Name = fmt.Sprintf("job-%d", i)
	s.Type = pick(rng, job.TypeHTTP, job.TypeHTTP, job.TypeShell)
	s.Payload = json.RawMessage(`{"url":"http://target.example/"}`)
	if s.Type == job.TypeShell {
		s.Payload = json.RawMessage(`{"command":"true"}`)
	}
	s.Overlap = pick(rng, job.OverlapSkip, job.OverlapQueue, job.OverlapAllow, job.OverlapReplace)
	if s.Overlap == job.OverlapAllow && chance(rng, 0.4) {
		s.Concurrency = 2 + rng.IntN(3)
	}
	s.Missed = job.Missed{Policy: pick(rng, job.MissedSkip, job.MissedRunOnce, job.MissedRunAll),
		Grace: job.Duration(pick(rng, lo/2, lo, 12*lo))}
	if chance(rng, 0.3) {
		s.Missed.Window = between(rng, lo, 2*hi).Round(time.Second).String()
	}
	if chance(rng, 0.4) {
		s.Missed.Max = 1 + rng.IntN(8)
	}
	retries := rng.IntN(4)
	if chance(rng, 0.25) {
		s.Delivery, retries = job.DeliverAtMostOnce, 0
	}
	s.Retry = job.Retry{MaxRetries: &retries,
		Backoff: pick(rng, job.BackoffImmediate, job.BackoffLinear, job.BackoffExponential),
		Base:    job.Duration(between(rng, time.Second, lo+time.Second)), Cap: job.Duration(hi + time.Second)}
	s.Timeout = job.Duration(between(rng, lo, hi).Round(time.Millisecond))
	if chance(rng, 0.2) {
		s.Deadline = job.Duration(between(rng, lo/2, hi).Round(time.Second))
	}
	if chance(rng, 0.15) {
		s.Jitter = job.Duration(between(rng, time.Second, lo).Round(time.Millisecond))
	}
	s.Priority = pick(rng, "critical", "high", "normal", "normal", "low")
	if chance(rng, 0.15) {
		s.StartAt = job.At(p.from(between(rng, 0, p.o.length/2)))
	}
	if chance(rng, 0.15) {
		s.EndAt = job.At(p.from(between(rng, p.o.length/2, p.o.length)))
	}
	if chance(rng, 0.15) {
		s.MaxRuns = 1 + rng.IntN(12)
	}
	if chance(rng, 0.2) {
		s.Calendars = []string{"closed"}
	}
	if p.o.workers > 0 && chance(rng, 0.25) {
		s.Workers = map[string]string{"pool": "remote"}
	}
	s.Retention = job.Duration(1000 * 24 * time.Hour)
	m := behaviour{most: time.Second}
	switch rng.IntN(8) {
	case 0:
		m.fail = 0.5
	case 1:
		m.fail = 0.95
	case 2:
		m.least, m.most = lo/2, hi
	case 3:
		m.hang = 0.3
	case 4:
		m.permanent, m.fail, m.retryAfter = 0.2, 0.3, lo
	case 5:
		m.least, m.most, m.fail = lo/4, lo, 0.3
	}
	return plannedJob{s, m}
}

func (p *plan) planCalls(rng *rand.Rand, jobs, n int, early float64) []plannedCall {
	var out []plannedCall
	for i := range jobs {
		at := time.Duration(0)
		if !chance(rng, early) {
			at = between(rng, 0, p.o.length*3/4)
		}
		out = append(out, plannedCall{at: at, kind: "create", job: i, node: rng.IntN(p.o.nodes), x: rng.Uint64()})
	}
	for range n {
		out = append(out, plannedCall{
			at: between(rng, 0, p.o.length),
			kind: pick(rng, "update", "update", "pause", "resume", "resume", "run", "run", "backfill", "cancel",
				"cancel-run", "redrive", "redrive", "delete", "recreate", "purge"),
			job: rng.IntN(jobs), node: rng.IntN(p.o.nodes), x: rng.Uint64(),
		})
	}
	if from := p.from(between(rng, 0, p.o.length/2)); chance(rng, 0.8) {
		p.calendars = append(p.calendars,
			schedule.Calendar{Name: "closed",
				Windows: []schedule.Window{{From: from.UTC().Truncate(time.Second),
					To: from.Add(between(rng, p.o.length/20, p.o.length/4)).UTC().Truncate(time.Second)}}})
	} else {
		p.calendars = append(p.calendars,
			schedule.Calendar{Name: "closed", Timezone: "Europe/Berlin", Weekdays: []string{"sun"},
				Daily: []string{"02:10-02:20"}})
	}
	return out
}

var faultKinds = []string{"kill", "kill", "kill-leader", "kill-leader", "stop", "roll", "cut", "cut", "cut-leader",
	"cut-half", "one-way", "link", "reset", "pause", "pause-leader",
	"clock", "clock-leader", "slow", "fail", "kill-worker", "cut-worker", "stop-worker", "pause-worker", "transfer",
	"transfer", "swing"}

func (p *plan) planFaults(rng *rand.Rand, n int, lo, hi time.Duration) []plannedFault {
	var out []plannedFault
	for range n {
		f := plannedFault{at: between(rng, p.o.length/20, p.o.length), kind: faultKinds[rng.IntN(len(faultKinds))],
			a: rng.IntN(p.o.nodes), b: rng.IntN(p.o.nodes), x: rng.Uint64()}
		f.lasts = lo + time.Duration(float64(hi-lo)*rng.Float64()*rng.Float64())
		out = append(out, f)
	}
	return out
}
