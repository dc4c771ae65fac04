//go:build linux

package executor

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/port"
)

// kafkaTest is a Kafka broker in this process, with its topics on disk.
type kafkaTest struct {
	t       *testing.T
	options []kfake.Opt
	c       *kfake.Cluster
}

func startKafka(t *testing.T, topic string, more ...kfake.Opt) *kafkaTest {
	t.Helper()
	addr, err := net.ResolveTCPAddr("tcp", port.Reserve(t))
	if err != nil {
		t.Fatal(err)
	}
	k := &kafkaTest{t: t}
	k.options = append([]kfake.Opt{kfake.NumBrokers(1), kfake.Ports(addr.Port), kfake.DataDir(t.TempDir()),
		kfake.SeedTopics(3, topic)}, more...)
	k.start()
	t.Cleanup(k.stop)
	return k
}

func (k *kafkaTest) start() {
	k.t.Helper()
	c, err := kfake.NewCluster(k.options...)
	if err != nil {
		k.t.Fatal(err)
	}
	k.c = c
}

// acks counts what produce requests ask for from now on. A broker that is watched like this must not be restarted: kfake saves and
// closes while it waits for a control function, then handles that request after all, and appends a batch to the files that its
// successor has read already. The successor takes the repetition for a new batch, or finds its newest records in the wrong place.
func (k *kafkaTest) acks() func() map[int16]int {
	var mu sync.Mutex
	seen := map[int16]int{}
	k.c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		seen[r.(*kmsg.ProduceRequest).Acks]++
		return nil, nil, false
	})
	return func() map[int16]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(seen)
	}
}

func (k *kafkaTest) stop()        { k.c.Close() }
func (k *kafkaTest) addr() string { return k.c.ListenAddrs()[0] }
func (k *kafkaTest) url() string  { return "kafka://" + k.addr() }

// records are all records of a topic so far.
func (k *kafkaTest) records(topic string, want int) (out []*kgo.Record) {
	k.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.addr()), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		k.t.Fatal(err)
	}
	defer cl.Close()
	ctx := within(k.t, time.Minute)
	end := 0
	for _, p := range k.c.PartitionInfos(topic) {
		end += int(p.HighWatermark)
	}
	for len(out) < max(want, end) {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			k.t.Fatalf("%d records of %d: %v", len(out), max(want, end), err)
		}
		out = append(out, f.Records()...)
	}
	return out
}

func TestMessageKafka(t *testing.T) {
	t.Parallel()
	k := startKafka(t, "orders")
	acks := k.acks()
	m := newTestMessage(t, "events="+k.url())
	p := job.MessagePayload{Broker: "events", Topic: "orders", Key: "customer-7", Headers: map[string]string{"X-Team": "billing"}, Data: json.RawMessage(`{"n": 1}`)}
	a := messageJob(t, 1, p)
	r := m.Run(within(t, time.Minute), a)
	if r.Outcome != job.OutcomeSucceeded || !strings.HasPrefix(r.Output, "partition ") || !strings.HasSuffix(r.Output, ", offset 0") {
		t.Fatalf("%+v", r)
	}
	rec := k.records("orders", 1)[0]
	got := map[string]string{}
	for _, h := range rec.Headers {
		got[h.Key] = string(h.Value)
	}
	want := runHeadersOf(a)
	want["X-Team"] = "billing"
	if string(rec.Key) != "customer-7" || string(rec.Value) != `{"n":1}` || !maps.Equal(got, want) {
		t.Errorf("key %q, value %q, headers %v, want %v", rec.Key, rec.Value, got, want)
	}
	if acks := acks(); rec.ProducerID < 0 || acks[-1] == 0 || len(acks) != 1 {
		t.Errorf("producer id %d, acks %v: not an idempotent producer that waits for all replicas", rec.ProducerID, acks)
	}
	p.Key, p.Data = "", nil
	if r := m.Run(within(t, time.Minute), messageJob(t, 2, p)); r.Outcome != job.OutcomeSucceeded {
		t.Fatal(r.Error)
	}
	for _, rec := range k.records("orders", 2) {
		if len(rec.Value) == 0 && rec.Key != nil {
			t.Errorf("a record without a key has %q", rec.Key)
		}
	}
}

