package insight

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// maxViewers bounds how many streams a node serves.
	maxViewers = 500
	// maxWatched bounds how many jobs one of them watches.
	maxWatched = 20
	// viewerRoom is how many frames a viewer may be behind before it is cut off: some seconds.
	viewerRoom = 16
	// quietLimit is after how long without a frame a comment is sent, so that both sides notice a dead connection.
	quietLimit = 10 * time.Second
	// openSeen bounds how many open runs of a watched job are looked at: it may have tens of thousands.
	openSeen = 100
	// heardLately is within how many ms a follower must have heard from the leader to take it for alive.
	heardLately = 2000
)

// viewer is one stream of events.
type viewer struct {
	space   api.Space
	topics  map[string]bool
	seen    store.Activity    // of one namespace
	watched map[job.ID]uint64 // jobs, with what was last seen of them
	frames  chan []byte
	bye     chan string // why it ends; has room for one
}

// viewers are the streams of a node. They cost what the largest of them costs, once: what they have in common is made
// once, and nothing at all is made while there is none.
type viewers struct {
	mu    sync.Mutex
	all   map[*viewer]struct{}
	ended bool
	came  chan struct{} // there is a new one

	// Of the goroutine that feeds them.
	ticks uint64
	seen  store.Counters
}

// Events implements api.Backend: it sends events until the caller or the node goes away.
func (b *Service) Events(ctx context.Context, q wire.EventQuery, rd api.Read, send func([]byte) error) error {
	v := &viewer{space: rd.Space, topics: map[string]bool{}, watched: map[job.ID]uint64{},
		frames: make(chan []byte, viewerRoom), bye: make(chan string, 1)}
	if err := b.subscribe(v, q); err != nil {
		return err
	}
	defer b.viewers.remove(v)
	var out bytes.Buffer
	index := b.indexFor(v)
	event(&out, "hello", index, wire.HelloEvent{Node: b.o.NodeID, Applied: index, Version: b.o.Version,
		Topics: q.Topics})
	if err := send(out.Bytes()); err != nil {
		return err
	}
	quiet := time.NewTimer(quietLimit)
	defer quiet.Stop()
	for {
		frame := []byte(": \n\n")
		select {
		case frame = <-v.frames:
		case <-quiet.C:
		case why := <-v.bye:
			return sendBye(send, b.indexFor(v), why)
		case <-ctx.Done():
			if api.Revoked(ctx) != nil {
				return sendBye(send, b.indexFor(v), "token_revoked")
			}
			return ctx.Err()
		}
		if err := send(frame); err != nil {
			return err
		}
		quiet.Reset(quietLimit)
	}
}

func sendBye(send func([]byte) error, index uint64, why string) error {
	var out bytes.Buffer
	event(&out, "bye", index, wire.ByeEvent{Reason: why})
	return send(out.Bytes())
}

// indexFor is how far the node is. What it does for one namespace alone moves it too, so that one who may see only
// some of them is not told.
func (b *Service) indexFor(v *viewer) uint64 { return v.number(b.o.Source.Store.Counters().Index) }

func (v *viewer) number(index uint64) uint64 {
	if !v.space.All {
		return 0
	}
	return index
}

// event appends an event of a stream; without a number if that is 0.
func event(out *bytes.Buffer, name string, index uint64, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		return // these types have nothing that could not be written
	}
	out.WriteString("event: " + name)
	if index != 0 {
		out.WriteString("\nid: " + strconv.FormatUint(index, 10))
	}
	out.WriteString("\ndata: ")
	out.Write(text)
	out.WriteString("\n\n")
}

// subscribe checks what a viewer asks for, and adds it to those that are fed.
func (b *Service) subscribe(v *viewer, q wire.EventQuery) error {
	for _, topic := range q.Topics {
		ref, isJob := strings.CutPrefix(topic, wire.TopicJob)
		if !isJob {
			v.topics[topic] = true
			continue
		}
		if err := b.view(func(r *view.Reader) error {
			id, err := r.Find(ref, v.space)
			if err == nil {
				v.watched[id] = lookOf(r, id)
			}
			return err
		}); err != nil {
			return err
		}
		if len(v.watched) > maxWatched {
			return job.Invalid("topics", "watch fewer of them, or the topic runs",
				"a stream can watch at most %d jobs", maxWatched)
		}
	}
	v.seen = b.o.Source.Store.Activity(v.space.Name())
	return b.viewers.add(v)
}

