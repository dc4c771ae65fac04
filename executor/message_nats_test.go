//go:build linux

package executor

import (
	"encoding/json"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-scheduler/carillon/job"
)

// natsTest is a NATS server in this process, with streams on disk.
type natsTest struct {
	t       *testing.T
	options server.Options
	s       *server.Server
}

func startNATS(t *testing.T, change ...func(*server.Options)) *natsTest {
	t.Helper()
	n := &natsTest{t: t, options: server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir()}}
	for _, f := range change {
		f(&n.options)
	}
	n.start()
	t.Cleanup(n.stop)
	return n
}

func (n *natsTest) start() {
	n.t.Helper()
	o := n.options
	s, err := server.NewServer(&o)
	if err != nil {
		n.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		n.t.Fatal("the NATS server does not start")
	}
	n.s = s
	n.options.Port = s.Addr().(*net.TCPAddr).Port // the same after a restart
}

func (n *natsTest) stop() {
	n.s.Shutdown()
	n.s.WaitForShutdown()
}

func (n *natsTest) addr() string { return n.s.Addr().String() }
func (n *natsTest) url() string  { return "nats://" + n.addr() }

func (n *natsTest) connect(o ...nats.Option) *nats.Conn {
	n.t.Helper()
	nc, err := nats.Connect(n.url(), o...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(nc.Close)
	return nc
}

func (n *natsTest) stream(subject string) jetstream.Stream {
	n.t.Helper()
	js, err := jetstream.New(n.connect())
	if err != nil {
		n.t.Fatal(err)
	}
	st, err := js.CreateOrUpdateStream(within(n.t, time.Minute), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{subject}})
	if err != nil {
		n.t.Fatal(err)
	}
	return st
}

// messages are all messages of a stream, by their idempotency key.
func (n *natsTest) messages(st jetstream.Stream) (keys map[string]int, headers []nats.Header) {
	n.t.Helper()
	ctx := within(n.t, time.Minute)
	info, err := st.Info(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	keys = map[string]int{}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && seq > 0; seq++ {
		msg, err := st.GetMsg(ctx, seq)
		if err != nil {
			n.t.Fatal(err)
		}
		keys[msg.Header.Get("Idempotency-Key")]++
		headers = append(headers, msg.Header)
	}
	return keys, headers
}

func TestMessageNATS(t *testing.T) {
	t.Parallel()
	n := startNATS(t)
	nc := n.connect()
	sub, err := nc.SubscribeSync("orders.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	m := newTestMessage(t, "orders="+n.url())
	for i, c := range []struct{ data, want string }{{`"plain text"`, "plain text"}, {`{"a": [1, 2]}`, `{"a":[1,2]}`}, {``, ``}, {`null`, ``}} {
		p := job.MessagePayload{Broker: "orders", Subject: "orders.new", Headers: map[string]string{"X-Team": "billing", "Nats-Expected-Stream": "x"}, Data: json.RawMessage(c.data)}
		a := messageJob(t, i, p)
		if r := m.Run(within(t, time.Minute), a); r.Outcome != job.OutcomeSucceeded || r.Output != "published to orders.new" {
			t.Fatalf("%+v", r)
		}
		// The server had it when the attempt succeeded, so it is here in a moment.
		msg, err := sub.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for k := range msg.Header {
			got[k] = msg.Header.Get(k)
		}
		want := runHeadersOf(a)
		want["X-Team"], want["Nats-Expected-Stream"] = "billing", "x"
		if string(msg.Data) != c.want || !maps.Equal(got, want) {
			t.Errorf("data %q, headers %v\nwant %q, %v", msg.Data, got, c.want, want)
		}
	}
	if n := n.s.NumClients(); n != 2 {
		t.Errorf("%d connections: attempts share one", n)
	}
	m.Close()
	eventually(t, "the connection is closed", func() bool { return n.s.NumClients() == 1 })
}

func TestMessageJetStream(t *testing.T) {
	t.Parallel()
	n := startNATS(t)
	st := n.stream("orders.*")
	m := newTestMessage(t)
	p := job.MessagePayload{Broker: n.url(), Subject: "orders.new", JetStream: true, Data: json.RawMessage(`{"n":1}`)}
	a := messageJob(t, 1, p)
	if r := m.Run(within(t, time.Minute), a); r.Outcome != job.OutcomeSucceeded || r.Output != "stream ORDERS, sequence 1" {
		t.Fatalf("%+v", r)
	}
	// The same run again, by another worker: the stream drops it.
	if r := newTestMessage(t).Run(within(t, time.Minute), a); r.Outcome != job.OutcomeSucceeded || r.Output != "stream ORDERS, sequence 1, which it had already" {
		t.Fatalf("%+v", r)
	}
	keys, headers := n.messages(st)
	if len(keys) != 1 || keys["key-1"] != 1 {
		t.Errorf("stored: %v", keys)
	}
	want := runHeadersOf(a)
	want["Nats-Msg-Id"] = a.Key
	for k, v := range want {
		if headers[0].Get(k) != v {
			t.Errorf("%s is %q, want %q", k, headers[0].Get(k), v)
		}
	}
	p.Subject = "elsewhere"
	wantFailure(t, m.Run(within(t, time.Minute), messageJob(t, 2, p)), false, n.url()+" has no stream for", `"elsewhere"`)
}

func TestMessageNATSRefused(t *testing.T) {
	t.Parallel()
	n := startNATS(t, func(o *server.Options) {
		o.MaxPayload = 2048
		o.Users = []*server.User{{Username: "u", Password: "secret", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"allowed", "_INBOX.>", "$JS.API.>"}}}},
			{Username: "test", Password: "test"}}
	})
	m := newTestMessage(t, "b=nats://u:secret@"+n.addr(), "wrong=nats://u:other@"+n.addr())
	run := func(p job.MessagePayload) job.Result { return m.Run(within(t, time.Minute), messageJob(t, 1, p)) }
	wantFailure(t, run(job.MessagePayload{Broker: "b", Subject: "s", Data: json.RawMessage(`"` + strings.Repeat("x", 4096) + `"`)}), true, "4096 bytes", "2048")
	wantFailure(t, run(job.MessagePayload{Broker: "wrong", Subject: "allowed"}), false, "cannot connect", "uthorization")
	wantFailure(t, run(job.MessagePayload{Broker: n.url(), Subject: "allowed"}), false, "cannot connect", "uthorization")
	// A refusal is about one subject; attempts at another on the same connection, at the same time, are not touched by it.
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			wantFailure(t, run(job.MessagePayload{Broker: "b", Subject: "denied"}), true, "does not let this worker publish", `"denied"`)
		})
		wg.Go(func() {
			if r := run(job.MessagePayload{Broker: "b", Subject: "allowed"}); r.Outcome != job.OutcomeSucceeded {
				t.Error(r.Error)
			}
		})
	}
	wg.Wait()
	wantFailure(t, run(job.MessagePayload{Broker: "b", Subject: "denied.too", JetStream: true}), true, "does not let this worker publish")
}

