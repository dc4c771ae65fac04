package router

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// Events joins the streams of the groups: each is asked for what it knows, the control group about the cluster. When
// one of them ends so does the whole, and the client begins again.
func (b *backend) Events(ctx context.Context, q wire.EventQuery, _ api.Read, send func([]byte) error) error {
	topics, err := b.topics(ctx, q)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	j := &joined{send: send, q: q, stats: map[uint32]*wire.StatsEvent{}}
	for g, list := range topics {
		if slices.Contains(list, wire.TopicStats) {
			j.counting = append(j.counting, g)
		}
	}
	errs := make([]error, 0, len(topics))
	var all sync.WaitGroup
	for g, list := range topics {
		all.Go(func() {
			defer cancel() // the others end with it
			err := b.rt.events(ctx, g, list, func(frame []byte) error { return j.take(g, frame) })
			j.mu.Lock()
			defer j.mu.Unlock()
			errs = append(errs, err)
		})
	}
	all.Wait()
	if api.Revoked(ctx) != nil && j.sent {
		return nil // a group has said so
	}
	return errs[0]
}

// topics says which group is asked for what.
func (b *backend) topics(ctx context.Context, q wire.EventQuery) (map[uint32][]string, error) {
	out := map[uint32][]string{}
	for _, topic := range q.Topics {
		ref, isJob := strings.CutPrefix(topic, wire.TopicJob)
		groups := b.rt.o.Groups()
		switch {
		case isJob:
			id, err := job.ParseID(ref)
			if err != nil {
				if id, err = b.find(ctx, ref); err != nil {
					return nil, err
				}
			}
			if groups = []uint32{uint32(id.Group())}; !b.rt.has(groups[0]) {
				groups = []uint32{control}
			}
			topic = wire.TopicJob + id.String()
		case topic == wire.TopicCluster:
			groups = []uint32{control}
		}
		for _, g := range groups {
			out[g] = append(out[g], topic)
		}
	}
	return out, nil
}

// events is the stream of one group.
func (rt *Router) events(ctx context.Context, group uint32, topics []string, each func([]byte) error) error {
	s := stateOf(ctx)
	q := s.query()
	q.Set("topics", strings.Join(topics, ","))
	a := answer{sep: []byte("\n\n"), each: each}
	return rt.ask(group, request(ctx, s.r, http.MethodGet, s.r.URL.EscapedPath(), q, nil), &a)
}

// joined is the stream that the others make.
type joined struct {
	q        wire.EventQuery
	counting []uint32 // groups that send statistics

	mu    sync.Mutex
	send  func([]byte) error
	sent  bool
	stats map[uint32]*wire.StatsEvent // of one second
}

// take passes an event of a group on. There is one greeting, and one event about each second.
func (j *joined) take(group uint32, frame []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	name, data := split(frame)
	switch name {
	case "hello":
		var h wire.HelloEvent
		if j.sent || json.Unmarshal(data, &h) != nil {
			return nil
		}
		h.Topics = j.q.Topics
		return j.pass(joinFrame(name, h))
	case wire.TopicStats:
		return j.count(group, data)
	}
	return j.pass(frame)
}

func (j *joined) pass(frame []byte) error {
	j.sent = true
	return j.send(frame)
}

// count waits until all groups have told of a second, or one of them of the next.
func (j *joined) count(group uint32, data []byte) error {
	e := new(wire.StatsEvent)
	if err := json.Unmarshal(data, e); err != nil {
		return err
	}
	for _, have := range j.stats {
		if have.At > e.At {
			return nil // that second was told
		}
		if have.At < e.At {
			if err := j.tell(); err != nil {
				return err
			}
		}
		break
	}
	if j.stats[group] = e; len(j.stats) < len(j.counting) {
		return nil
	}
	return j.tell()
}

// tell sends the sum of what the groups told. Half of the runs of a union are not later than the latest of its parts'
// medians, so the highest of the bounds is one for all.
func (j *joined) tell() error {
	var sum *wire.StatsEvent
	for _, g := range j.counting {
		e := j.stats[g]
		switch {
		case e == nil:
		case sum == nil:
			sum = e
		default:
			addCounts(&sum.Second, &e.Second)
			sum.Running, sum.Slots = plus(sum.Running, e.Running), highest(sum.Slots, e.Slots)
			sum.Backlog, sum.Dead = plus(sum.Backlog, e.Backlog), plus(sum.Dead, e.Dead)
			sum.Jobs = plus(sum.Jobs, e.Jobs)
			sum.LagP50, sum.LagP99 = highest(sum.LagP50, e.LagP50), highest(sum.LagP99, e.LagP99)
		}
	}
	clear(j.stats)
	if sum == nil {
		return nil
	}
	return j.pass(joinFrame(wire.TopicStats, sum))
}

// plus is the sum of what is known.
func plus[T int | int64 | uint64](a, b *T) *T {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	n := *a + *b
	return &n
}

// highest is the higher one of what is known.
func highest[T int | int64](a, b *T) *T {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// split is the name and the data of an event.
func split(frame []byte) (name string, data []byte) {
	for line := range bytes.Lines(frame) {
		line = bytes.TrimSuffix(line, []byte{'\n'})
		if rest, ok := bytes.CutPrefix(line, []byte("event: ")); ok {
			name = string(rest)
		}
		if rest, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			data = rest
		}
	}
	return name, data
}

// joinFrame is an event that several made: no log entry is its number.
func joinFrame(name string, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return nil // these types have nothing that could not be written
	}
	return []byte("event: " + name + "\ndata: " + string(text) + "\n\n")
}