func (w *viewers) add(v *viewer) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ended:
		return job.Errorf(job.CodeUnavailable, "ask another node", "the node is stopping")
	case len(w.all) >= maxViewers:
		return job.Errorf(job.CodeUnavailable, "ask another node, or try again later",
			"the node already serves %d event streams", maxViewers)
	}
	if w.all == nil {
		w.all = map[*viewer]struct{}{}
	}
	w.all[v] = struct{}{}
	wait.Wake(w.came)
	return nil
}

func (w *viewers) remove(v *viewer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, v)
}

// current are those to be fed now.
func (w *viewers) current() []*viewer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) == 0 {
		return nil
	}
	return slices.Collect(maps.Keys(w.all))
}

// end tells all that it is over.
func (w *viewers) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	for v := range w.all {
		v.over("stopping")
	}
}

func (v *viewer) over(why string) {
	select {
	case v.bye <- why:
	default:
	}
}

// give hands a frame to a viewer. One that does not take it in time is cut off, never waited for.
func (v *viewer) give(frame []byte) {
	select {
	case v.frames <- frame:
	default:
		v.over("too_slow")
	}
}

// Follow counts how runs end and feeds the streams of events, until ctx ends.
func (b *Service) Follow(ctx context.Context) {
	defer b.viewers.end()
	for ctx.Err() == nil {
		b.tick(ctx)
		if b.viewers.current() == nil {
			wait.Within(ctx, b.viewers.came, b.o.Pace.Of(statsEvery*feedTick))
		} else {
			wait.For(ctx, b.o.Pace.Of(feedTick))
		}
	}
}

// tick is one turn. Four frames a second are the most that a viewer gets, whatever happens meanwhile.
func (b *Service) tick(ctx context.Context) {
	w := &b.viewers
	if b.o.Stopping() {
		w.end()
	}
	slow := w.ticks%statsEvery == 0
	w.ticks++
	all := w.current()
	if err := b.follow(ctx); err != nil {
		if ctx.Err() == nil {
			b.o.Logger.Warn("statistics stand still", "error", err)
		}
		return
	}
	if len(all) == 0 {
		return
	}
	common := b.commonFrames(ctx, all, slow)
	counters := b.o.Source.Store.Counters()
	anyRan := counters.HistSeq != w.seen.HistSeq || counters.Fence != w.seen.Fence
	anyDied := counters.Dead != w.seen.Dead
	w.seen = counters
	looks := b.looks(all)
	for _, v := range all {
		var out bytes.Buffer
		index, ran, died := v.number(counters.Index), anyRan, anyDied
		if space := v.space.Name(); space != job.AllNamespaces {
			a := b.o.Source.Store.Activity(space)
			ran, died, v.seen = a.Runs != v.seen.Runs, a.Dead != v.seen.Dead, a
		}
		if v.topics[wire.TopicStats] {
			out.Write(common.stats[v.space])
		}
		if v.topics[wire.TopicCluster] {
			out.Write(common.cluster)
		}
		if ran && v.topics[wire.TopicRuns] {
			event(&out, wire.TopicRuns, index, struct{}{})
		}
		if died && v.topics[wire.TopicDead] {
			event(&out, wire.TopicDead, index, struct{}{})
		}
		for id, old := range v.watched {
			if look := looks[id]; look != old {
				v.watched[id] = look
				event(&out, "job", index, wire.JobEvent{ID: id})
			}
		}
		if out.Len() > 0 {
			v.give(out.Bytes())
		}
	}
}

// commonFrames are what viewers have in common, each made once.
type commonFrames struct {
	stats   map[api.Space][]byte
	cluster []byte
}

