package fsm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// gen makes random commands from the state as it is: mostly what a proposer could send, sometimes what no proposer should.
type gen struct {
	w *world
	n func(int) int // a random number below
	// noTrim leaves out what makes history end, for a test that reads it all.
	noTrim bool
	reqs   int
}

func newGen(w *world, seed uint64) *gen {
	return &gen{w: w, n: rand.New(rand.NewPCG(seed, 1)).IntN}
}

func (g *gen) chance(percent int) bool { return g.n(100) < percent }

func pick[E any](g *gen, all []E) (e E) {
	if len(all) == 0 {
		return e
	}
	return all[g.n(len(all))]
}

// look is what a proposer reads before it makes a command.
type look struct {
	jobs   []job.ID
	defs   map[job.ID]store.Definition
	states map[job.ID]store.State
	places map[job.ID]store.Place
	due    []store.DueEntry
	runs   []job.RunKey
	rows   map[job.RunKey]store.Row
	dead   []uint64
	queue  map[uint32]job.QueueKey // of the classes of open runs, if they have one
	queues map[job.QueueKey]store.QueueUse

	notices []store.Notice
}

func (w *world) look() look {
	w.Helper()
	l := look{defs: map[job.ID]store.Definition{}, states: map[job.ID]store.State{}, places: map[job.ID]store.Place{}, rows: map[job.RunKey]store.Row{},
		queue: map[uint32]job.QueueKey{}, queues: map[job.QueueKey]store.QueueUse{}}
	err := w.st.View(func(v *store.View) error {
		err := v.EachJob(0, func(id job.ID, d store.Definition) bool {
			l.jobs = append(l.jobs, id)
			l.defs[id] = d
			l.states[id], l.places[id], _, _ = v.State(id)
			return true
		})
		if err != nil {
			return err
		}
		for lane := range job.Lane(job.Lanes) {
			if err := v.ScanDue(store.DueKey{Lane: lane}, math.MaxInt64, func(e store.DueEntry) bool { l.due = append(l.due, e); return true }); err != nil {
				return err
			}
		}
		err = v.EachRun(job.RunKey{}, func(k job.RunKey, r store.Row) bool {
			l.runs = append(l.runs, k)
			l.rows[k] = r
			c := job.ParseClass(v.Class(r.Class))
			if k, ok := c.QueueKey(); ok {
				l.queue[r.Class] = k
			}
			return true
		})
		if err != nil {
			return err
		}
		v.EachQueue(func(q store.QueueUse) bool { l.queues[q.Key()] = q; return true })
		if err := v.EachNotice(func(n store.Notice) bool { l.notices = append(l.notices, n); return true }); err != nil {
			return err
		}
		return v.EachDead(0, func(seq uint64, _ store.Dead) bool { l.dead = append(l.dead, seq); return true })
	})
	if err != nil {
		w.Fatal(err)
	}
	return l
}

func (g *gen) request() Request {
	switch g.n(4) {
	case 0:
		return Request{ID: fmt.Sprint("r", g.n(10)), Fingerprint: uint64(g.n(2)), Expires: g.w.now + int64(g.n(100_000))}
	case 1:
		g.reqs++
		return Request{ID: fmt.Sprint("u", g.reqs), Expires: g.w.now + 50_000}
	}
	return Request{}
}

// namespace is one of three: jobs and queues of the same names are in each.
func (g *gen) namespace() string { return pick(g, []string{job.DefaultNamespace, "team-a", "team-b"}) }

func (g *gen) spec() job.Spec {
	return testSpec(func(s *job.Spec) {
		s.Namespace = g.namespace()
		s.Overlap = pick(g, []string{job.OverlapSkip, job.OverlapQueue, job.OverlapAllow, job.OverlapReplace})
		if s.Overlap == job.OverlapAllow {
			s.Concurrency = g.n(4)
		}
		if g.chance(15) {
			s.Delivery = job.DeliverAtMostOnce
		}
		if g.chance(50) {
			s.Name = fmt.Sprint("n", g.n(6))
		}
		s.Priority = pick(g, []string{"critical", "high", "normal", "low"})
		switch g.n(6) {
		case 0:
			s.Schedule, s.Retention = "2030-01-01T00:00:00Z", job.Duration(int64(1+g.n(30))*1e9)
		case 1:
			s.Schedule = job.ScheduleManual
		}
		if g.chance(50) {
			s.Notify = &job.Notify{Webhook: "ops", On: pick(g, [][]string{nil, nil, {"failure"}, {"recovery"}})}
		}
		if g.chance(20) {
			s.Workers = map[string]string{"zone": fmt.Sprint(g.n(3))}
		}
		if g.chance(40) {
			s.Type, s.Payload = job.TypeQueue, fmt.Appendf(nil, `{"queue":"q%d"}`, g.n(3))
		}
	})
}

