package executor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	// sendWait is how long an attempt waits for a broker, if its own timeout is not shorter: one that is down is a
	// failure to retry, and not a reason to hold a slot for the five minutes that a job may take.
	sendWait = 15 * time.Second
	// brokerDial is how long one connection may take to come about.
	brokerDial = 5 * time.Second
	// maxSending bounds the messages on their way to one broker. More attempts wait, each as long as its timeout
	// allows.
	maxSending = 1024
	// A connection that was not used for a while is closed. There are at most maxBrokers, because a job may name any
	// address.
	brokerIdle = 5 * time.Minute
	maxBrokers = 256
)

// MessageOptions describe a Message runner; the zero value works.
type MessageOptions struct {
	Version string
	// Brokers are the brokers that jobs call by a name, with their secrets: see ParseBrokers.
	Brokers map[string]job.Broker
	// Egress says what may be connected to; nil: egress.Default. The hosts of Brokers are the operator's, and exempt.
	Egress *egress.Policy
}

// ParseBrokers reads the brokers of a worker, each NAME=URL, or NAMESPACES/NAME=URL for other namespaces than the usual
// one. The keys are those of job.Given.
func ParseBrokers(list []string) (map[string]job.Broker, error) {
	out := map[string]job.Broker{}
	for _, s := range list {
		ref, u, ok := strings.Cut(s, "=")
		keys, name, err := job.GivenKeys(ref)
		if ok && err != nil {
			return nil, fmt.Errorf("broker %s: %w; write NAMESPACE/NAME=URL, several with commas, or */NAME=URL for "+
				"all", name, err)
		}
		if !ok || !job.IsBrokerName(name) {
			return nil, fmt.Errorf("a broker is given as NAME=URL, such as orders=nats://host:4222; the name has " +
				"letters, digits, dots, dashes and underscores")
		}
		b, err := job.ParseBroker(u)
		if err != nil {
			return nil, fmt.Errorf("broker %s: %w", name, err)
		}
		for _, key := range keys {
			if _, twice := out[key]; twice {
				return nil, fmt.Errorf("the broker %s is given twice", key)
			}
			out[key] = b
		}
	}
	return out, nil
}

// Message runs message jobs: it publishes one message, and succeeds when the broker has it. Attempts share one
// connection per broker, which is made when it is needed and again after it broke.
type Message struct {
	o MessageOptions

	mu      sync.Mutex
	brokers map[string]*sharedBroker // by the key of a name (job.Given), or by the URL that jobs use
	swept   time.Time
	closed  bool
}

// broker is a connection to one broker, or the way to get one. publish returns soon after ctx ends, whatever the broker
// does, and says in words what became of the message.
type broker interface {
	publish(ctx context.Context, m outgoing) (receipt string, err error)
	close()
}

type sharedBroker struct {
	broker
	users int
	used  time.Time
}

// outgoing is a message on its way.
type outgoing struct {
	job.MessagePayload
	id      string // the idempotency key
	headers [][2]string
	body    []byte
}

// hopeless is the error of a message that no attempt will get through.
type hopeless struct{ error }

func (h hopeless) Unwrap() error { return h.error }

// NewMessage makes a Message runner. It does not connect yet, but refuses brokers that it could not connect to whatever
// they said.
func NewMessage(o MessageOptions) (*Message, error) {
	m := &Message{o: o, brokers: map[string]*sharedBroker{}}
	for name, b := range o.Brokers {
		made, err := m.connector(b, true)
		if err != nil {
			return nil, fmt.Errorf("broker %s: %w", name, err)
		}
		made.close()
	}
	return m, nil
}

// connector makes the way to a broker. The hosts of a named one may be anywhere; what it announces besides is judged.
func (m *Message) connector(b job.Broker, named bool) (broker, error) {
	var trusted []string
	if named {
		trusted = b.Hosts
	}
	dialer := cmp.Or(m.o.Egress, egress.Default).Dialer(brokerDial, trusted...)
	name := "carillon"
	if m.o.Version != "" {
		name += "/" + m.o.Version
	}
	if b.Kind == job.BrokerKafka {
		return newKafka(b, dialer, m.o.Version)
	}
	return newNATS(b, dialer, name)
}

