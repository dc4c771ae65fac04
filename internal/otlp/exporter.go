package otlp

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-scheduler/carillon/internal/event"
	"github.com/carillon-scheduler/carillon/internal/wait"
)

const (
	maxBytes   = 16 << 20 // of what waits, whatever the number of spans
	maxPause   = 30 * time.Second
	maxAfter   = 5 * time.Minute // that a receiver may ask to be left alone for
	maxAnswer  = 64 << 10
	flushLimit = 3 * time.Second
)

// Reason is why spans were dropped.
type Reason string

// The reasons.
const (
	QueueFull   Reason = "queue_full"  // the receiver takes them too slowly, or not at all
	Unavailable Reason = "unavailable" // it could not be reached, or was in trouble, for too long
	Refused     Reason = "refused"     // it said that it does not want them
	Stopped     Reason = "stopped"     // the node ended before they could be sent
)

// Reasons are all of them.
func Reasons() []Reason { return []Reason{QueueFull, Unavailable, Refused, Stopped} }

// Exporter sends spans in the background. Adding one never blocks: what the receiver does not take in time is dropped
// and counted.
type Exporter struct {
	cfg    Config
	log    *slog.Logger
	client *http.Client

	mu     sync.Mutex
	queue  [][]byte // encoded spans
	bytes  int
	closed bool

	wake    chan struct{}
	closing chan struct{}
	done    chan struct{}
	ctx     context.Context // ends what is being sent when the time for that is over
	cancel  context.CancelFunc

	failing  atomic.Bool // the last batch was not taken; run's goroutine sets it
	exported atomic.Int64
	dropped  map[Reason]*atomic.Int64
}

// New begins to export. resource is added to that of the configuration.
func New(cfg Config, log *slog.Logger, resource ...Attr) *Exporter {
	cfg.Resource = append(append([]Attr(nil), cfg.Resource...), resource...)
	cfg.Queue, cfg.Batch = cmp.Or(cfg.Queue, 8192), cmp.Or(cfg.Batch, 512)
	cfg.Delay, cfg.Retry = cmp.Or(cfg.Delay, time.Second), cmp.Or(cfg.Retry, time.Second)
	cfg.GiveUp, cfg.Timeout = cmp.Or(cfg.GiveUp, time.Minute), cmp.Or(cfg.Timeout, 10*time.Second)
	e := &Exporter{cfg: cfg, log: log, wake: make(chan struct{}, 1), closing: make(chan struct{}),
		done: make(chan struct{}), dropped: map[Reason]*atomic.Int64{}}
	for _, r := range Reasons() {
		e.dropped[r] = new(atomic.Int64)
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.client = &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: cfg.TLS, ForceAttemptHTTP2: true,
			MaxIdleConns: 2, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: cfg.Timeout},
		Timeout: cfg.Timeout,
		// A receiver that has moved is one to be told of: what is sent has a token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	go e.run()
	return e
}

// Add puts spans in line.
func (e *Exporter) Add(spans ...Span) {
	if len(spans) == 0 {
		return
	}
	encoded := make([][]byte, len(spans))
	for i := range spans {
		encoded[i] = spans[i].encode()
	}
	e.mu.Lock()
	for i, b := range encoded {
		if e.closed {
			e.drop(Stopped, len(encoded)-i)
			break
		}
		if len(e.queue) >= e.cfg.Queue || e.bytes+len(b) > maxBytes {
			e.drop(QueueFull, len(encoded)-i)
			break
		}
		e.queue = append(e.queue, b)
		e.bytes += len(b)
	}
	e.mu.Unlock()
	wait.Wake(e.wake)
}

// Crowded says that many spans wait for a receiver that takes them. Who could come back with more later should.
func (e *Exporter) Crowded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.queue) > e.cfg.Queue/2 && !e.failing.Load()
}

// Exported is how many spans the receiver has taken.
func (e *Exporter) Exported() int64 { return e.exported.Load() }

// Dropped is how many spans it has not, by reason.
func (e *Exporter) Dropped(r Reason) int64 { return e.dropped[r].Load() }

func (e *Exporter) drop(r Reason, n int) { e.dropped[r].Add(int64(n)) }

// Close sends what is in line, for some seconds at most, or not at all, and ends.
func (e *Exporter) Close(atOnce bool) {
	if atOnce {
		e.cancel()
	}
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		close(e.closing)
	}
	e.mu.Unlock()
	t := time.AfterFunc(flushLimit, e.cancel)
	defer t.Stop()
	<-e.done
	e.cancel()
	e.client.CloseIdleConnections()
}

