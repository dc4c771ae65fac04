package meters

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-scheduler/carillon/api"
)

// limited counts what is refused because it is too much, and says so in the log: for each reason at most once a
// minute, because a flood must not fill the log as well.
type limited struct {
	log     *slog.Logger
	counter *prometheus.CounterVec
	of      map[api.Refusal]*limit
}

type limit struct {
	count prometheus.Counter
	said  atomic.Int64
}

func newLimited(log *slog.Logger, counter *prometheus.CounterVec) *limited {
	r := &limited{log: log, counter: counter, of: map[api.Refusal]*limit{}}
	for _, reason := range api.Refusals {
		// From 0 on, so that it can be alerted on.
		r.of[reason] = &limit{count: counter.WithLabelValues(string(reason))}
	}
	return r
}

// Limited counts what was refused because it was too much, and whose it was.
func (m *Meters) Limited(reason api.Refusal, who string) {
	r := m.limited
	x := r.of[reason]
	x.count.Inc()
	now, last := time.Now().UnixNano(), x.said.Load()
	if now-last < int64(time.Minute) || !x.said.CompareAndSwap(last, now) {
		return
	}
	r.log.Warn("requests are limited", "reason", reason, "who", who)
}