// step is the distance of occurrences in these tests.
const step = 10_000

// first is a time for a spec's next occurrence after a time.
func (g *gen) first(s *job.Spec, after int64) When {
	if s.Manual() || g.chance(3) {
		return When{}
	}
	at := after + int64(1+g.n(3))*step - after%step
	return When{At: at, Ready: at + int64(g.n(2)*g.n(3000))}
}

// next is a random command. The clock moves on now and then.
func (g *gen) next() Command {
	if g.chance(40) {
		g.w.now += int64(g.n(2 * step))
	}
	l := g.w.look()
	cmd := g.plausible(l)
	if g.chance(12) {
		g.spoil(cmd)
	}
	return cmd
}

func (g *gen) plausible(l look) Command {
	id := pick(g, l.jobs)
	if len(l.jobs) < 3 || g.chance(4) {
		return g.create()
	}
	switch n := g.n(100); {
	case n < 30:
		return g.claim(l)
	case n < 55:
		return g.complete(l)
	case n < 60:
		return g.expire(l)
	case n < 63:
		return g.advance(l)
	case n < 66:
		return g.admit(l)
	case n < 70:
		return g.update(l, id)
	case n < 73:
		return &Pause{Request: g.request(), Job: uint64(id)}
	case n < 76:
		return g.resume(l)
	case n < 79:
		return g.notice(l)
	case n < 82:
		return &Trigger{Request: g.request(), Job: uint64(id), Key: pick(g, []string{"", "{run_id}"})}
	case n < 84:
		b := &Backfill{Request: g.request(), Job: uint64(id), Force: g.chance(30), SeenHead: uint64(g.n(3))}
		for range g.n(5) {
			b.At = append(b.At, g.w.now-g.w.now%step-int64(g.n(6))*step)
		}
		for g.chance(30) {
			b.Left = append(b.Left, g.w.now-g.w.now%step-int64(g.n(6))*step)
		}
		return b
	case n < 88:
		if k := pick(g, l.runs); g.chance(70) {
			return &Cancel{Request: g.request(), Job: uint64(k.Job), At: k.At, Origin: byte(k.Origin)}
		}
		return &Cancel{Request: g.request(), Job: uint64(id), All: true}
	case n < 90:
		return &Redrive{Request: g.request(), Seqs: g.some(l.dead), Namespace: pick(g, []string{"", "", "team-a"})}
	case n < 91:
		return &Purge{Request: g.request(), Seqs: g.some(l.dead), Namespace: pick(g, []string{"", "team-a"})}
	case n < 92:
		if g.noTrim {
			return &Stamp{}
		}
		return &Trim{Before: g.w.now - int64(g.n(10*step)), MaxCount: uint64(g.n(100)), Limit: g.n(20)}
	case n < 94:
		return &Stamp{Takeover: g.chance(50)}
	case n < 95:
		return &Calendar{Request: g.request(), Namespace: g.namespace(), Name: fmt.Sprint("c", g.n(2)), Data: []byte(pick(g, []string{"", "{}"}))}
	case n < 96:
		return &Quarantine{Job: uint64(id), Gen: l.states[id].Gen, Why: "bad"}
	case n < 97:
		if g.chance(70) {
			return g.queueCommand(l)
		}
		return g.meta()
	case n < 99:
		return g.cleanup(l)
	}
	return &Delete{Request: g.request(), Job: uint64(id), Version: uint64(g.n(2))}
}

func (g *gen) meta() Command {
	node := fmt.Sprint("n", g.n(3))
	switch g.n(10) {
	case 8:
		return &DeleteSecret{Request: g.request(), Namespace: g.namespace(), Name: "s"}
	case 9:
		return &PutSecret{Request: g.request(), Namespace: g.namespace(), Name: pick(g, []string{"s", "t", "no name"}),
			Version: uint64(g.n(3)), Sealed: sealedBytes}
	case 7:
		return &Lookup{Request: g.request()}
	case 0:
		return &ClockReset{Request: g.request()}
	case 5:
		return &Release{Request: g.request()}
	case 6:
		return &CloseRestored{Limit: g.n(4)}
	case 1:
		return &Init{ClusterID: "c"}
	case 2:
		return &RemoveNode{ID: node, Instance: pick(g, []string{"", "i0", "i1"})}
	case 3:
		return &SetLevel{Level: g.n(2)}
	}
	return &PutNode{Node: store.Node{ID: node, Instance: fmt.Sprint("i", g.n(2)), Address: fmt.Sprint("h:", g.n(3)), Level: 1}}
}

