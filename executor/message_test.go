//go:build linux

package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/port"
)

// messageJob is the attempt of a message job: run n of job 42.
func messageJob(t *testing.T, n int, p job.MessagePayload) job.Assignment {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2027, 3, 1, 9, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Second)
	return job.Assignment{Run: job.RunKey{Job: 42, At: at.UnixMilli(), Origin: job.OriginSchedule}, JobName: "orders", Attempt: 1,
		Fence: uint64(77 + n), Key: "key-" + strconv.Itoa(n), Type: job.TypeMessage, Payload: b,
		Traceparent: "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"}
}

// runHeadersOf are the headers that the target of run n must get.
func runHeadersOf(a job.Assignment) map[string]string {
	return map[string]string{"Idempotency-Key": a.Key, "Carillon-Job": a.Run.Job.String(), "Carillon-Run": a.Run.String(),
		"Carillon-Scheduled-At": job.Instant(a.Run.At).String(), "Carillon-Attempt": "1",
		"Carillon-Fence": strconv.FormatUint(a.Fence, 10), "traceparent": a.Traceparent}
}

func newTestMessage(t *testing.T, brokers ...string) *Message {
	t.Helper()
	b, err := ParseBrokers(brokers)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMessage(MessageOptions{Version: "test", Brokers: b, Egress: onLoopback})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func wantFailure(t *testing.T, r job.Result, permanent bool, words ...string) {
	t.Helper()
	if r.Outcome != job.OutcomeFailed || r.Permanent != permanent {
		t.Errorf("outcome %d, permanent %v: %s", r.Outcome, r.Permanent, r.Error)
	}
	for _, w := range words {
		if !strings.Contains(r.Error, w) {
			t.Errorf("the error does not say %q: %s", w, r.Error)
		}
	}
}

// runAll has n runs done by several workers, each repeated as the scheduler would until it succeeds, and returns how many attempts
// each took. Whenever a tenth is done, it calls trouble.
func runAll(t *testing.T, m *Message, n int, p job.MessagePayload, trouble func()) []int {
	t.Helper()
	attempts := make([]int, n)
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				for a := messageJob(t, i, p); ; a.Attempt++ {
					attempts[i]++
					ctx, stop := context.WithTimeout(t.Context(), time.Minute)
					r := m.Run(ctx, a)
					stop()
					if r.Outcome == job.OutcomeSucceeded {
						break
					}
					if r.Permanent || attempts[i] > 2000 {
						t.Errorf("run %d, attempt %d: %s (permanent %v)", i, attempts[i], r.Error, r.Permanent)
						break
					}
					time.Sleep(5 * time.Millisecond)
				}
				done.Add(1)
			}
		})
	}
	for k := 1; k < 10; k++ {
		for done.Load() < int64(k*n/10) && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		trouble()
	}
	wg.Wait()
	return attempts
}

// wantOnceEach holds that every run arrived under its key, and no more often than it was tried.
func wantOnceEach(t *testing.T, got map[string]int, attempts []int) {
	t.Helper()
	again, more := 0, 0
	for i, tries := range attempts {
		n := got["key-"+strconv.Itoa(i)]
		if n == 0 || n > tries {
			t.Errorf("run %d was tried %d times and arrived %d times", i, tries, n)
		}
		if tries > 1 {
			again++
		}
		more += n - 1
	}
	if len(got) != len(attempts) {
		t.Errorf("%d keys arrived, want %d", len(got), len(attempts))
	}
	t.Logf("%d of %d runs were tried more than once, %d messages arrived again", again, len(attempts), more)
}

// valve lets traffic through, or holds it without a word.
type valve struct {
	mu   sync.Mutex
	held chan struct{} // nil or closed: it flows
}

func (v *valve) hold() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held = make(chan struct{})
}

func (v *valve) flow() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.held != nil {
		close(v.held)
		v.held = nil
	}
}

func (v *valve) pass() {
	v.mu.Lock()
	held := v.held
	v.mu.Unlock()
	if held != nil {
		<-held
	}
}

// listen is net.Listen with the valve before what is read.
func (v *valve) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	return valveListener{l, v}, err
}

type valveListener struct {
	net.Listener
	v *valve
}

func (l valveListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return valveConn{c, l.v}, err
}

type valveConn struct {
	net.Conn
	v *valve
}

func (c valveConn) Read(p []byte) (int, error) {
	c.v.pass()
	n, err := c.Conn.Read(p)
	c.v.pass()
	return n, err
}

// gate is a TCP proxy whose connections can be cut and held.
type gate struct {
	valve
	l      net.Listener
	target string

	connsMu sync.Mutex
	conns   []net.Conn
	wg      sync.WaitGroup
}

func newGate(t *testing.T, target string) *gate {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{l: l, target: target}
	g.wg.Go(g.serve)
	t.Cleanup(func() { l.Close(); g.cut(); g.flow(); g.wg.Wait() })
	return g
}

