package node

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// A leader does what it is asked, and dies before it answers, over a connection that was used before. net/http asks again by itself if the
// request has a key and no body, and finds nobody. That is no reason to say that nothing was changed.
func TestLeaderDiesAfterTheDeed(t *testing.T) {
	for name, headers := range map[string]map[string]string{"the client's key": {"Idempotency-Key": "mine"}, "none": nil} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			var leader *httptest.Server
			leader = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1); r.Method == http.MethodGet {
					return
				}
				leader.Listener.Close()
				panic(http.ErrAbortHandler)
			}))
			defer leader.Close()
			n := &Node{leaving: make(chan struct{})}
			n.cfg.NodeID, n.cfg.Logger = "n1", quiet
			f := newForwarder(n, nil)
			defer f.close()
			p := place{id: "n2", addr: leader.Listener.Addr().String()}

			read := &carriage{f: f, w: httptest.NewRecorder(), r: httptest.NewRequest(http.MethodGet, "/api/v1/jobs/a", nil)}
			if !read.there(p) {
				t.Fatal("the leader did not answer a read")
			}
			r := httptest.NewRequest(http.MethodPost, "/api/v1/jobs/a:cancel", nil)
			for k, v := range headers {
				r.Header.Set(k, v)
			}
			c := &carriage{f: f, w: httptest.NewRecorder(), r: r, key: "k"}
			if c.there(p) || !c.sent || asked.Load() != 2 {
				t.Errorf("asked %d times, and taken for something that never left (%v)", asked.Load(), c.err)
			}
			nobody := &carriage{f: f, w: httptest.NewRecorder(), r: r, key: "k"}
			if nobody.there(p) || nobody.sent {
				t.Error("nobody was there from the beginning, and it is taken for sent")
			}
		})
	}
}
