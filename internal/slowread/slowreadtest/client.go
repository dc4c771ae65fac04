// Package slowreadtest is a client that takes no answers. It has a small window, so that few bytes of an answer are in
// the buffers of the kernels.
package slowreadtest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// Client is a connection.
type Client struct {
	conn net.Conn
	addr string
}

// Dial connects over TLS from an address of this machine, which may be empty.
func Dial(addr, from string) (*Client, error) {
	d := net.Dialer{Timeout: 10 * time.Second, Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		ctl := c.Control(func(fd uintptr) {
			// The other end's buffer grows with the size of a segment.
			err = errors.Join(syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096),
				syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536))
		})
		return errors.Join(ctl, err)
	}}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	conn, err := tls.DialWithDialer(&d, "tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	return &Client{conn: conn, addr: addr}, nil
}

// Get begins a request.
func (c *Client) Get(path, token string) error {
	text := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n", path, c.addr)
	if token != "" {
		text += "Authorization: Bearer " + token + "\r\n"
	}
	_, err := io.WriteString(c.conn, text+"\r\n")
	return err
}

// Rest takes all that comes until the server closes the connection, and returns how many bytes that were.
func (c *Client) Rest() int64 {
	n, _ := io.Copy(io.Discard, c.conn) //nolint:errcheck // it may end in any way
	return n
}

// Close ends the connection.
func (c *Client) Close() { c.conn.Close() }
