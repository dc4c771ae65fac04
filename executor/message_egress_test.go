//go:build linux

package executor

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/proof/port"
)

func newMessageWith(t *testing.T, p *egress.Policy, brokers ...string) *Message {
	t.Helper()
	b, err := ParseBrokers(brokers)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewMessage(MessageOptions{Brokers: b, Egress: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// TestMessageDenied: a broker that a job names by its URL is judged, one that the operator named is not.
func TestMessageDenied(t *testing.T) {
	t.Parallel()
	k, n := startKafka(t, "orders"), startNATS(t)
	var d dials
	m := newMessageWith(t, d.policy(t, egress.Options{}), "events="+k.url(), "orders="+n.url())
	toKafka, toNATS := job.MessagePayload{Topic: "orders"}, job.MessagePayload{Subject: "orders"}
	for broker, p := range map[string]job.MessagePayload{k.url(): toKafka, n.url(): toNATS,
		"nats://169.254.169.254:4222": toNATS, "kafka://169.254.169.254:9092": toKafka,
		"nats+tls://[::1]:4222,127.0.0.1:4222": toNATS, "kafka+tls://[fe80::1]:9092,127.0.0.1:9092": toKafka} {
		p.Broker = broker
		wantDenied(t, m.Run(within(t, time.Minute), messageJob(t, 1, p)), "rule ")
	}
	if len(d.addrs) != 0 {
		t.Errorf("dialled %v", d.addrs)
	}
	for broker, p := range map[string]job.MessagePayload{"events": toKafka, "orders": toNATS} {
		p.Broker = broker
		if r := m.Run(within(t, time.Minute), messageJob(t, 1, p)); r.Outcome != job.OutcomeSucceeded {
			t.Errorf("%s: %+v", broker, r)
		}
	}
	if out := d.elsewhere(); len(out) != 0 {
		t.Errorf("dialled %v", out)
	}
}

// TestMessageSomeDenied: of several hosts one is allowed and down. That may change, so the failure is not permanent.
func TestMessageSomeDenied(t *testing.T) {
	t.Parallel()
	down := port.Reserve(t)
	var d dials
	m := newMessageWith(t, d.policy(t, egress.Options{Loopback: true}))
	for broker, p := range map[string]job.MessagePayload{
		"nats://169.254.169.254:4222," + down: {Subject: "s"}, "nats://" + down + ",169.254.169.254:4222": {Subject: "s"},
		"kafka://169.254.169.254:9092," + down: {Topic: "t"}, "kafka://" + down + ",169.254.169.254:9092": {Topic: "t"},
	} {
		p.Broker = broker
		r := m.Run(within(t, time.Minute), messageJob(t, 1, p))
		if r.Permanent || r.EgressDenied || r.Outcome != job.OutcomeFailed {
			t.Errorf("%s: %+v", broker, r)
		}
	}
	if out := d.elsewhere(); len(out) != 0 {
		t.Errorf("dialled %v", out)
	}
}

// TestMessageKafkaAnnounced: a cluster says where its brokers are, and what it says is judged, too: also of a cluster
// that the operator named, whose own hosts are not.
func TestMessageKafkaAnnounced(t *testing.T) {
	t.Parallel()
	k := startKafka(t, "orders")
	k.c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.c.KeepControl()
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		broker := kmsg.NewMetadataResponseBroker()
		broker.NodeID, broker.Host, broker.Port = 0, "169.254.169.254", 9092
		topic := kmsg.NewMetadataResponseTopic()
		name := "orders"
		topic.Topic = &name
		topic.TopicID = k.c.TopicInfo(name).TopicID
		partition := kmsg.NewMetadataResponseTopicPartition()
		partition.Leader, partition.Replicas, partition.ISR = 0, []int32{0}, []int32{0}
		topic.Partitions = append(topic.Partitions, partition)
		resp.Brokers, resp.Topics = append(resp.Brokers, broker), append(resp.Topics, topic)
		return resp, nil, true
	})
	for _, broker := range []string{k.url(), "events"} {
		var d dials
		m := newMessageWith(t, d.policy(t, egress.Options{Loopback: true}), "events="+k.url())
		r := m.Run(within(t, time.Minute), messageJob(t, 1, job.MessagePayload{Broker: broker, Topic: "orders"}))
		wantDenied(t, r, "refers to a broker that jobs may not connect to", "169.254.169.254:9092", "rule 169.254.169.254/32")
		if out := d.elsewhere(); len(out) != 0 || d.count() == 0 {
			t.Errorf("dialled %v of %d", out, d.count())
		}
	}
}

// TestMessageNATSAnnounced: a server names others of its cluster. They are not connected to, not even after the
// connection broke.
func TestMessageNATSAnnounced(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				fmt.Fprint(conn, `INFO {"server_id":"x","version":"2.10.0","proto":1,"headers":true,"max_payload":1048576,`+
					`"connect_urls":["169.254.169.254:4222","metadata.example.com:4222"]}`+"\r\n")
				for in := bufio.NewScanner(conn); in.Scan(); {
					switch {
					case strings.HasPrefix(in.Text(), "PING"):
						fmt.Fprint(conn, "PONG\r\n")
					case strings.HasPrefix(in.Text(), "HPUB"):
						return // breaks with every message
					}
				}
			}()
		}
	}()
	var d dials
	m := newMessageWith(t, d.policy(t, egress.Options{Loopback: true}))
	p := job.MessagePayload{Broker: "nats://" + l.Addr().String(), Subject: "orders"}
	// an attempt that meets the broken connection, before the client has noticed, makes no new one
	eventually(t, "three connections", func() bool {
		wantFailure(t, m.Run(within(t, time.Minute), messageJob(t, 1, p)), false, "broke")
		return d.count() >= 3
	})
	if out := d.elsewhere(); len(out) != 0 {
		t.Errorf("dialled %v", out)
	}
}