func (g *gen) queueCommand(l look) Command {
	space, name := g.namespace(), fmt.Sprint("q", g.n(4))
	version := l.queues[job.QueueKey{Namespace: space, Name: name}].Version * uint64(g.n(2))
	if g.chance(20) {
		return &DeleteQueue{Request: g.request(), Namespace: space, Name: name, Version: version}
	}
	return &PutQueue{Request: g.request(), Namespace: space, Name: name, Version: version, Set: uint8(g.n(8)), Concurrency: g.n(4), Paused: g.chance(25)}
}

// notice claims what waits to be sent, or settles what was claimed.
func (g *gen) notice(l look) Command {
	if g.chance(50) {
		c := &ClaimNotices{Node: "n1"}
		for _, n := range l.notices {
			want := byte(1 + g.n(3))
			c.Jobs, c.Seqs, c.Want, c.Try = append(c.Jobs, uint64(n.Job)), append(c.Seqs, n.Seq), append(c.Want, want), append(c.Try, want&^byte(n.Settled()))
		}
		return c
	}
	c := &SettleNotices{}
	for _, n := range l.notices {
		var to [4]byte // again, sent, unknown, failed
		for _, ch := range []store.Channels{store.ChannelWebhook, store.ChannelEmail} {
			to[g.n(4)] |= byte(ch & n.Trying)
		}
		c.Jobs, c.Seqs, c.Attempt = append(c.Jobs, uint64(n.Job)), append(c.Seqs, n.Seq), append(c.Attempt, n.Attempts)
		c.Sent, c.Unknown, c.Failed = append(c.Sent, to[1]), append(c.Unknown, to[2]), append(c.Failed, to[3])
		c.RetryAt, c.Error = append(c.RetryAt, g.w.now+step), append(c.Error, "503")
	}
	return c
}

func (g *gen) some(seqs []uint64) (out []uint64) {
	for _, s := range seqs {
		if g.chance(40) {
			out = append(out, s)
		}
	}
	return append(out, uint64(g.n(5)))
}

func (g *gen) create() Command {
	c := &Create{}
	id := g.w.st.Counters().NextJob
	for range 1 + g.n(3) {
		id += 1 + uint64(g.n(2)*g.n(3))
		s := g.spec()
		c.Items = append(c.Items, CreateItem{Job: id, Def: g.w.def(s, 1), Next: g.first(&s, g.w.now-int64(g.n(5*step))), Request: g.request()})
	}
	return c
}

func (g *gen) claim(l look) Command {
	c := &Claim{Workers: []WorkerRef{worker1, {Name: "w2", Incarnation: 5}}}
	for _, e := range l.due {
		if e.Kind == store.KindCleanup || e.Ready > g.w.now+step || !g.chance(50) {
			continue
		}
		addClaim(c, e.DueKey, l.states[e.Job].Gen, 0)
		i := len(c.Jobs) - 1
		c.Worker[i] = uint16(g.n(2))
		if e.Kind == store.KindOccurrence && !e.State.OneOff {
			w := g.first(&job.Spec{}, e.At)
			c.Next[i], c.NextReady[i] = w.At, w.Ready
			switch g.n(6) {
			case 0:
				late := gap(w.At, w.At+step, 2, job.RunSkipped, job.ReasonWaiting)
				next := g.first(&job.Spec{}, late.Last)
				c.Next[i], c.NextReady[i] = next.At, next.Ready
				c.Late = append(c.Late, Late{uint16(i), late})
			case 1:
				c.flag(i, ClaimLast)
			case 2:
				c.flag(i, ClaimDue)
			}
		}
		if len(c.Jobs) == 6 {
			break
		}
	}
	if len(c.Jobs) > 0 && g.chance(20) { // the same again, in one batch
		k := store.DueKey{Lane: job.Lane(c.Lane[0]), Ready: c.Ready[0], Job: job.ID(c.Jobs[0]), Kind: store.Kind(c.Kind[0] >> 4), Origin: job.Origin(c.Kind[0] & 15), At: c.At[0]}
		addClaim(c, k, c.Gen[0], c.Next[0])
	}
	if len(c.Flags) > 0 {
		c.flag(len(c.Jobs)-1, 0)
	}
	return c
}

