package forward

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"

	"github.com/carillon-scheduler/carillon/internal/duplex"
	"github.com/carillon-scheduler/carillon/job"
)

// stream carries a request through that is too large to keep, or whose answer is. It is not repeated: who reads a
// stream goes on where it ended, and the lines of a bulk create are safe to send again.
func (f *Forwarder) stream(w http.ResponseWriter, r *http.Request) {
	x := duplex.Begin(w, r) // answers begin before the last line was read
	defer x.End()
	w, r = x.W, x.R
	switch l, ok := f.t.NewAttempts().Leader(r.Context()); {
	case !ok:
		(&request{f: f, w: w, r: r}).fail()
	case l.Epoch == nil:
		f.proxy(x, l)
	default:
		h := &holdingWriter{to: w, header: http.Header{}}
		f.o.Local.ServeHTTP(h, r)
		switch {
		case h.status == http.StatusMisdirectedRequest:
			f.writeError(w, errLostStream)
		case h.held:
			h.release()
		}
	}
}

// errLostStream answers a stream whose leader was none any more before it had answered anything. To a client that asked
// any node for it, "not the leader" would be about a node that it knows nothing of.
var errLostStream = job.Errorf(job.CodeNoLeader, "send it again in a moment",
	"the leadership changed before any of this was answered")

func (f *Forwarder) proxy(x *duplex.Exchange, l Leader) {
	w, r := x.W, x.R
	ctx, cancel := f.t.Replaced(r.Context(), l, nil)
	defer cancel()
	// A connection that is lost, or given up because another node leads, is no end of the request to net/http: it first
	// waits until its read of the body ends, which a client that pauses does not do.
	stop := func() bool { return true }
	defer func() { stop() }()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if c, ok := got.Conn.(*watchedConn); ok {
			stop = context.AfterFunc(c.open, x.Hurry)
		}
	}})
	rp := &httputil.ReverseProxy{
		Transport: f.long, FlushInterval: -1,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host, pr.Out.Host = "http", l.Addr, l.Addr
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery
			dropOrigin(pr.Out.Header)
			f.passedOn(pr.In, pr.Out.Header)
			pr.Out.GetBody = nil
		},
		ModifyResponse: func(resp *http.Response) error {
			if resp.StatusCode == http.StatusMisdirectedRequest {
				return errLostStream
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(err, errLostStream) {
				f.writeError(w, errLostStream)
				return
			}
			if neverConnected(err) || r.Method == http.MethodGet {
				f.writeError(w, job.Errorf(job.CodeNoLeader, "try again in a moment",
					"the leader %s (%s) does not answer; nothing was changed", l.ID, l.Addr))
				return
			}
			f.writeError(w, job.Errorf(job.CodeOutcomeUnknown, "send it again",
				"the leader was lost during the request: it may or may not have been done"))
		},
		ErrorLog: f.o.ErrorLog,
	}
	rp.ServeHTTP(&deadlineWriter{w, http.NewResponseController(w)}, r.WithContext(ctx))
}

// watchedConn says when it was closed.
type watchedConn struct {
	net.Conn
	open context.Context // until it is closed
	end  context.CancelFunc
}

// watched is a dial whose connections say when they were closed.
func watched(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &watchedConn{Conn: conn}
		c.open, c.end = context.WithCancel(context.Background())
		return c, nil
	}
}

func (c *watchedConn) Close() error {
	c.end()
	return c.Conn.Close()
}