func (b *Service) commonFrames(ctx context.Context, all []*viewer, slow bool) (c commonFrames) {
	if !slow {
		return c
	}
	index := b.o.Source.Store.Counters().Index
	st, err := b.o.Status(ctx, api.Read{Stale: true})
	if err != nil {
		return c
	}
	c.stats = map[api.Space][]byte{}
	for _, v := range all {
		if v.topics[wire.TopicCluster] && c.cluster == nil {
			var out bytes.Buffer
			event(&out, wire.TopicCluster, index, b.clusterEvent(&st))
			c.cluster = out.Bytes()
		}
		if !v.topics[wire.TopicStats] || c.stats[v.space] != nil {
			continue
		}
		var out bytes.Buffer
		event(&out, wire.TopicStats, v.number(index), b.statsEvent(v.space.Name(), &st))
		c.stats[v.space] = out.Bytes()
	}
	return c
}

// statsEvent is about the second before this one: what has just begun is not yet counted.
func (b *Service) statsEvent(space string, st *wire.Status) wire.StatsEvent {
	now := b.now()
	begin := now - now%1000 - 1000
	e := wire.StatsEvent{At: job.Instant(begin), Namespace: space}
	e.Second, e.LagP50, e.LagP99 = b.feed.rings.Second(space, begin)
	if space != job.AllNamespaces {
		return e
	}
	running := b.o.Source.Store.InHandCount()
	e.Running, e.Backlog, e.Dead, e.Jobs = &running, &st.Backlog, &st.DeadLetters, &st.Jobs
	if b.o.Source.Leads() != nil {
		slots := 0
		for i := range st.Workers {
			slots += st.Workers[i].Slots
		}
		e.Slots = &slots
	}
	return e
}

func (b *Service) clusterEvent(st *wire.Status) wire.ClusterEvent {
	e := wire.ClusterEvent{Leader: st.Leader, Term: st.Term, Ready: st.Ready, NotReady: st.NotReady,
		StaleMS: b.o.StaleFor().Milliseconds(), Troubles: len(st.Troubles),
		Members: []wire.MemberEvent{}}
	for i := range st.Members {
		m := &st.Members[i]
		x := wire.MemberEvent{ID: m.ID, Address: m.Address, Role: m.Suffrage}
		if m.Leader {
			x.Role = "leader"
		}
		switch {
		case m.ID == b.o.NodeID, m.Leader && e.StaleMS < heardLately:
			alive := true
			x.Alive = &alive
		case m.State != "":
			alive := m.State != "unreachable"
			x.Alive = &alive
		}
		e.Members = append(e.Members, x)
	}
	return e
}

// looks are those of all jobs that are watched.
func (b *Service) looks(all []*viewer) map[job.ID]uint64 {
	out := map[job.ID]uint64{}
	for _, v := range all {
		for id := range v.watched {
			out[id] = 0
		}
	}
	if len(out) == 0 {
		return out
	}
	if err := b.view(func(r *view.Reader) error {
		for id := range out {
			out[id] = lookOf(r, id)
		}
		return nil
	}); err != nil {
		return map[job.ID]uint64{}
	}
	return out
}

// lookOf is a number that differs when something about a job did: a change, a claim, an end, a run that waits.
func lookOf(r *view.Reader, id job.ID) uint64 {
	st, p, ok, err := r.State(id)
	if err != nil || !ok {
		return 1
	}
	h := uint64(14695981039346656037)
	mix := func(n uint64) { h = (h ^ n) * 1099511628211 }
	for _, n := range []uint64{uint64(st.Gen), st.HistHead, uint64(st.Active), uint64(st.Waiting), uint64(st.Dead),
		uint64(st.Runs), uint64(st.ByHand), uint64(p.At), uint64(p.Ready), uint64(st.NotRun.Count)} {
		mix(n)
	}
	for i, ref := range r.Open(id) {
		if i == openSeen {
			break
		}
		mix(uint64(ref.At))
		mix(uint64(ref.Status))
	}
	return h
}
