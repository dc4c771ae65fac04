package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
)

// ALPN is the protocol name that selects Raft under TLS.
const ALPN = "carillon-group"

var errNoClientCert = errors.New("transport: raft connection without a verified client certificate")

// serverTLS returns cfg with Raft among its protocols.
func serverTLS(cfg *tls.Config) *tls.Config {
	cfg = cfg.Clone()
	if len(cfg.NextProtos) == 0 {
		cfg.NextProtos = []string{"h2", "http/1.1"}
	}
	if !slices.Contains(cfg.NextProtos, ALPN) {
		cfg.NextProtos = append([]string{ALPN}, cfg.NextProtos...)
	}
	// One port serves browsers, which have no certificate, and peers, which
	// must have one; TLS asks for it before it knows which it talks to.
	verify := cfg.VerifyConnection
	needCert := cfg.ClientCAs != nil
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if needCert && cs.NegotiatedProtocol == ALPN && len(cs.VerifiedChains) == 0 {
			return errNoClientCert
		}
		if verify != nil {
			return verify(cs)
		}
		return nil
	}
	// A config chosen per connection, as for reloaded certificates, is held to
	// the same.
	if get := cfg.GetConfigForClient; get != nil {
		cfg.GetConfigForClient = func(chi *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := get(chi)
			if c == nil || err != nil {
				return c, err
			}
			c = serverTLS(c)
			c.GetConfigForClient = nil
			return c, nil
		}
	}
	return cfg
}

// serveTLS does the server's part of a TLS handshake. The deadline is conn's.
func serveTLS(conn net.Conn, cfg *tls.Config) (*tls.Conn, error) {
	tc := tls.Server(conn, cfg)
	err := tc.Handshake()
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

// dialTLS does the client's part for a connection to address.
func dialTLS(ctx context.Context, conn net.Conn, address string, cfg *tls.Config) (net.Conn, error) {
	cfg = cfg.Clone()
	cfg.NextProtos = []string{ALPN}
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		cfg.ServerName = host
	}
	tc := tls.Client(conn, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	if p := tc.ConnectionState().NegotiatedProtocol; p != ALPN {
		return nil, fmt.Errorf("transport: %s speaks TLS but not %s", address, ALPN)
	}
	return tc, nil
}