// incompressible is a JSON string of n bytes.
func incompressible(n int) json.RawMessage {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{})
	for i := range b {
		b[i] = 'A' + byte(r.Uint64()%26)
	}
	return json.RawMessage(`"` + string(b) + `"`)
}

func TestMessageKafkaRefused(t *testing.T) {
	t.Parallel()
	k := startKafka(t, "orders", kfake.BrokerConfigs(map[string]string{"message.max.bytes": "2048"}))
	m := newTestMessage(t)
	run := func(p job.MessagePayload) job.Result { return m.Run(within(t, time.Minute), messageJob(t, 1, p)) }
	wantFailure(t, run(job.MessagePayload{Broker: k.url(), Topic: "nowhere"}), false, "has no topic", `"nowhere"`)
	wantFailure(t, run(job.MessagePayload{Broker: k.url(), Topic: "orders", Data: incompressible(8192)}), true, "8192 bytes", "more than")
	// A topic that comes later is found.
	if err := k.c.CreateTopic("nowhere", 1, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new topic", func() bool {
		return run(job.MessagePayload{Broker: k.url(), Topic: "nowhere"}).Outcome == job.OutcomeSucceeded
	})
}

func TestMessageKafkaSASL(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		k := startKafka(t, "orders", kfake.EnableSASL(), kfake.Superuser(method, "u", "p@ss"))
		m := newTestMessage(t, "good=kafka://u:p%40ss@"+k.addr()+"?sasl="+strings.ToLower(method), "bad=kafka://u:wrong@"+k.addr()+"?sasl="+strings.ToLower(method))
		if r := m.Run(within(t, time.Minute), messageJob(t, 1, job.MessagePayload{Broker: "good", Topic: "orders"})); r.Outcome != job.OutcomeSucceeded {
			t.Errorf("%s: %s", method, r.Error)
		}
		r := m.Run(within(t, time.Minute), messageJob(t, 1, job.MessagePayload{Broker: "bad", Topic: "orders"}))
		wantFailure(t, r, false, "cannot connect")
		if strings.Contains(r.Error, "wrong@") {
			t.Error(r.Error)
		}
	}
}

// A broker that has the message and cannot say so is asked again by the client, and drops the repetition: one attempt, one message.
func TestMessageKafkaIdempotent(t *testing.T) {
	t.Parallel()
	k := startKafka(t, "orders")
	m := newTestMessage(t)
	p := job.MessagePayload{Broker: k.url(), Topic: "orders"}
	if r := m.Run(within(t, time.Minute), messageJob(t, 0, p)); r.Outcome != job.OutcomeSucceeded {
		t.Fatal(r.Error)
	}
	h := k.c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 2})
	if r := m.Run(within(t, time.Minute), messageJob(t, 1, p)); r.Outcome != job.OutcomeSucceeded {
		t.Fatal(r.Error)
	}
	if h.Hits() != 2 {
		t.Errorf("%d requests were answered with a timeout", h.Hits())
	}
	if got := len(k.records("orders", 2)); got != 2 {
		t.Errorf("two runs made %d messages", got)
	}
}

// The broker dies and comes back nine times during a thousand runs: every one of them is in the topic, and as often as it was tried at
// most, because the client is an idempotent producer.
func TestMessageKafkaRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits in real time")
	}
	t.Parallel()
	k := startKafka(t, "orders")
	attempts := runAll(t, newTestMessage(t), 1000, job.MessagePayload{Broker: k.url(), Topic: "orders"}, func() { k.stop(); k.start() })
	got := map[string]int{}
	for _, r := range k.records("orders", 1000) {
		for _, h := range r.Headers {
			if h.Key == "Idempotency-Key" {
				got[string(h.Value)]++
			}
		}
	}
	wantOnceEach(t, got, attempts)
}