func (e *Exporter) run() {
	defer close(e.done)
	for {
		select {
		case <-e.wake:
		case <-e.closing:
		}
		for {
			batch := e.take()
			if len(batch) == 0 {
				break
			}
			e.deliver(batch)
		}
		if wait.Closed(e.closing) {
			return
		}
	}
}

// take waits for a batch to fill, for a while, and takes it out of the line. It is empty if there is nothing.
func (e *Exporter) take() [][]byte {
	timer := time.NewTimer(e.cfg.Delay)
	defer timer.Stop()
	for waiting := true; waiting; {
		e.mu.Lock()
		n := len(e.queue)
		e.mu.Unlock()
		if n == 0 || n >= e.cfg.Batch {
			break
		}
		select {
		case <-e.wake:
		case <-timer.C:
			waiting = false
		case <-e.closing:
			waiting = false
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(len(e.queue), e.cfg.Batch)
	batch := append([][]byte(nil), e.queue[:n]...)
	rest := copy(e.queue, e.queue[n:])
	clear(e.queue[rest:])
	e.queue = e.queue[:rest]
	for _, b := range batch {
		e.bytes -= len(b)
	}
	return batch
}

// deliver sends a batch until it is taken, refused, or it has been tried for long enough.
func (e *Exporter) deliver(batch [][]byte) {
	body, err := e.body(batch)
	if err != nil { // it cannot be compressed: there is nothing that trying again would change
		e.drop(Refused, len(batch))
		return
	}
	began, pause := time.Now(), e.cfg.Retry
	for {
		a := e.post(body)
		if a.err == nil {
			n := min(int(a.rejected), len(batch))
			e.exported.Add(int64(len(batch) - n))
			e.drop(Refused, n)
			e.say(a.why)
			return
		}
		reason := Refused
		if a.again {
			reason = Unavailable
		}
		e.say(a.err.Error())
		switch {
		case e.ctx.Err() != nil || a.again && wait.Closed(e.closing):
			reason = Stopped
			fallthrough
		case !a.again || time.Since(began)+pause > e.cfg.GiveUp:
			e.drop(reason, len(batch))
			return
		}
		// Jitter: the nodes of a cluster are not to come back all at once.
		e.sleep(max(a.after, pause/2+rand.N(pause)))
		pause = min(2*pause, maxPause)
	}
}

// sleep waits, and not for long once the exporter ends.
func (e *Exporter) sleep(d time.Duration) {
	t := time.NewTimer(min(d, maxAfter))
	defer t.Stop()
	select {
	case <-t.C:
	case <-e.closing:
	}
}

// say logs when spans begin to get lost, and when they no longer do: a receiver that is down is one line.
func (e *Exporter) say(why string) {
	switch failing := why != ""; {
	case e.ctx.Err() != nil: // it ends, and that is why
	case failing && !e.failing.Load():
		e.log.Warn("spans not exported", event.SpansNotExported, "error", why, "remedy",
			"check the receiver; scheduling does not wait for it, and carillon_spans_dropped_total counts what is lost")
		e.failing.Store(true)
	case !failing && e.failing.Load():
		e.log.Info("spans exported again", event.SpansExported)
		e.failing.Store(false)
	}
}

func (e *Exporter) body(batch [][]byte) ([]byte, error) {
	b := request(e.cfg.Resource, batch)
	if e.cfg.Plain {
		return b, nil
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(b)
	err = cmp.Or(err, z.Close())
	return packed.Bytes(), err
}

// answer is what became of a request.
type answer struct {
	err      error
	again    bool          // it may be taken later
	after    time.Duration // not before then
	rejected int64         // spans of a batch that was taken otherwise
	why      string
}

func (e *Exporter) post(body []byte) answer {
	req, err := http.NewRequestWithContext(e.ctx, http.MethodPost, e.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	for k, v := range e.cfg.Headers {
		req.Header[k] = v
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "carillon")
	if !e.cfg.Plain {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := e.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the address, which may have a password in it
		}
		return answer{err: err, again: true}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode/100 == 2 && err == nil:
		a := answer{}
		if a.rejected, a.why = rejected(text); a.rejected == 0 {
			a.why = "" // a warning about what was taken
		} else {
			a.why = cmp.Or(a.why, fmt.Sprintf("the receiver rejected %d spans", a.rejected))
		}
		return a
	case resp.StatusCode/100 == 2:
		return answer{err: err, again: true}
	}
	return answer{err: fmt.Errorf("the receiver answered %s", resp.Status), after: retryAfter(resp.Header),
		again: resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500}
}

// retryAfter is how long the receiver asks to be left alone.
func retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if s, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(t))
	}
	return 0
}
