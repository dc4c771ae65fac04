package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

// The protocol names of nodes under TLS. Who asks for one of them must show a certificate of a node; everybody else
// (API clients, browsers) is never asked for any, because a browser would ask its user.
const (
	ALPN     = "carillon-group" // Raft
	ALPNNode = "carillon-node"  // HTTP/1.1 between nodes
)

// serverTLS is how a mux terminates TLS. Sessions are never resumed: a peer shows its certificate on every connection.
// public is what the operator has for browsers, nil if nothing: nodes never see it. turn waits for a handshake's turn:
// what comes before it, the client's first message, costs little.
func serverTLS(ring *keys.Ring, public *keys.Operator, turn func(net.Conn, <-chan struct{}) error) *tls.Config {
	base := &tls.Config{
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: keys.WholeRecords,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return ring.Shown() },
	}
	of := map[string]*tls.Config{}
	for _, proto := range []string{ALPN, ALPNNode} {
		c := base.Clone()
		c.NextProtos, c.ClientAuth = []string{proto}, tls.RequireAnyClientCert
		c.VerifyConnection = func(cs tls.ConnectionState) error {
			_, err := ring.Verify(cs.PeerCertificates)
			return err
		}
		of[proto] = c
	}
	base.NextProtos = []string{"http/1.1"}
	base.GetCertificate = func(chi *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if c := public.For(chi); c != nil {
			return c, nil
		}
		return ring.Shown()
	}
	base.GetConfigForClient = func(chi *tls.ClientHelloInfo) (*tls.Config, error) {
		gone, _ := chi.Context().Value(goneKey{}).(chan struct{}) //nolint:errcheck // without, it waits to the end
		if err := turn(chi.Conn, gone); err != nil {
			return nil, err
		}
		for _, proto := range []string{ALPN, ALPNNode} {
			if slices.Contains(chi.SupportedProtos, proto) {
				return of[proto], nil
			}
		}
		return nil, nil
	}
	return base
}

// goneKey has in the context of a handshake what is closed when its connection is dropped. A context that ends would
// cost each handshake a goroutine more.
type goneKey struct{}

// serveTLS does the server's part of a TLS handshake. The deadline is the connection's.
func serveTLS(t *ticket, cfg *tls.Config) (*tls.Conn, error) {
	tc := tls.Server(t.conn, cfg)
	err := tc.HandshakeContext(context.WithValue(context.Background(), goneKey{}, t.gone))
	if err == nil {
		return tc, nil
	}
	// The commonest mistake deserves an answer that can be read.
	var rec tls.RecordHeaderError
	if errors.As(err, &rec) && rec.Conn != nil && looksLikeHTTP(rec.RecordHeader) {
		io.WriteString(rec.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nThis port speaks TLS: use https.\n")
	}
	return nil, err
}

func looksLikeHTTP(hdr [5]byte) bool {
	switch string(hdr[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO":
		return true
	}
	return false
}

// nodeConn is a connection that another node made. It hides that it is one of TLS: net/http would look for a server of
// its protocol.
type nodeConn struct {
	net.Conn
	peer keys.Peer
}

// CloseWrite is what net/http looks for, as in unreadConn.
func (c *nodeConn) CloseWrite() error { return c.Conn.(*tls.Conn).CloseWrite() }

// PeerOf is the node that made an accepted connection; false: it showed no certificate.
func PeerOf(c net.Conn) (keys.Peer, bool) {
	if n, ok := c.(*nodeConn); ok {
		return n.peer, true
	}
	return keys.Peer{}, false
}

// ConnContext is that of an http.Server behind a mux: requests of nodes say whose they are (keys.PeerOf).
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if p, ok := PeerOf(c); ok {
		return keys.WithPeer(ctx, p)
	}
	return ctx
}

// clientTLS is how a node dials another one. Which one answers is for verify to judge, nil: any of the cluster.
func clientTLS(ring *keys.Ring, proto string, verify func(keys.Peer) error) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{proto}, DynamicRecordSizingDisabled: keys.WholeRecords,
		InsecureSkipVerify: true, // VerifyConnection looks at the node and not at the host
		VerifyConnection: func(cs tls.ConnectionState) error {
			id, err := ring.Verify(cs.PeerCertificates)
			if err == nil && verify != nil {
				err = verify(id)
			}
			return err
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return ring.Shown() },
	}
}

