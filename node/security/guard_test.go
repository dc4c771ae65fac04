package security

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/keys"
)

// On a secure cluster strangers get to no path of nodes, and a node that was removed only to those by which it learns
// of that and hands in what it has.
func TestMembersOnly(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	belongs := func(id keys.Peer) bool { return id.Node == "n1" }
	ring, err := keys.OpenRing(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	secure := (&Keys{ring: ring}).MembersOnly(served, belongs)
	plain := (&Keys{}).MembersOnly(served, belongs)
	for _, c := range []struct {
		by, path string
		want     int
	}{
		{"", "/api/v1/jobs", 204},
		{"", "/internal/peer", 403},
		{"n1", "/internal/peer", 204},
		{"n1", "/api/v1/jobs", 204},
		{"removed", "/internal/peer", 403},
		{"removed", "/api/v1/jobs", 403},
		{"removed", "/api/v1/workers:report", 204},
		{"removed", "/api/v1/workers:poll", 204},
		{"removed", "/internal/v1/announce", 204},
		{"removed", "/api/v1/cluster:join", 403}, // it would pass on what strangers say
		{"", "/internal/v1/announce", 403},
	} {
		r := httptest.NewRequest(http.MethodPost, c.path, nil)
		if c.by != "" {
			r = r.WithContext(keys.WithPeer(r.Context(), keys.Peer{Identity: keys.Identity{Node: c.by}}))
		}
		w := httptest.NewRecorder()
		if secure.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%q asks for %s: %d %s", c.by, c.path, w.Code, w.Body)
		}
		w = httptest.NewRecorder()
		if plain.ServeHTTP(w, r); w.Code != 204 {
			t.Errorf("a plain cluster, %q asks for %s: %d", c.by, c.path, w.Code)
		}
	}
}

// Every voter seals the sessions of workers with one key; a node that has not fetched the cluster's keys says so.
func TestSessionKey(t *testing.T) {
	plain := &Keys{}
	a, err := plain.SessionKeys("a")
	b, err2 := plain.SessionKeys("b")
	if err != nil || err2 != nil || len(a) != 1 || len(a[0]) < 32 || string(a[0]) == string(b[0]) {
		t.Errorf("%x %v, %x %v", a, err, b, err2)
	}
	ring, err := keys.OpenRing(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if key, err := (&Keys{ring: ring}).SessionKeys("a"); err == nil {
		t.Errorf("%x without the cluster's keys", key)
	}
}
