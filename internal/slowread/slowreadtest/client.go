// Package slowreadtest is a client of HTTP/2 that takes no answers. Those of net/http have no window of zero bytes.
package slowreadtest

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Client is a connection. Its methods may be called from several goroutines.
type Client struct {
	conn net.Conn
	addr string

	mu    sync.Mutex
	next  uint32 // the number of the next stream
	begun int    // answers
	reset int    // streams that the server has broken off
	ended int    // streams that the server has ended, as its answer was
	err   error
	done  chan struct{}
}

// The types of frames (RFC 9113, 6).
const (
	frameData     = 0
	frameHeaders  = 1
	frameReset    = 3
	frameSettings = 4
	framePing     = 6
)

const (
	endStream  = 1
	ack        = 1
	endHeaders = 4
)

// Dial connects from an address of this machine, which may be empty.
func Dial(addr, from string) (*Client, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	raw, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err := conn.Handshake(); err != nil {
		raw.Close()
		return nil, err
	}
	if conn.ConnectionState().NegotiatedProtocol != "h2" {
		conn.Close()
		return nil, errors.New("the server does not speak HTTP/2")
	}
	c := &Client{conn: conn, addr: addr, next: 1, done: make(chan struct{})}
	noWindow := []byte{0, 4, 0, 0, 0, 0} // SETTINGS_INITIAL_WINDOW_SIZE
	hello := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(frameSettings, 0, 0, noWindow)...)
	if _, err := conn.Write(hello); err != nil {
		conn.Close()
		return nil, err
	}
	go c.read()
	return c, nil
}

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// Get begins a request.
func (c *Client) Get(path, token string) error {
	block := []byte{0x82, 0x87} // GET, https
	block = literal(block, 4, path)
	block = literal(block, 1, c.addr)
	if token != "" {
		block = literal(block, 23, "Bearer "+token)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	stream := c.next
	c.next += 2
	_, err := c.conn.Write(frame(frameHeaders, endStream|endHeaders, stream, block))
	return err
}

// literal appends a header with the name of a row of the static table, which is not indexed (RFC 7541, 6.2.2).
func literal(b []byte, name int, value string) []byte {
	return append(integer(integer(b, 0, 4, name), 0, 7, len(value)), value...)
}

// integer appends a number with a prefix of some bits (RFC 7541, 5.1).
func integer(b []byte, first byte, bits, n int) []byte {
	most := 1<<bits - 1
	if n < most {
		return append(b, first|byte(n))
	}
	b = append(b, first|byte(most))
	for n -= most; n >= 128; n /= 128 {
		b = append(b, byte(n%128)|128)
	}
	return append(b, byte(n))
}

// read counts what the server says. It makes no room for answers.
func (c *Client) read() {
	defer close(c.done)
	in := bufio.NewReader(c.conn)
	for {
		var head [9]byte
		_, err := io.ReadFull(in, head[:])
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if err == nil {
			_, err = io.ReadFull(in, payload)
		}
		c.mu.Lock()
		if c.err = err; err == nil {
			kind, flags := head[3], head[4]
			switch {
			case kind == frameSettings && flags&ack == 0:
				_, c.err = c.conn.Write(frame(frameSettings, ack, 0, nil))
			case kind == framePing && flags&ack == 0:
				_, c.err = c.conn.Write(frame(framePing, ack, 0, payload))
			case kind == frameHeaders:
				c.begun++
			case kind == frameReset:
				c.reset++
			}
			if (kind == frameHeaders || kind == frameData) && flags&endStream != 0 {
				c.ended++
			}
		}
		err = c.err
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Counts are how many answers have begun, how many the server has broken off, and how many it has ended.
func (c *Client) Counts() (begun, reset, ended int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun, c.reset, c.ended
}

// Open is how many requests are neither broken off nor ended.
func (c *Client) Open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.next/2) - c.reset - c.ended
}

// Closed says that the connection is.
func (c *Client) Closed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Close ends the connection.
func (c *Client) Close() {
	c.conn.Close()
	<-c.done
}
