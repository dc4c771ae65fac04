package forward

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/duplex"
	"github.com/carillon-scheduler/carillon/job"
)

const someLine = `{"name":"l1","type":"queue","schedule":"@manual","payload":{"queue":"q"}}` + "\n"

// early answers a bulk create at its first line.
func early(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Connection", "close")
		io.ReadFull(r.Body, make([]byte, len(someLine)))
		if status == http.StatusOK {
			io.WriteString(w, `{"line":1,"status":"created"}`+"\n")
			return
		}
		api.WriteError(w, job.Errorf(job.CodeNotLeader, "", "not me"))
	}
}

// sendPart sends the head of a bulk create and its first line, and leaves the body open.
func sendPart(t *testing.T, addr, framing string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST /api/v1/jobs:bulk HTTP/1.1\r\nHost: localhost\r\n"+framing, len(somePart), somePart)
	return conn, bufio.NewReader(conn)
}

// somePart is the first line of a body and what fills net/http's buffers: what does not may wait for more.
var somePart = someLine + strings.Repeat(" ", 8<<10) + "\n"

// partBody says when more is asked for than a part of a body has.
type partBody struct {
	io.ReadCloser
	left atomic.Int64 // net/http reads what is left from another goroutine than the forwarder
	once sync.Once
	more chan struct{}
}

func (b *partBody) Read(p []byte) (int, error) {
	if b.left.Load() <= 0 {
		b.once.Do(func() { close(b.more) })
	}
	n, err := b.ReadCloser.Read(p)
	b.left.Add(int64(-n))
	return n, err
}

var framings = map[string]string{"announced": "Content-Length: 1%d\r\n\r\n%s",
	"chunked": "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n"}

// What a client sends of a stream after it was answered is no request, on whichever node the answer was made.
func TestTheRestOfAStreamIsNoRequest(t *testing.T) {
	t.Parallel()
	leader := httptest.NewServer(early(200))
	t.Cleanup(leader.Close)
	former := httptest.NewServer(early(421))
	t.Cleanup(former.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	for what, c := range map[string]struct {
		leader string
		status int
	}{
		"the leader answers early":    {leader.Listener.Addr().String(), 200},
		"the leader is none any more": {former.Listener.Addr().String(), 503},
		"the leader is not there":     {gone.Listener.Addr().String(), 503},
		"this node is none any more":  {"", 503},
	} {
		for how, framing := range framings {
			t.Run(what+", "+how, func(t *testing.T) {
				t.Parallel()
				var smuggled atomic.Int32
				f := newForwarder(t, fixedRaft{"n2", c.leader}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						smuggled.Add(1)
						return
					}
					early(421)(w, r)
				}))
				if c.leader == "" {
					f.t.SetEpoch(&Epoch{Term: 1})
				}
				follower := httptest.NewServer(duplex.Finish(f)) // as a node has it
				defer follower.Close()
				conn, in := sendPart(t, follower.Listener.Addr().String(), framing)
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != c.status || !resp.Close {
					t.Errorf("%s, close %v, %v", resp.Status, resp.Close, err)
				}
				io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
				if answer, err := http.ReadResponse(in, nil); err == nil {
					answer.Body.Close()
					t.Errorf("the rest of the body was answered with %s", answer.Status)
				}
				if smuggled.Load() > 0 {
					t.Error("the rest of a body was taken for a request")
				}
			})
		}
	}
}

// electedRaft names a leader until it names another.
type electedRaft struct {
	fixedRaft
	leader atomic.Pointer[fixedRaft]
}

func (r *electedRaft) LeaderWithID() (raft.ServerAddress, raft.ServerID) {
	return r.leader.Load().LeaderWithID()
}

// die closes a connection as the end of a process does.
func die(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		conn.Close()
	}
}

// A client that keeps its body open and sends nothing hears what became of its request, whatever becomes of the leader.
func TestAClientThatPausesIsAnswered(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		status int
		end    func(w http.ResponseWriter, r *http.Request, replace func()) // what the leader does
	}{
		"the leader answers early": {200, func(w http.ResponseWriter, _ *http.Request, _ func()) {
			io.WriteString(w, "early\n")
			http.NewResponseController(w).Flush()
		}},
		"the leader is lost": {503, func(w http.ResponseWriter, _ *http.Request, _ func()) { die(w) }},
		"the leader is lost while it answers": {200, func(w http.ResponseWriter, _ *http.Request, _ func()) {
			io.WriteString(w, "half\n")
			http.NewResponseController(w).Flush()
			die(w)
		}},
		"the leader is replaced": {503, func(w http.ResponseWriter, r *http.Request, replace func()) {
			replace()
			io.Copy(io.Discard, r.Body) // until it is given up
			die(w)
		}},
	} {
		for how, framing := range framings {
			t.Run(what+", "+how, func(t *testing.T) {
				t.Parallel()
				elect := &electedRaft{}
				var f *Forwarder
				paused := make(chan struct{}) // all that the client sent is on its way to the leader
				leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					http.NewResponseController(w).EnableFullDuplex()
					w.Header().Set("Connection", "close")
					io.ReadFull(r.Body, make([]byte, len(someLine)))
					<-paused // a leader that is lost before that may have its answer overtaken by the error of a write
					c.end(w, r, func() {
						elect.leader.Store(&fixedRaft{"n3", "127.0.0.1:9"})
						f.t.read()
					})
				}))
				defer leader.Close()
				elect.leader.Store(&fixedRaft{"n2", leader.Listener.Addr().String()})
				f = newForwarder(t, elect, http.NotFoundHandler())
				follower := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					r = r.WithContext(r.Context())
					part := &partBody{ReadCloser: r.Body, more: paused}
					part.left.Store(int64(len(somePart)))
					r.Body = part
					f.ServeHTTP(w, r)
				}))
				defer follower.Close()
				_, in := sendPart(t, follower.Listener.Addr().String(), framing)
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(resp.Body)
				if half := strings.HasPrefix(string(text), "half"); resp.StatusCode != c.status || half != (err != nil) {
					t.Errorf("%s: %s, %v", resp.Status, text, err)
				}
			})
		}
	}
}