// flag sets what a claim says of an item.
func (c *Claim) flag(i int, f byte) {
	for len(c.Flags) <= i {
		c.Flags = append(c.Flags, 0)
	}
	c.Flags[i] |= f
}

// inHand are runs that workers have.
func (l look) inHand() (out []job.RunKey) {
	for _, k := range l.runs {
		if s := l.rows[k].Status; s == job.RunClaimed || s == job.RunCanceling {
			out = append(out, k)
		}
	}
	return out
}

func (g *gen) complete(l look) Command {
	c := &Complete{}
	for _, k := range l.inHand() {
		if g.chance(40) {
			continue
		}
		res := pick(g, []Result{ResultSucceeded, ResultSucceeded, ResultRetry, ResultRetry, ResultDead, ResultCanceled, ResultReturned})
		fence := l.rows[k].Fence
		if g.chance(10) {
			fence -= uint64(g.n(3))
		}
		addResult(c, k, fence, res, g.w.now+int64(g.n(2*step)))
	}
	return c
}

func (g *gen) expire(l look) Command {
	e := &Expire{}
	for _, k := range l.inHand() {
		if g.chance(50) {
			one := expireOf(Outcome{Run: k, Fence: l.rows[k].Fence})
			e.Jobs, e.At, e.Origin, e.Fence = append(e.Jobs, one.Jobs...), append(e.At, one.At...), append(e.Origin, one.Origin...), append(e.Fence, one.Fence...)
			e.Started = append(e.Started, one.Started...)
		}
	}
	return e
}

func (g *gen) advance(l look) Command {
	var due []store.DueEntry
	for _, e := range l.due {
		if e.Kind != store.KindCleanup && e.Kind != store.KindRetry && e.Ready <= g.w.now {
			due = append(due, e)
		}
	}
	if len(due) == 0 {
		return &Advance{}
	}
	e := pick(g, due)
	n := int64(1 + g.n(4))
	gp := gap(e.At, e.At+(n-1)*step, n, pick(g, []job.RunStatus{job.RunMissed, job.RunSkipped, job.RunExpired}), pick(g, []job.Reason{job.ReasonOutage, job.ReasonBlackout, job.ReasonDeadline}))
	next := When{}
	if !e.State.OneOff {
		next = g.first(&job.Spec{}, gp.Last)
	}
	var rows []CatchUp
	if g.chance(40) && !e.State.OneOff && e.Kind == store.KindOccurrence { // run_all, from the very entry on or from a later one
		first := e.At
		if gp.Status, gp.Reason = job.RunMissed, job.ReasonOutage; g.chance(50) {
			gp = Gap{}
		} else {
			first = gp.Last + step
		}
		for i := range int64(1 + g.n(4)) {
			rows = append(rows, CatchUp{At: first + i*step})
		}
		next = g.first(&job.Spec{}, rows[len(rows)-1].At)
	}
	return &Advance{Lane: []byte{byte(e.Lane)}, Kind: []byte{byte(e.Kind)<<4 | byte(e.Origin)}, Ready: []int64{e.Ready}, Jobs: []uint64{uint64(e.Job)},
		At: []int64{e.At}, Gen: []uint32{e.State.Gen}, Next: []int64{next.At}, NextReady: []int64{next.Ready}, Gaps: []Gap{gp}, Rows: rows}
}

// admit decides about occurrences that are due, whether something is in their way or not.
func (g *gen) admit(l look) Command {
	c := &Admit{}
	for _, e := range l.due {
		if e.Kind != store.KindOccurrence || e.Ready > g.w.now || !g.chance(60) {
			continue
		}
		n := int64(1)
		if !e.State.OneOff {
			n += int64(g.n(3))
		}
		c.Lane, c.Ready, c.Jobs = append(c.Lane, byte(e.Lane)), append(c.Ready, e.Ready), append(c.Jobs, uint64(e.Job))
		c.At, c.Gen = append(c.At, e.At), append(c.Gen, e.State.Gen)
		gp := gap(e.At, e.At+(n-1)*step, n, job.RunSkipped, job.ReasonOverlap)
		var next, past When
		if !e.State.OneOff {
			next, past = g.first(&job.Spec{}, e.At), g.first(&job.Spec{}, gp.Last)
		}
		c.Next, c.NextReady = append(c.Next, next.At), append(c.NextReady, next.Ready)
		c.Past, c.PastReady = append(c.Past, past.At), append(c.PastReady, past.Ready)
		c.Gaps = append(c.Gaps, gp)
		c.Flags = append(c.Flags, byte(g.n(8)/7)*ClaimLast)
	}
	return c
}