// Close closes the connections. No attempt may be running.
func (m *Message) Close() {
	m.mu.Lock()
	all := m.brokers
	m.brokers, m.closed = map[string]*sharedBroker{}, true
	m.mu.Unlock()
	for _, b := range all {
		b.close()
	}
}

// Run publishes the message.
func (m *Message) Run(ctx context.Context, a job.Assignment) job.Result {
	var p job.MessagePayload
	if err := job.DecodeStrict(a.Payload, &p); err != nil {
		return permanent("payload: %v", err)
	}
	body, _, err := requestBody(p.Data)
	if err != nil {
		return permanent("payload: data: %v", err)
	}
	b, err := m.take(p.Broker, a.Namespace)
	if err != nil {
		return failed(err)
	}
	defer m.release(b)
	out := outgoing{MessagePayload: p, id: a.Key, body: body, headers: runHeaders(a)}
	for _, k := range sortedKeys(p.Headers) {
		out.headers = append(out.headers, [2]string{k, p.Headers[k]})
	}
	send, stop := context.WithTimeout(ctx, sendWait)
	defer stop()
	receipt, err := b.publish(send, out)
	if err != nil {
		return failed(err)
	}
	return job.Result{Outcome: job.OutcomeSucceeded, Output: receipt}
}

func failed(err error) job.Result {
	var h hopeless
	r := job.Result{Outcome: job.OutcomeFailed, Error: err.Error(), Permanent: errors.As(err, &h)}
	if isDenied(err) {
		r.Permanent, r.EgressDenied = true, true
	}
	return r
}

func isDenied(err error) bool { return errors.As(err, new(*egress.Denied)) }

// doubtful is the error of dials of which some were denied: another address is allowed, and may answer the next
// attempt.
func doubtful(err error) error { return fmt.Errorf("%v; another address did not answer", err) }

// take finds the connection to a broker, by the name that this worker was given for it for the namespace of the job, or
// by its URL.
func (m *Message) take(ref, namespace string) (*sharedBroker, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, errors.New("the runner is closed")
	}
	m.sweepLocked()
	addr, key, named := job.Given(m.o.Brokers, namespace, ref)
	if !named && !strings.Contains(ref, "://") {
		// Another worker may know it, and this one may after its next start: not hopeless.
		return nil, fmt.Errorf("this worker does not know the broker %q for namespace %s: start it with "+
			"--broker %s=URL, or let the job select workers that know it", ref,
			cmp.Or(namespace, job.DefaultNamespace), job.GivenKey(namespace, ref))
	}
	b := m.brokers[key]
	if b == nil {
		if !named {
			var err error
			if addr, err = job.ParseBroker(ref); err != nil {
				return nil, hopeless{fmt.Errorf("payload: broker: %w", err)}
			}
			addr.User, addr.Options = nil, nil // refused when the job was submitted
		}
		if len(m.brokers) >= maxBrokers {
			return nil, fmt.Errorf("this worker has connections to %d brokers, and opens no more until some are idle",
				len(m.brokers))
		}
		made, err := m.connector(addr, named)
		if err != nil {
			return nil, err
		}
		b = &sharedBroker{broker: made}
		m.brokers[key] = b
	}
	b.users++
	return b, nil
}

func (m *Message) release(b *sharedBroker) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.users--
	b.used = time.Now()
}

// sweepLocked closes what is idle, and looks for it now and then only.
func (m *Message) sweepLocked() {
	now := time.Now()
	if now.Sub(m.swept) < brokerIdle/10 {
		return
	}
	m.swept = now
	for ref, b := range m.brokers {
		if b.users == 0 && now.Sub(b.used) > brokerIdle {
			delete(m.brokers, ref)
			go b.close() // it may wait for a broker that hangs
		}
	}
}

// tlsConfig is how to speak TLS with a broker; nil: not at all, unless the broker wants to.
func tlsConfig(b job.Broker) (*tls.Config, error) {
	ca, cert, key := b.Options["ca"], b.Options["cert"], b.Options["key"]
	if !b.TLS && ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("option ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("option ca: %s has no certificate in PEM form", ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("options cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