// The client tells of a refusal on a goroutine of its own, which may get its turn late: the attempt waits for it, or a message that the
// server dropped would count as published.
func TestMessageNATSRefusedLate(t *testing.T) {
	t.Parallel()
	n := startNATS(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "u", Password: "secret", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"allowed"}}}}}
	})
	m := newTestMessage(t, "b=nats://u:secret@"+n.addr())
	run := func(subject string) job.Result {
		return m.Run(within(t, time.Minute), messageJob(t, 1, job.MessagePayload{Broker: "b", Subject: subject}))
	}
	if r := run("allowed"); r.Outcome != job.OutcomeSucceeded {
		t.Fatal(r.Error)
	}
	m.mu.Lock()
	b := m.brokers["b"].broker.(*natsBroker)
	m.mu.Unlock()
	c, err := b.connection(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		time.Sleep(200 * time.Millisecond) // its turn comes late
		c.deny(err)
	})
	var wg sync.WaitGroup
	for _, subject := range []string{"denied", "denied.too"} { // the client keeps the last error only
		wg.Go(func() {
			wantFailure(t, run(subject), true, "does not let this worker publish", `"`+subject+`"`)
		})
	}
	wg.Wait()
	if r := run("allowed"); r.Outcome != job.OutcomeSucceeded {
		t.Error(r.Error)
	}
}

// The server dies and comes back nine times during a thousand runs: the stream has every one of them, once.
func TestMessageJetStreamRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits in real time")
	}
	t.Parallel()
	n := startNATS(t)
	n.stream("orders.*")
	m := newTestMessage(t)
	attempts := runAll(t, m, 1000, job.MessagePayload{Broker: n.url(), Subject: "orders.new", JetStream: true}, func() { n.stop(); n.start() })
	keys, _ := n.messages(n.stream("orders.*"))
	wantOnceEach(t, keys, attempts)
	for k, c := range keys {
		if c != 1 {
			t.Errorf("%s was stored %d times", k, c)
		}
	}
}

// Core NATS has no memory, so here the connection breaks and the server and its subscriber stay: what an attempt said was published is
// there, whatever happened to the connection at that moment.
func TestMessageNATSDisconnects(t *testing.T) {
	t.Parallel()
	n := startNATS(t)
	g := newGate(t, n.addr())
	var mu sync.Mutex
	got := map[string]int{}
	nc := n.connect()
	if _, err := nc.Subscribe("orders.*", func(msg *nats.Msg) {
		mu.Lock()
		got[msg.Header.Get("Idempotency-Key")]++
		mu.Unlock()
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	attempts := runAll(t, newTestMessage(t), 1000, job.MessagePayload{Broker: "nats://" + g.addr(), Subject: "orders.new"}, g.cut)
	eventually(t, "all arrive", func() bool { mu.Lock(); defer mu.Unlock(); return len(got) >= 1000 })
	mu.Lock()
	defer mu.Unlock()
	wantOnceEach(t, got, attempts)
}