// handshakeTLS does the client's part. An error closes nothing.
func handshakeTLS(ctx context.Context, conn net.Conn, address string, cfg *tls.Config) (*tls.Conn, error) {
	tc := tls.Client(conn, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		return nil, keys.Explain(err)
	}
	if p := tc.ConnectionState().NegotiatedProtocol; p != cfg.NextProtos[0] {
		return nil, fmt.Errorf("transport: %s speaks TLS but not %s", address, cfg.NextProtos[0])
	}
	return tc, nil
}

// nodeHandshake is how long the TLS handshake with another node may take.
const nodeHandshake = 5 * time.Second

// DialFunc makes a connection.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// NodeDial makes connections for HTTP between nodes out of those that dial makes. expect, if set, is the id of the node
// that should answer at an address, "" if that is not known.
func NodeDial(ring *keys.Ring, dial DialFunc, expect func(addr string) string) DialFunc {
	return overTLS(dial, func(addr string) *tls.Config {
		return clientTLS(ring, ALPNNode, func(id keys.Peer) error {
			if expect != nil {
				if want := expect(addr); want != "" && want != id.Node {
					return fmt.Errorf("%s should be node %q and is %q", addr, want, id.Node)
				}
			}
			return nil
		})
	})
}

// InstanceDial is NodeDial to one data directory of one node, which has the key that it joined with: key is its hash,
// "" if that is not known.
func InstanceDial(ring *keys.Ring, dial DialFunc, node, instance, key string) DialFunc {
	return overTLS(dial, func(addr string) *tls.Config {
		return clientTLS(ring, ALPNNode, func(id keys.Peer) error {
			if id.Node != node || id.Instance != instance || key != "" && id.Key.String() != key {
				return fmt.Errorf("%s should be node %q with the data directory that joined, and is another one", addr,
					node)
			}
			return nil
		})
	})
}

// KeyDial is NodeDial to a node that asks to join and has no certificate yet: what answers must have its key.
func KeyDial(ring *keys.Ring, dial DialFunc, key keys.Hash) DialFunc {
	return overTLS(dial, func(addr string) *tls.Config {
		cfg := clientTLS(ring, ALPNNode, nil)
		cfg.VerifyConnection = func(cs tls.ConnectionState) error {
			pub, ok := cs.PeerCertificates[0].PublicKey.(*ecdsa.PublicKey)
			if !ok {
				return fmt.Errorf("at %s another node answers", addr)
			}
			if h, err := keys.KeyHash(pub); err != nil || h != key {
				return fmt.Errorf("at %s another node answers than the one that asks to join", addr)
			}
			return nil
		}
		return cfg
	})
}

// PinnedDial is for a node that has no certificate yet and knows the CA by its hash: what answers is a node of that
// cluster.
func PinnedDial(ring *keys.Ring, dial DialFunc) DialFunc {
	return overTLS(dial, func(string) *tls.Config {
		cfg := clientTLS(ring, "http/1.1", nil)
		cfg.GetClientCertificate, cfg.ServerName = nil, keys.ServerName
		return cfg
	})
}

func overTLS(dial DialFunc, of func(addr string) *tls.Config) DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, nodeHandshake)
		defer cancel()
		tc, err := handshakeTLS(ctx, conn, addr, of(addr))
		if err != nil {
			conn.Close()
			// As an error of dialling: nothing was sent.
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		return tc, nil
	}
}