func seenOf(l look, id job.ID) Seen {
	p := l.places[id]
	return Seen{Gen: l.states[id].Gen, Parked: p.Parked, At: p.At, Ready: p.Ready}
}

func (g *gen) update(l look, id job.ID) Command {
	def, s := l.defs[id], l.states[id]
	spec := g.spec()
	if g.chance(95) { // else it would be moved
		spec.Namespace = def.Spec.Namespace
	}
	u := &Update{Request: g.request(), Job: uint64(id), Version: def.Version, Seen: seenOf(l, id)}
	cur := When{l.places[id].At, l.places[id].Ready}
	if l.places[id].Parked {
		cur = When{s.ParkedAt, s.ParkedReady}
	}
	if u.Next = cur; g.chance(50) {
		u.Next = g.first(&spec, max(s.LastNominal, g.w.now))
		if cur.At != 0 && cur.At <= g.w.now && g.chance(70) {
			u.Dropped = gap(cur.At, cur.At, 1, job.RunSkipped, job.ReasonEdited)
			if back := cur.At - 1; back > s.LastNominal && g.chance(20) { // to an earlier time
				u.Next, u.Dropped = When{back, back}, Gap{}
				u.After = gap(cur.At, cur.At, 1, job.RunSkipped, job.ReasonEdited)
				if g.chance(90) {
					spec.Schedule = time.UnixMilli(back).UTC().Format(time.RFC3339Nano)
				}
			}
		}
	}
	u.Def = g.w.def(spec, def.Version+1)
	return u
}

func (g *gen) resume(l look) Command {
	var stopped []job.ID
	for _, id := range l.jobs {
		if s := l.states[id]; s.Paused || s.Quarantined {
			stopped = append(stopped, id)
		}
	}
	id := pick(g, stopped)
	s := l.states[id]
	r := &Resume{Request: g.request(), Job: uint64(id), Seen: seenOf(l, id), Next: When{s.ParkedAt, s.ParkedReady}}
	if s.ParkedAt != 0 && s.ParkedAt <= g.w.now && !s.OneOff {
		r.Next = g.first(&job.Spec{}, g.w.now)
		if g.chance(70) {
			last := max(s.ParkedAt, g.w.now-g.w.now%step)
			r.NotRun = gap(s.ParkedAt, last, (last-s.ParkedAt)/step+1, job.RunSkipped, job.ReasonPaused)
		}
	}
	return r
}

func (g *gen) cleanup(l look) Command {
	c := &Cleanup{Later: g.w.now + step}
	for _, e := range l.due {
		if e.Kind == store.KindCleanup {
			c.Lane, c.Ready, c.Jobs = append(c.Lane, byte(e.Lane)), append(c.Ready, e.Ready), append(c.Jobs, uint64(e.Job))
		}
	}
	return c
}

// spoil makes one field of a command something that no proposer should send. Definitions are left alone: one that cannot be read
// ends the process, as it should.
func (g *gen) spoil(cmd Command) {
	v := reflect.ValueOf(cmd).Elem()
	f := v.Field(g.n(v.NumField()))
	for f.Kind() == reflect.Struct && f.NumField() > 0 {
		f = f.Field(g.n(f.NumField()))
	}
	if f.Kind() == reflect.Slice && f.Len() > 0 && f.Type().Elem().Kind() != reflect.Uint8 {
		f = f.Index(g.n(f.Len()))
		for f.Kind() == reflect.Struct && f.NumField() > 0 {
			f = f.Field(g.n(f.NumField()))
		}
	}
	odd := pick(g, []int64{0, 1, -1, 5, math.MaxInt64, math.MinInt64, 1 << 40, g.w.now, g.w.now + step})
	switch f.Kind() {
	case reflect.Int64, reflect.Int:
		f.SetInt(odd)
	case reflect.Uint64, reflect.Uint32:
		if f.OverflowUint(uint64(odd)) {
			odd = 7
		}
		f.SetUint(uint64(odd))
	case reflect.Uint8:
		f.SetUint(uint64(uint8(odd)))
	case reflect.Bool:
		f.SetBool(!f.Bool())
	}
	if c, ok := cmd.(*SetLevel); ok { // a level that this binary does not know ends the process, as it should
		c.Level = min(c.Level, Level)
	}
	if c, ok := cmd.(*Create); ok { // a number near the end of all numbers leaves none for later
		c.Items = slices.DeleteFunc(c.Items, func(it CreateItem) bool { return it.Job > 1<<39 })
	}
}
