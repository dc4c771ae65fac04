package node

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/port"
)

// A message job through a real node: a name for the broker, retries while it is down, one message per run under the
// run's key.
func TestMessageJobs(t *testing.T) {
	t.Parallel()
	addr, err := net.ResolveTCPAddr("tcp", port.Reserve(t)) // a port that is not served yet
	if err != nil {
		t.Fatal(err)
	}
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	n := start(t, t.TempDir(), func(c *Config) {
		c.Executors = []job.Type{job.TypeMessage}
		orders, err := job.ParseBroker("nats://" + addr.String())
		if err != nil {
			t.Fatal(err)
		}
		c.Brokers = map[string]job.Broker{"orders": orders}
	})
	retries := 1000
	create := func(name string, p job.MessagePayload) {
		t.Helper()
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		spec := job.Spec{Name: name, Type: job.TypeMessage, Schedule: "@manual", Overlap: job.OverlapAllow,
			Payload: raw}
		spec.Retry = job.Retry{MaxRetries: &retries, Backoff: job.BackoffImmediate,
			Base: job.Duration(10 * time.Millisecond), Cap: job.Duration(50 * time.Millisecond)}
		if a := n.call("POST", "/api/v1/jobs", spec); a.status != 201 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	create("nats", job.MessagePayload{Broker: "orders", Subject: "orders.new", Data: json.RawMessage(`{"n":1}`)})
	create("kafka", job.MessagePayload{Broker: "kafka://" + kafka.ListenAddrs()[0], Topic: "orders",
		Data: json.RawMessage(`"hello"`)})
	run := func(name string) job.Run {
		t.Helper()
		var r job.Run
		a := n.call("POST", "/api/v1/jobs/"+name+":run", nil)
		if err := json.Unmarshal(a.body, &r); err != nil || r.RunID == "" {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return r
	}
	get := func(id string) (d wire.RunDetail) {
		t.Helper()
		if err := json.Unmarshal(n.call("GET", "/api/v1/runs/"+id, nil).body, &d); err != nil {
			t.Fatal(err)
		}
		return d
	}

	first := run("nats")
	n.eventually("an attempt fails while the broker is down", func() bool {
		d := get(first.RunID)
		return len(d.Attempts) > 0 && strings.Contains(d.Attempts[0].Error, "cannot connect to nats://"+addr.String())
	})
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: addr.Port, NoLog: true, NoSigs: true,
		DontListen: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	// The subscriber is there before the port is.
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	var mu sync.Mutex
	got := map[string]string{}
	if _, err := nc.Subscribe("orders.>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		got[m.Header.Get("Carillon-Run")] = m.Header.Get("Idempotency-Key") + " " + string(m.Data)
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	serveInProcess(t, s, addr.String())
	defer n.stop() // its connections end with it
	second := run("kafka")
	for _, r := range []job.Run{first, second} {
		n.eventually("the run of "+r.JobName, func() bool { return get(r.RunID).Status == job.RunSucceeded })
	}
	if d := get(first.RunID); d.Output != "published to orders.new" || d.Attempt < 2 {
		t.Errorf("%+v", d.Run)
	}
	n.eventually("it arrives", func() bool { mu.Lock(); defer mu.Unlock(); return len(got) == 1 })
	if want := first.Key + ` {"n":1}`; got[first.RunID] != want {
		t.Errorf("arrived: %v, want %s", got, want)
	}

	cl, err := kgo.NewClient(kgo.SeedBrokers(kafka.ListenAddrs()...), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, stop := context.WithTimeout(t.Context(), 15*time.Second)
	defer stop()
	f := cl.PollFetches(ctx)
	if f.NumRecords() != 1 {
		t.Fatalf("%d records: %v", f.NumRecords(), f.Err())
	}
	for _, rec := range f.Records() {
		if string(rec.Value) != "hello" || string(rec.Headers[0].Value) != second.Key {
			t.Errorf("%s %v", rec.Value, rec.Headers)
		}
	}
}

// serveInProcess makes a server that does not listen reachable at an address.
func serveInProcess(t *testing.T, s *server.Server, addr string) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := s.InProcessConn()
			if err != nil {
				in.Close()
				continue
			}
			for _, c := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					buf := make([]byte, 4096)
					for {
						k, err := c[0].Read(buf)
						if _, werr := c[1].Write(buf[:k]); err != nil || werr != nil {
							break
						}
					}
					c[0].Close()
					c[1].Close()
				})
			}
		}
	})
}
