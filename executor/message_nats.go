package executor

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	natsPing = 10 * time.Second
	// natsWrite bounds a write to a server that does not read: the client holds its lock meanwhile.
	natsWrite = 5 * time.Second
)

// natsBroker is a NATS server or cluster. The client does not reconnect by itself: a message that was written to a
// connection which then broke is lost, and a flush of the next connection would say that all is well. So a connection
// that broke is over, its messages have failed, and the next attempt makes a new one.
type natsBroker struct {
	addr    job.Broker
	dialer  *egress.Dialer
	tls     *tls.Config // nil: none, unless the server wants it
	options []nats.Option
	sending chan struct{}
	wg      sync.WaitGroup

	mu      sync.Mutex
	conn    *natsConn     // nil: none
	dialing chan struct{} // closed when the dial under way has ended; nil: none
	err     error         // why the last dial failed
	closed  bool
}

type natsConn struct {
	nc    *nats.Conn
	wire  *natsWire
	js    jetstream.JetStream
	alive context.Context // ends with the connection
	end   context.CancelFunc

	mu      sync.Mutex
	denied  map[string]time.Time            // subjects that the server does not let us publish to, since when
	heard   error                           // the last error that the client told us of
	hear    map[error][]func()              // who waits until the client has told us of which error
	waiting map[string]map[*outgoing]func() // who waits for an acknowledgement from which subject, and how to end that
}

// natsDialer keeps the error that the client drops when it has tried all servers.
type natsDialer struct {
	*egress.Dialer
	tls     *tls.Config
	mu      sync.Mutex
	wire    *natsWire // the last one
	err     error
	allowed bool // an address was: that another one was denied is not the end then
}

func (d *natsDialer) Dial(network, address string) (net.Conn, error) {
	ctx, stop := context.WithTimeout(context.Background(), brokerDial)
	defer stop()
	c, err := d.DialContext(ctx, network, address)
	denied := isDenied(err)
	var w *natsWire
	if err == nil {
		host, _, _ := net.SplitHostPort(address)
		if w, err = greet(ctx, c, host, d.tls); err != nil {
			c.Close()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.allowed = d.allowed || !denied
	if err == nil || d.err == nil || !denied {
		d.err = err
	}
	if d.wire = w; err != nil {
		return nil, err
	}
	return w, nil
}

// SkipTLSHandshake tells the client that Dial did it.
func (d *natsDialer) SkipTLSHandshake() bool { return true }

// failure is why there is no connection.
func (d *natsDialer) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.allowed && isDenied(d.err) {
		return doubtful(d.err)
	}
	return d.err
}

func newNATS(addr job.Broker, dialer *egress.Dialer, name string) (*natsBroker, error) {
	b := &natsBroker{addr: addr, dialer: dialer, sending: make(chan struct{}, maxSending)}
	b.options = []nats.Option{nats.Name(name), nats.NoReconnect(), nats.Timeout(brokerDial),
		nats.PingInterval(natsPing), nats.MaxPingsOutstanding(2),
		nats.FlusherTimeout(natsWrite), nats.IgnoreDiscoveredServers(),
		nats.SkipHostLookup()} // the dialer looks names up, and judges what they mean
	c, err := tlsConfig(addr)
	if err != nil {
		return nil, err
	}
	if b.tls = c; c != nil {
		b.options = append(b.options, nats.Secure(c))
	}
	if u := addr.User; u != nil {
		if password, ok := u.Password(); ok {
			b.options = append(b.options, nats.UserInfo(u.Username(), password))
		} else {
			b.options = append(b.options, nats.Token(u.Username()))
		}
	}
	if f := addr.Options["creds"]; f != "" {
		b.options = append(b.options, nats.UserCredentials(f))
	}
	if f := addr.Options["nkey"]; f != "" {
		o, err := nats.NkeyOptionFromSeed(f)
		if err != nil {
			return nil, fmt.Errorf("option nkey: %w", err)
		}
		b.options = append(b.options, o)
	}
	return b, nil
}

func (b *natsBroker) close() {
	b.mu.Lock()
	b.closed = true
	c, dialing := b.conn, b.dialing
	b.mu.Unlock()
	if dialing != nil {
		<-dialing
		b.mu.Lock()
		c = b.conn
		b.mu.Unlock()
	}
	if c != nil {
		c.nc.Close()
		<-c.alive.Done()
	}
	b.wg.Wait()
}

// connection is a connection that is up, or why there is none. Everybody waits for the same dial.
func (b *natsBroker) connection(ctx context.Context) (*natsConn, error) {
	b.mu.Lock()
	if b.conn != nil && b.conn.alive.Err() != nil {
		b.conn = nil
	}
	if b.conn != nil || b.closed {
		defer b.mu.Unlock()
		if b.closed {
			return nil, errors.New("the runner is closed")
		}
		return b.conn, nil
	}
	if b.dialing == nil {
		b.dialing = make(chan struct{})
		b.wg.Go(b.dial)
	}
	dialing := b.dialing
	b.mu.Unlock()
	select {
	case <-dialing:
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot connect to %s: no answer yet", b.addr)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", b.addr, b.err)
	}
	return b.conn, nil
}