func (g *gate) addr() string { return g.l.Addr().String() }

func (g *gate) serve() {
	for {
		in, err := g.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", g.target)
		if err != nil {
			in.Close()
			continue
		}
		g.connsMu.Lock()
		g.conns = append(g.conns, in, out)
		g.connsMu.Unlock()
		for _, c := range [][2]net.Conn{{in, out}, {out, in}} {
			g.wg.Go(func() {
				io.Copy(c[0], valveConn{c[1], &g.valve})
				c[0].Close()
				c[1].Close()
			})
		}
	}
}

func (g *gate) cut() {
	g.connsMu.Lock()
	defer g.connsMu.Unlock()
	for _, c := range g.conns {
		c.Close()
	}
	g.conns = nil
}

func TestMessageRefuses(t *testing.T) {
	m := newTestMessage(t, "orders=nats://127.0.0.1:1")
	ctx := within(t, time.Minute)
	a := messageJob(t, 1, job.MessagePayload{Broker: "events", Subject: "s"})
	wantFailure(t, m.Run(ctx, a), false, `does not know the broker "events"`, "--broker events=URL")
	a.Payload = []byte(`{"broker":"nats://h:port","subject":"s"}`)
	wantFailure(t, m.Run(ctx, a), true, "payload: broker")
	a.Payload = []byte(`{"broker":"orders","subject":"s","datum":1}`)
	wantFailure(t, m.Run(ctx, a), true, "payload")
	m.Close()
	wantFailure(t, m.Run(ctx, messageJob(t, 1, job.MessagePayload{Broker: "orders", Subject: "s"})), false, "closed")
}

// A broker that is down, or that takes connections and says nothing, fails the attempt in its time and disturbs no other.
func TestMessageBrokerDown(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits in real time")
	}
	t.Parallel()
	down := port.Reserve(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	nats, kafka := startNATS(t), startKafka(t, "t")
	m := newTestMessage(t)
	targets := func(addr string) map[string]job.MessagePayload {
		return map[string]job.MessagePayload{
			"core":      {Broker: "nats://" + addr, Subject: "s"},
			"jetstream": {Broker: "nats://" + addr, Subject: "s", JetStream: true},
			"kafka":     {Broker: "kafka://" + addr, Topic: "t"},
		}
	}
	for name, p := range targets(down) {
		wantFailure(t, m.Run(within(t, time.Minute), messageJob(t, 1, p)), false, "cannot connect to "+p.Broker, "refused")
		_ = name
	}
	hung := within(t, time.Second)
	var wg sync.WaitGroup
	defer wg.Wait()
	for name, p := range targets(silent.Addr().String()) {
		for range 20 {
			wg.Go(func() {
				r := m.Run(hung, messageJob(t, 1, p))
				if r.Outcome != job.OutcomeFailed || r.Permanent || !strings.Contains(r.Error, "cannot connect to "+p.Broker) {
					t.Errorf("%s: %+v", name, r)
				}
			})
		}
	}
	for i := range 20 {
		for _, p := range []job.MessagePayload{{Broker: nats.url(), Subject: "s"}, {Broker: kafka.url(), Topic: "t"}} {
			if r := m.Run(within(t, time.Minute), messageJob(t, i, p)); r.Outcome != job.OutcomeSucceeded {
				t.Errorf("%s: %s", p.Broker, r.Error)
			}
		}
	}
}

// A broker that hangs in the middle of it all holds nothing longer than the attempt's timeout, not even the runner's end.
func TestMessageBrokerHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits in real time")
	}
	t.Parallel()
	var valve valve // a Kafka cluster says where it is, so it cannot stand behind a gate
	kafka := startKafka(t, "t", kfake.ListenFn(valve.listen))
	g := newGate(t, startNATS(t).addr())
	for name, c := range map[string]struct {
		addr       string
		hold, flow func()
	}{"nats": {g.addr(), g.hold, func() { g.cut(); g.flow() }}, "kafka": {kafka.addr(), valve.hold, valve.flow}} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(c.flow)
			m := newTestMessage(t)
			p := job.MessagePayload{Broker: name + "://" + c.addr, Data: json.RawMessage(`"` + strings.Repeat("x", 60<<10) + `"`)}
			if name == "nats" {
				p.Subject = "s"
			} else {
				p.Topic = "t"
			}
			if r := m.Run(within(t, time.Minute), messageJob(t, 0, p)); r.Outcome != job.OutcomeSucceeded {
				t.Fatal(r.Error)
			}
			c.hold()
			ctx := within(t, time.Second)
			var wg sync.WaitGroup
			for i := range 200 {
				wg.Go(func() {
					r := m.Run(ctx, messageJob(t, i, p))
					if r.Outcome != job.OutcomeFailed || r.Permanent {
						t.Errorf("%+v", r)
					}
				})
			}
			wg.Wait()
			c.flow()
			eventually(t, "it is back", func() bool {
				return m.Run(within(t, time.Minute), messageJob(t, 0, p)).Outcome == job.OutcomeSucceeded
			})
		})
	}
}

