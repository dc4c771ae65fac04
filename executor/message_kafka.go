package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/carillon-scheduler/carillon/job"
)

// kafkaTrust is how long after its last sign of life a cluster is sent messages without asking first whether it is there. The client
// itself would keep a message for a cluster that is down, and not say why.
const kafkaTrust = 2 * time.Second

// kafkaBroker is a Kafka cluster. The client is an idempotent producer that waits for all replicas in sync: what it repeats by itself
// arrives once. What an attempt gives up it gives up, too, so that nothing arrives long after the attempt was reported as failed;
// only what is on the wire at that moment may.
type kafkaBroker struct {
	addr   job.Broker
	client *kgo.Client
	heard  atomic.Int64 // when the cluster last took a message; nanoseconds
}

func newKafka(addr job.Broker, version string) (*kafkaBroker, error) {
	options := []kgo.Opt{kgo.SeedBrokers(addr.Hosts...), kgo.ClientID("carillon"), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.DialTimeout(brokerDial),
		kgo.AllowIdempotentProduceCancellation(), kgo.MaxBufferedRecords(4 * maxSending), kgo.ProducerLinger(0), kgo.ProduceRequestTimeout(sendWait),
		kgo.RequestTimeoutOverhead(brokerDial), kgo.UnknownTopicRetries(2), kgo.MetadataMinAge(250 * time.Millisecond), kgo.RetryTimeout(sendWait)}
	if version != "" {
		options = append(options, kgo.SoftwareNameAndVersion("carillon", version))
	}
	c, err := tlsConfig(addr)
	if err != nil {
		return nil, err
	}
	if c != nil {
		options = append(options, kgo.DialTLSConfig(c))
	}
	mechanism, err := kafkaSASL(addr)
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	return &kafkaBroker{addr: addr, client: client}, nil
}

func kafkaSASL(addr job.Broker) (sasl.Mechanism, error) {
	kind := strings.ToLower(addr.Options["sasl"])
	if addr.User == nil {
		if kind != "" {
			return nil, errors.New("option sasl: it needs a user and a password in the URL")
		}
		return nil, nil
	}
	user := addr.User.Username()
	password, _ := addr.User.Password()
	switch kind {
	case "", "plain":
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	case "scram-sha-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism(), nil
	case "scram-sha-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism(), nil
	}
	return nil, errors.New("option sasl: use plain, scram-sha-256 or scram-sha-512")
}

func (b *kafkaBroker) close() { b.client.Close() }

// publish produces one record and waits until all replicas in sync have it.
func (b *kafkaBroker) publish(ctx context.Context, m outgoing) (string, error) {
	if time.Since(time.Unix(0, b.heard.Load())) > kafkaTrust {
		if err := b.client.Ping(ctx); err != nil {
			return "", fmt.Errorf("cannot connect to %s: %w", b.addr, err)
		}
		b.heard.Store(time.Now().UnixNano())
	}
	record := &kgo.Record{Topic: m.Topic, Value: m.body}
	if m.Key != "" {
		record.Key = []byte(m.Key)
	}
	for _, h := range m.headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
	}
	type answer struct {
		record *kgo.Record
		err    error
	}
	answered := make(chan answer, 1)
	b.client.TryProduce(ctx, record, func(r *kgo.Record, err error) { answered <- answer{r, err} })
	var a answer
	select {
	case a = <-answered:
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	if a.err != nil {
		b.heard.Store(0)
		return "", b.explain(m, a.err)
	}
	b.heard.Store(time.Now().UnixNano())
	return fmt.Sprintf("partition %d, offset %d", a.record.Partition, a.record.Offset), nil
}

// explain says what an error of the client means for the message.
func (b *kafkaBroker) explain(m outgoing, err error) error {
	switch {
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return hopeless{fmt.Errorf("the message has %d bytes, which is more than %s takes", len(m.body), b.addr)}
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("%s has no topic %q, or has not heard of it yet", b.addr, m.Topic)
	case errors.Is(err, kerr.InvalidTopicException):
		return hopeless{fmt.Errorf("%q is not a topic of Kafka", m.Topic)}
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return hopeless{fmt.Errorf("%s does not let this worker write to the topic %q", b.addr, m.Topic)}
	case errors.Is(err, kgo.ErrMaxBuffered):
		return fmt.Errorf("%s has %d messages to take, and has not taken them yet", b.addr, 4*maxSending)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%s did not confirm the message in time: it may have been published", b.addr)
	}
	return fmt.Errorf("%s: %w", b.addr, err)
}
