package executor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/job"
)

// kafkaTrust is how long after its last sign of life a cluster is sent messages without asking first whether it is
// there. The client itself would keep a message for a cluster that is down, and not say why.
const kafkaTrust = 2 * time.Second

// kafkaDenied is how long a message waits for the other brokers of a cluster of which one may not be connected to.
const kafkaDenied = 2 * time.Second

// kafkaBroker is a Kafka cluster. The client is an idempotent producer that waits for all replicas in sync: what it
// repeats by itself arrives once. What an attempt gives up it gives up, too, so that nothing arrives long after the
// attempt was reported as failed; only what is on the wire at that moment may.
type kafkaBroker struct {
	addr   job.Broker
	dialer *egress.Dialer
	tls    *tls.Config // nil: none
	client *kgo.Client
	heard  atomic.Int64 // when the cluster last took a message; nanoseconds

	allowed atomic.Int64 // dials of addresses that are allowed
	mu      sync.Mutex
	waiting map[*kafkaAttempt]bool
}

// kafkaAttempt is a message that waits for the cluster.
type kafkaAttempt struct {
	giveUp context.CancelCauseFunc
	timer  *time.Timer // nil: no address was denied
}

func newKafka(addr job.Broker, dialer *egress.Dialer, version string) (*kafkaBroker, error) {
	b := &kafkaBroker{addr: addr, dialer: dialer, waiting: map[*kafkaAttempt]bool{}}
	options := []kgo.Opt{kgo.SeedBrokers(addr.Hosts...), kgo.ClientID("carillon"), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.Dialer(b.dial), kgo.BrokerMaxReadBytes(kafkaAnswer), kgo.FetchMaxBytes(kafkaAnswer),
		kgo.AllowIdempotentProduceCancellation(), kgo.MaxBufferedRecords(4 * maxSending), kgo.ProducerLinger(0),
		kgo.ProduceRequestTimeout(sendWait),
		kgo.RequestTimeoutOverhead(brokerDial), kgo.UnknownTopicRetries(2), kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.RetryTimeout(sendWait)}
	if version != "" {
		options = append(options, kgo.SoftwareNameAndVersion("carillon", version))
	}
	var err error
	if b.tls, err = tlsConfig(addr); err != nil {
		return nil, err
	}
	mechanism, err := kafkaSASL(addr)
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	if b.client, err = kgo.NewClient(options...); err != nil {
		return nil, err
	}
	return b, nil
}

// dial connects to a broker of the cluster: one that the job or the operator named, or one that the cluster announced.
func (b *kafkaBroker) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, stop := context.WithTimeout(ctx, brokerDial)
	defer stop()
	conn, err := b.dialer.DialContext(ctx, network, addr)
	if isDenied(err) {
		b.denied(err)
		return nil, err
	}
	b.allowed.Add(1)
	if err != nil || b.tls == nil {
		return conn, err
	}
	c := b.tls.Clone()
	if c.ServerName, _, err = net.SplitHostPort(addr); err == nil {
		t := tls.Client(conn, c)
		if err = t.HandshakeContext(ctx); err == nil {
			return t, nil
		}
	}
	conn.Close()
	return nil, err
}

// denied ends the wait of the messages that no other broker of the cluster takes. The client does not say which one a
// message is for, and would go on trying.
func (b *kafkaBroker) denied(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for a := range b.waiting {
		if a.timer == nil {
			a.timer = time.AfterFunc(kafkaDenied, func() { a.giveUp(err) })
		}
	}
}

// attempt is the context of a message that waits, until done is called.
func (b *kafkaBroker) attempt(ctx context.Context) (_ context.Context, done func()) {
	ctx, giveUp := context.WithCancelCause(ctx)
	a := &kafkaAttempt{giveUp: giveUp}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting[a] = true
	return ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if delete(b.waiting, a); a.timer != nil {
			a.timer.Stop()
		}
		giveUp(nil)
	}
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
	ctx, done := b.attempt(ctx)
	defer done()
	if time.Since(time.Unix(0, b.heard.Load())) > kafkaTrust {
		allowed := b.allowed.Load()
		if err := b.client.Ping(ctx); err != nil {
			if b.allowed.Load() != allowed && isDenied(err) {
				err = doubtful(err)
			}
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
		if cause := context.Cause(ctx); isDenied(cause) {
			return "", fmt.Errorf("%s did not accept the message, and refers to a broker that jobs may not connect "+
				"to: %w",
				b.addr, cause)
		}
		return "", b.explain(m, a.err)
	}
	b.heard.Store(time.Now().UnixNano())
	return fmt.Sprintf("partition %d, offset %d", a.record.Partition, a.record.Offset), nil
}

// explain says what an error of the client means for the message.
func (b *kafkaBroker) explain(m outgoing, err error) error {
	switch {
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return hopeless{fmt.Errorf("the message has %d bytes, more than %s accepts", len(m.body), b.addr)}
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return fmt.Errorf("%s has no topic %q, or does not know it yet", b.addr, m.Topic)
	case errors.Is(err, kerr.InvalidTopicException):
		return hopeless{fmt.Errorf("%q is not a valid Kafka topic", m.Topic)}
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return hopeless{fmt.Errorf("%s does not let this worker write to the topic %q", b.addr, m.Topic)}
	case errors.Is(err, kgo.ErrMaxBuffered):
		return fmt.Errorf("%s has not accepted %d earlier messages yet", b.addr, 4*maxSending)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%s did not confirm the message in time: it may have been published", b.addr)
	}
	return fmt.Errorf("%s: %w", b.addr, err)
}
