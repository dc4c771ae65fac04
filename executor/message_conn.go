package executor

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

const (
	// natsLine bounds a line of a NATS server. The longest is what it says of itself.
	natsLine = 256 << 10
	// natsAnswer bounds a message from a server. What a publisher gets are acknowledgements.
	natsAnswer = 64 << 10
	// natsGreeting is what is read of a server before anything is published, and natsEach for each message. A server
	// that answers with less saves up to natsMost.
	natsGreeting = 1 << 20
	natsEach     = 16 << 10
	natsMost     = 4 << 20
	// kafkaAnswer bounds an answer of a Kafka broker. The longest lists the partitions of a topic.
	kafkaAnswer = 1 << 20
)

// floodError says that a server sent more than a publisher can have asked for.
type floodError struct{ what string }

func (e floodError) Error() string { return "the server sent " + e.what + ": the connection is closed" }

// natsWire is a connection to a NATS server on which messages are published. The client believes a server: it makes
// room for a message of any size that the server announces, whether anybody subscribed or not, and keeps a line until
// it ends. So what the server says is looked at first, and one that floods is cut off.
type natsWire struct {
	net.Conn
	in *bufio.Reader

	mu      sync.Mutex
	left    int64  // bytes to be read
	line    []byte // as far as it came
	payload int64  // bytes of a message that are to come
	err     error
}

// greet reads what the server says of itself, and begins TLS if that is wanted: below it, there would be nothing to
// look at. The client gets to read the greeting, too.
func greet(ctx context.Context, conn net.Conn, host string, config *tls.Config) (*natsWire, error) {
	if end, ok := ctx.Deadline(); ok {
		conn.SetDeadline(end) //nolint:errcheck // then the client's own limit ends it
	}
	raw := bufio.NewReader(conn)
	greeting, err := readLine(raw)
	if err != nil {
		return nil, err
	}
	w := &natsWire{Conn: conn, in: raw, left: natsGreeting}
	var info struct {
		Required  bool `json:"tls_required"`
		Available bool `json:"tls_available"`
	}
	if _, text, ok := bytes.Cut(greeting, []byte(" ")); ok {
		json.Unmarshal(text, &info) //nolint:errcheck // the client says what is wrong with it
	}
	if info.Required || config != nil && info.Available {
		if config == nil {
			config = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		if config = config.Clone(); config.ServerName == "" {
			config.ServerName = host
		}
		secure := tls.Client(buffered{conn, raw}, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		w.Conn, w.in = secure, bufio.NewReader(secure)
	}
	w.in = bufio.NewReader(io.MultiReader(bytes.NewReader(greeting), w.in))
	conn.SetDeadline(time.Time{}) //nolint:errcheck // the client sets its own
	return w, nil
}

// buffered is a connection of which a part was read ahead.
type buffered struct {
	net.Conn
	in *bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); err == nil || !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > natsLine {
			return nil, floodError{fmt.Sprintf("a line of more than %d bytes", natsLine)}
		}
	}
}

// asked notes that a message is published, which the server may answer.
func (w *natsWire) asked() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = min(w.left+natsEach, natsMost)
}

// flood is why the connection was cut off; nil: it was not.
func (w *natsWire) flood() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *natsWire) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left -= int64(n); w.left < 0 && w.err == nil {
		w.err = floodError{"more than anybody asked it for"}
	}
	w.look(p[:n])
	if w.err != nil {
		w.Close()
		return 0, w.err
	}
	return n, err
}

// look follows the protocol: lines, and behind some of them as many bytes as they say.
func (w *natsWire) look(p []byte) {
	for len(p) > 0 && w.err == nil {
		if w.payload > 0 {
			n := min(w.payload, int64(len(p)))
			w.payload, p = w.payload-n, p[n:]
			continue
		}
		part, rest, whole := bytes.Cut(p, []byte{'\n'})
		p = rest
		if w.line = append(w.line, part...); len(w.line) > natsLine {
			w.err = floodError{fmt.Sprintf("a line of more than %d bytes", natsLine)}
		}
		if !whole || w.err != nil {
			return
		}
		words := bytes.Fields(w.line)
		if len(words) > 0 && (bytes.EqualFold(words[0], []byte("MSG")) || bytes.EqualFold(words[0], []byte("HMSG"))) {
			size, err := strconv.ParseInt(string(words[len(words)-1]), 10, 64)
			if err != nil || size < 0 || size > natsAnswer {
				w.err = floodError{"a message that is no acknowledgement"}
			}
			w.payload = size + int64(len("\r\n"))
		}
		if w.line = w.line[:0]; cap(w.line) > natsAnswer {
			w.line = nil
		}
	}
}