func (b *natsBroker) dial() {
	c := &natsConn{denied: map[string]time.Time{}, hear: map[error][]func(){},
		waiting: map[string]map[*outgoing]func(){}}
	dialer := &natsDialer{Dialer: b.dialer, tls: b.tls}
	c.alive, c.end = context.WithCancel(context.Background())
	scheme := "nats://"
	if b.addr.TLS {
		scheme = "tls://"
	}
	options := append(slices.Clone(b.options), nats.SetCustomDialer(dialer), nats.ClosedHandler(func(*nats.Conn) {
		c.end()
		b.forget(c)
	}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.deny(err) }))
	nc, err := nats.Connect(scheme+strings.Join(b.addr.Hosts, ","+scheme), options...)
	if err == nil {
		c.nc, c.wire = nc, dialer.wire
		c.js, err = jetstream.New(nc)
	}
	if errors.Is(err, nats.ErrNoServers) || isDenied(err) {
		err = cmp.Or(dialer.failure(), err)
	}
	if err != nil && dialer.wire != nil {
		err = cmp.Or(dialer.wire.flood(), err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err = err; err == nil {
		b.conn = c
	} else {
		c.end()
	}
	close(b.dialing)
	b.dialing = nil
}

// forget drops a connection that is over, with what the client read on it.
func (b *natsBroker) forget(c *natsConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == c {
		b.conn = nil
	}
}

// publish hands a message to the server and waits until it says that it has it: the answer to a ping behind it on the
// same connection, or the acknowledgement of the stream.
func (b *natsBroker) publish(ctx context.Context, m outgoing) (string, error) {
	select {
	case b.sending <- struct{}{}:
	case <-ctx.Done():
		return "", fmt.Errorf("%s did not accept %d earlier messages in time", b.addr, maxSending)
	}
	c, err := b.connection(ctx)
	if err != nil {
		<-b.sending
		return "", err
	}
	msg := &nats.Msg{Subject: m.Subject, Data: m.body, Header: nats.Header{}}
	for _, h := range m.headers {
		msg.Header.Set(h[0], h[1])
	}
	type answer struct {
		receipt string
		err     error
	}
	answered := make(chan answer, 1)
	c.wire.asked()
	// On its own: against a server that hangs, the client waits for its own lock, and no context ends that.
	b.wg.Go(func() {
		defer func() { <-b.sending }()
		sent, give := context.WithCancel(ctx)
		defer give()
		defer context.AfterFunc(c.alive, give)()
		ctx, stop := context.WithCancel(sent)
		defer stop()
		began := time.Now()
		var a answer
		if m.JetStream {
			c.await(&m, stop) // a message that is refused is not answered
			a.receipt, a.err = c.store(ctx, msg, m.id)
			c.await(&m, nil)
		} else {
			a.receipt, a.err = c.send(ctx, msg)
		}
		if err := c.refused(sent, m.Subject, began); a.err == nil || errors.As(err, &hopeless{}) {
			a.err = err
		}
		var op *net.OpError
		if errors.As(a.err, &op) {
			c.nc.Close() // it may not have noticed itself yet
			c.end()
		}
		answered <- a
	})
	select {
	case a := <-answered:
		return a.receipt, b.explain(c, m, a.err)
	case <-ctx.Done():
		return "", b.explain(c, m, ctx.Err())
	}
}

func (c *natsConn) send(ctx context.Context, msg *nats.Msg) (string, error) {
	if err := c.nc.PublishMsg(msg); err != nil {
		return "", err
	}
	return "published to " + msg.Subject, c.nc.FlushWithContext(ctx)
}

func (c *natsConn) store(ctx context.Context, msg *nats.Msg, id string) (string, error) {
	ack, err := c.js.PublishMsg(ctx, msg, jetstream.WithMsgID(id))
	if err != nil {
		return "", err
	}
	receipt := fmt.Sprintf("stream %s, sequence %d", ack.Stream, ack.Sequence)
	if ack.Duplicate {
		receipt += ", which it had already"
	}
	return receipt, nil
}

// deny notes which subject the server refused. It says so some time after the fact, and does not say which message it
// was.
func (c *natsConn) deny(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, rest, ok := strings.Cut(err.Error(), `Publish to "`); ok {
		if subject, _, ok := strings.Cut(rest, `"`); ok {
			c.denied[subject] = time.Now()
			for _, stop := range c.waiting[subject] {
				stop()
			}
		}
	}
	c.heard = err
	for _, tell := range c.hear[err] {
		tell()
	}
	delete(c.hear, err)
}

// await notes who waits for an acknowledgement; stop nil: no longer.
func (c *natsConn) await(m *outgoing, stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.waiting[m.Subject]
	switch {
	case stop == nil:
		if delete(all, m); len(all) == 0 {
			delete(c.waiting, m.Subject)
		}
	case all == nil:
		c.waiting[m.Subject] = map[*outgoing]func(){m: stop}
	default:
		all[m] = stop
	}
}

// refused says whether the server refused a message that was sent to a subject after a time. To a publisher of core
// NATS a refused message looks like any other, but the refusal was read from the connection before the answer to the
// flush. The client keeps the last error itself and tells of all of them in their order, on a goroutine of its own: a
// refusal of this message was told of when the last one was. However long that takes it is waited for, or a message
// that no server took would count as published.
func (c *natsConn) refused(ctx context.Context, subject string, since time.Time) error {
	c.mu.Lock()
	last := c.nc.LastError()
	if errors.Is(last, nats.ErrPermissionViolation) && last != c.heard { // each refusal is an error value of its own
		told, tell := context.WithCancel(ctx)
		defer tell()
		c.hear[last] = append(c.hear[last], tell)
		c.mu.Unlock()
		<-told.Done()
		c.mu.Lock()
	}
	defer c.mu.Unlock()
	if at, ok := c.denied[subject]; ok && !at.Before(since) {
		return hopeless{fmt.Errorf("the server does not let this worker publish to %q", subject)}
	}
	return ctx.Err() // it ended before the server said anything
}

// explain says what an error of the client means for the message.
func (b *natsBroker) explain(c *natsConn, m outgoing, err error) error {
	var h hopeless
	again := "it may have been published"
	if m.JetStream {
		again = "it may have been stored; a repeat within the stream's duplicate window is dropped"
	}
	var js *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &h):
		return err
	case errors.Is(err, nats.ErrMaxPayload):
		return hopeless{fmt.Errorf("the message has %d bytes, and %s accepts at most %d",
			len(m.body), b.addr, c.nc.MaxPayload())}
	case errors.Is(err, nats.ErrHeadersNotSupported):
		return hopeless{fmt.Errorf("%s is too old: it does not support headers", b.addr)}
	case errors.Is(err, nats.ErrBadSubject):
		return hopeless{fmt.Errorf("%q is not a subject that can be published to", m.Subject)}
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("%s has no stream for the subject %q", b.addr, m.Subject)
	case errors.As(err, &js):
		return fmt.Errorf("%s refused the message: %s", b.addr, js.Description)
	case c.wire.flood() != nil:
		return fmt.Errorf("%s: %w; %s", b.addr, c.wire.flood(), again)
	case c.alive.Err() != nil || errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("the connection to %s broke before the message was confirmed: %s", b.addr, again)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("%s did not confirm the message in time: %s", b.addr, again)
	}
	return fmt.Errorf("%s: %w", b.addr, err)
}