func TestParseBrokers(t *testing.T) {
	b, err := ParseBrokers([]string{"a=nats://u:p%40s@h1,h2:5000", "b=kafka+tls://[::1]:1?sasl=scram-sha-256"})
	if err != nil {
		t.Fatal(err)
	}
	if got := b["a"].String() + " " + b["b"].String(); got != "nats://h1:4222,h2:5000 kafka+tls://[::1]:1" {
		t.Error(got)
	}
	if pw, _ := b["a"].User.Password(); pw != "p@s" || !b["b"].TLS {
		t.Errorf("%q %+v", pw, b)
	}
	for _, bad := range [][]string{{"nats://h"}, {"a b=nats://h"}, {"a=nats://h", "a=nats://h"}, {"a=http://h"}, {"a=nats://"}, {"a=nats://h:0"}, {"a=nats://h:x"},
		{"a=nats://h,"}, {"a=nats://h/path"}, {"a=nats://h?sasl=plain"}, {"a=kafka://h?ca=a&ca=b"}, {"a=kafka://h?%zz"}, {"a=nats://%zz@h"}} {
		if _, err := ParseBrokers(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		} else if strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
	}
	// What can never work is found when the node starts, and the secret is in no error.
	for _, bad := range []string{"a=kafka://u:secret@h?sasl=digest", "a=kafka://h?sasl=plain", "a=kafka+tls://h?ca=/does/not/exist", "a=nats://h?nkey=/does/not/exist", "a=nats://h?cert=/does/not/exist"} {
		brokers, err := ParseBrokers([]string{bad})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewMessage(MessageOptions{Brokers: brokers}); err == nil || !strings.Contains(err.Error(), "broker a: option") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Connections that are not used are closed, and there is an end to how many there are.
func TestMessageConnectionsAreBounded(t *testing.T) {
	m := newTestMessage(t)
	for i := range maxBrokers {
		b, err := m.take(fmt.Sprintf("nats://127.0.0.1:%d", i+1), "")
		if err != nil {
			t.Fatal(err)
		}
		m.release(b)
	}
	if _, err := m.take("nats://127.0.0.1:9999", ""); err == nil {
		t.Error("one more was taken")
	}
	m.mu.Lock()
	for _, b := range m.brokers {
		b.used = time.Now().Add(-2 * brokerIdle)
	}
	m.swept = time.Time{}
	m.mu.Unlock()
	if _, err := m.take("nats://127.0.0.1:9999", ""); err != nil {
		t.Error(err)
	}
	if left := slices.Collect(maps.Keys(m.brokers)); len(left) != 1 {
		t.Errorf("%d connections are left", len(left))
	}
}

// A broker that the operator named, with its password, is for jobs of the namespaces that were named with it.
func TestBrokersOfNamespaces(t *testing.T) {
	brokers, err := ParseBrokers([]string{"orders=nats://a:1", "team-a,team-b/orders=nats://b:2", "*/all=nats://c:3", "team-b/all=nats://d:4"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMessage(MessageOptions{Brokers: brokers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	for _, c := range []struct{ namespace, name, host string }{
		{"", "orders", "a:1"}, {"default", "orders", "a:1"}, {"team-a", "orders", "b:2"}, {"team-b", "orders", "b:2"},
		{"team-c", "orders", ""}, {"", "all", "c:3"}, {"team-a", "all", "c:3"}, {"team-b", "all", "d:4"}, {"", "team-a/orders", ""},
		{"team-c", "team-a/orders", ""},
	} {
		addr, _, ok := job.Given(brokers, c.namespace, c.name)
		if ok != (c.host != "") || ok && addr.Hosts[0] != c.host {
			t.Errorf("%s in %q: %v, %v", c.name, c.namespace, addr, ok)
		}
		b, err := m.take(c.name, c.namespace)
		if (err == nil) != ok {
			t.Errorf("%s in %q: %v", c.name, c.namespace, err)
		}
		if err == nil {
			m.release(b)
		}
	}
	if len(m.brokers) != 5 { // one for each line and namespace, and no more
		t.Errorf("%d connections", len(m.brokers))
	}
	r := m.Run(t.Context(), job.Assignment{Namespace: "team-c", Payload: []byte(`{"broker":"orders","subject":"x"}`)})
	if r.Outcome != job.OutcomeFailed || r.Permanent || !strings.Contains(r.Error, `"orders" for namespace team-c`) || !strings.Contains(r.Error, "--broker team-c/orders=URL") {
		t.Errorf("%+v", r)
	}
	for _, bad := range []string{"team a/orders=nats://a:1", "/orders=nats://a:1", "team-a/=nats://a:1", "team-a,/orders=nats://a:1"} {
		if _, err := ParseBrokers([]string{bad}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	if _, err := ParseBrokers([]string{"orders=nats://a:1", "default,team-a/orders=nats://b:2"}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Error(err)
	}
}
