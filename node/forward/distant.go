package forward

import (
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/replica"
	"github.com/carillon-scheduler/carillon/internal/wait"
	"github.com/carillon-scheduler/carillon/job"
)

// A node may have no replica of a group. Its tracker then asks those that have one who leads: only while a caller wants
// to know, and no answer is believed for long. Requests go there as from any node that does not lead; what any replica
// can answer is answered by one of them.

// askAgain is when the others are asked again if none of them leads.
const askAgain = 50 * time.Millisecond

// distant stands for raft where this node has no replica.
type distant struct {
	t     *Tracker
	ask   func(ctx context.Context) (id, addr string)
	again chan struct{}

	mu       sync.Mutex
	id, addr string
	asked    time.Time
	users    int
	asking   bool
}

// NewDistant makes a tracker of a group that this node has no replica of. ask asks the nodes that have one who leads;
// empty: none of them, as far as they say.
func NewDistant(o TrackerOptions, ask func(ctx context.Context) (id, addr string)) *Tracker {
	t := NewTracker(o)
	t.distant = &distant{t: t, ask: ask, again: make(chan struct{}, 1)}
	t.raft = t.distant
	return t
}

// Use has the leader be known until its end is called. A tracker that follows raft knows it anyway.
func (t *Tracker) Use() (end func()) {
	if t.distant == nil {
		return func() {}
	}
	t.distant.use()
	return t.distant.unuse
}

func (d *distant) use() {
	d.mu.Lock()
	d.users++
	begins, pause := !d.asking, time.Duration(0)
	if begins {
		if d.asking = true; time.Since(d.asked) > d.t.o.Interval {
			d.id, d.addr = "", ""
		} else if d.addr != "" {
			pause = d.t.o.Interval
		}
	}
	d.mu.Unlock()
	if begins {
		d.t.read()
		go d.run(pause)
	}
}

func (d *distant) unuse() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.users-- // run finds out by itself
}

// run asks until no caller waits for the answer any more.
func (d *distant) run(pause time.Duration) {
	for {
		if pause > 0 {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-d.again:
			case <-d.t.leaving:
			}
			timer.Stop()
		}
		d.mu.Lock()
		if over := d.users == 0 && pause > 0 || d.t.left(); over {
			d.asking = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), LeaderWait)
		id, addr := d.ask(ctx)
		cancel()
		d.mu.Lock()
		d.id, d.addr, d.asked = id, addr, time.Now()
		d.mu.Unlock()
		d.t.read()
		if pause = d.t.o.Interval; addr == "" {
			pause = min(askAgain, pause)
		}
	}
}

// doubt has the others asked at once: who was asked for something did not answer as a leader.
func (t *Tracker) doubt() {
	if t.distant != nil {
		wait.Wake(t.distant.again)
	}
}

func (d *distant) LeaderWithID() (raft.ServerAddress, raft.ServerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.addr == "" {
		return "", ""
	}
	return raft.ServerAddress(d.addr), replica.ID(d.id, replica.First) // the tracker asks for the node only
}

func (d *distant) State() raft.RaftState             { return raft.Follower }
func (d *distant) LastContact() time.Time            { return time.Time{} }
func (d *distant) RegisterObserver(*raft.Observer)   {}
func (d *distant) DeregisterObserver(*raft.Observer) {}

// elsewhere has something that any replica can answer be answered by one: the leader, or any other. A worker is told
// who leads.
func (f *Forwarder) elsewhere(w http.ResponseWriter, r *http.Request) {
	end := f.t.Use()
	l, _ := f.t.Wait(r.Context(), time.Now().Add(newsWait), Leader.Known)
	end()
	if r.Header.Get(HeaderForwarded) != "" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		if !l.Elsewhere() {
			f.writeError(w, ErrNoLeader())
			return
		}
		w.Header().Set(wire.LeaderHeader, l.Addr)
		api.WriteError(w, errNotLeader(l))
		return
	}
	addrs := f.o.Having()
	if l.Elsewhere() {
		addrs = append([]string{l.Addr}, slices.DeleteFunc(addrs, func(a string) bool { return a == l.Addr })...)
	}
	by := f.short
	if api.WayOf(r.URL.Path) == api.Here { // a backup is copied before it is sent
		by = f.long
	}
	rp := &httputil.ReverseProxy{
		Transport: anyOf{by, addrs}, FlushInterval: -1, ErrorLog: f.o.ErrorLog,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.RawQuery = "http", pr.In.URL.RawQuery
			dropOrigin(pr.Out.Header)
			f.passedOn(pr.In, pr.Out.Header)
			pr.Out.Body, pr.Out.ContentLength = http.NoBody, 0
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			f.o.Logger.Debug("forwarding failed", "error", err)
			api.WriteError(w, job.Errorf(job.CodeUnavailable, "try again in a moment, or start one of them",
				"no node that has a replica of group %d answers", f.o.Group))
		},
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() { // a stream has no end of its own
		select {
		case <-f.t.leaving:
			cancel()
		case <-ctx.Done():
		}
	}()
	rp.ServeHTTP(&deadlineWriter{w, http.NewResponseController(w)}, r.WithContext(ctx))
}

// anyOf sends a read to the first node that answers it.
type anyOf struct {
	by    http.RoundTripper
	addrs []string
}

var errNoReplica = errors.New("no other node has a replica")

func (t anyOf) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	err = errNoReplica
	for i, addr := range t.addrs {
		out := r.Clone(r.Context())
		out.URL.Host, out.Host = addr, addr
		resp, err = t.by.RoundTrip(out)
		switch {
		case err != nil && r.Context().Err() != nil:
			return nil, err
		case err == nil && (resp.StatusCode != http.StatusMisdirectedRequest || i == len(t.addrs)-1):
			return resp, nil
		case err == nil:
			resp.Body.Close() // it has no replica any more
		}
	}
	return nil, err
}
