package keys

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/carillon-scheduler/carillon/job"
)

// ServerName is what clients that know a cluster by its CA ask a node for: they get the certificate of the cluster,
// whatever else the node shows to browsers.
const ServerName = "cluster.carillon.internal"

// reloadEvery is how often the files of a certificate are looked at, at most.
const reloadEvery = time.Second

// Operator is a certificate that the operator got from elsewhere, for browsers and other clients that know nothing of
// the cluster's CA. It is read again when its files change; one that cannot be read leaves the one before.
type Operator struct {
	cert, key string
	log       *slog.Logger
	now       func() time.Time

	mu     sync.Mutex
	shown  *tls.Certificate
	looked time.Time
	was    [2]stamp // of the files that shown is from, or that could not be used
}

// stamp tells a version of a file.
type stamp struct {
	size  int64
	mtime time.Time
}

// OpenOperator reads the files of a certificate, with those that lead to its CA, and of its key.
func OpenOperator(cert, key string, log *slog.Logger, now func() time.Time) (*Operator, error) {
	o := &Operator{cert: cert, key: key, log: log, now: now, looked: now()}
	var err error
	if o.was, err = o.stamps(); err == nil {
		o.shown, err = o.load()
	}
	if err != nil {
		return nil, job.Invalid("--tls-cert", "give the file with the certificate and its chain, and with --tls-key "+
			"the file with its key, both in PEM", "%v", err)
	}
	return o, nil
}

func (o *Operator) stamps() (out [2]stamp, err error) {
	for i, path := range []string{o.cert, o.key} {
		fi, err := os.Stat(path)
		if err != nil {
			return out, err
		}
		out[i] = stamp{fi.Size(), fi.ModTime()}
	}
	return out, nil
}

func (o *Operator) load() (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(o.cert, o.key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", o.cert, o.key, err)
	}
	if len(c.Leaf.DNSNames) == 0 && len(c.Leaf.IPAddresses) == 0 {
		return nil, fmt.Errorf("the certificate in %s names no host", o.cert)
	}
	if _, err := ClusterOf(c.Leaf); err == nil {
		return nil, errors.New("that is a certificate of the cluster's own CA, which nodes use anyway")
	}
	return &c, nil
}

// For is the certificate for a client that asks for a host which it is for; nil: it is for others. A client that asks
// for an address names none: then the address counts that it reached.
func (o *Operator) For(hello *tls.ClientHelloInfo) *tls.Certificate {
	if o == nil || hello.ServerName == ServerName {
		return nil
	}
	c := o.current()
	host := hello.ServerName
	if host == "" && hello.Conn != nil {
		if a, ok := hello.Conn.LocalAddr().(*net.TCPAddr); ok {
			host = a.IP.String()
		}
	}
	if host == "" || c.Leaf.VerifyHostname(host) != nil {
		return nil
	}
	return c
}

// current is the certificate as the files have it. A pair of which one file is replaced already and the other not yet
// does not fit together, and is read again.
func (o *Operator) current() *tls.Certificate {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	if d := now.Sub(o.looked); d >= 0 && d < reloadEvery {
		return o.shown
	}
	o.looked = now
	is, err := o.stamps()
	if err == nil && is == o.was {
		return o.shown
	}
	var c *tls.Certificate
	if err == nil {
		c, err = o.load()
	}
	if err != nil {
		if is != o.was {
			o.log.Warn("certificate not read again; the previous one stays in use", "error", err, "ends",
				o.shown.Leaf.NotAfter)
		}
		o.was = is
		return o.shown
	}
	o.log.Info("certificate read again", "file", o.cert, "ends", c.Leaf.NotAfter)
	o.was, o.shown = is, c
	return c
}
