package remote

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// node answers as one whose cluster has some groups, and leads them all.
type node struct {
	mu     sync.Mutex
	groups []uint32
	asked  []string // the groups that registrations were for
}

func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var answer any = job.Session{SessionRef: job.SessionRef{Worker: "w"}}
	if r.URL.Path == "/api/v1/whoami" {
		answer = wire.Whoami{Name: "anyone", Groups: n.groups}
	} else {
		n.asked = append(n.asked, r.Header.Get(wire.GroupHeader))
	}
	w.Header().Set("Content-Type", wire.MediaJSON)
	json.NewEncoder(w).Encode(answer) //nolint:errcheck // the client hung up
}

// A worker finds the groups of its cluster, reaches each leader by the group's number, and hears of new ones after a
// session ended. A cluster that names none, or does not answer, has one.
func TestFindsGroups(t *testing.T) {
	n := &node{groups: []uint32{1, 2}}
	srv := httptest.NewServer(n)
	defer srv.Close()
	sessions := 0
	g := Find(t.Context(), Options{Addrs: []string{srv.Listener.Addr().String()},
		Registered: func(job.Session) { sessions++ }})
	defer g.Close()
	known, changed := g.List()
	if !slices.Equal(known, []uint32{1, 2}) {
		t.Fatalf("groups %v", known)
	}
	for _, number := range known {
		if _, err := g.Leader(number).Register(t.Context(), job.Register{Worker: "w"}); err != nil {
			t.Fatal(err)
		}
	}
	n.mu.Lock()
	n.groups = []uint32{1, 2, 3}
	asked := slices.Clone(n.asked)
	n.mu.Unlock()
	if !slices.Equal(asked, []string{"1", "2"}) || sessions != 2 {
		t.Errorf("asked for groups %v, %d sessions", asked, sessions)
	}
	if _, err := g.Leader(1).Register(t.Context(), job.Register{Worker: "w", Incarnation: 1}); err != nil {
		t.Fatal(err)
	}
	<-changed
	if known, _ = g.List(); !slices.Equal(known, []uint32{1, 2, 3}) {
		t.Errorf("groups %v", known)
	}
}

func TestFindsOneGroup(t *testing.T) {
	srv := httptest.NewServer(&node{})
	defer srv.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, addr := range []string{srv.Listener.Addr().String(), gone.Listener.Addr().String()} {
		g := Find(ctx, Options{Addrs: []string{addr}})
		if known, _ := g.List(); !slices.Equal(known, []uint32{0}) {
			t.Errorf("groups %v", known)
		}
		g.Close()
	}
}
