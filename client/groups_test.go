package client

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// A worker finds the groups of its cluster, reaches each leader by the group's number, and hears of new ones. A cluster
// that names none, or does not answer, has one.
func TestFindGroups(t *testing.T) {
	for name, first := range map[string][]uint32{"groups": {1, 2}, "one": {0}, "silence": {0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				groups, asked := first, []string{}
				if name == "one" {
					groups = nil
				}
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					var answer any = job.HeartbeatReply{}
					if r.URL.Path == "/api/v1/whoami" {
						answer = wire.Whoami{Name: "anyone", Groups: groups}
					} else {
						asked = append(asked, r.URL.Query().Get("group"))
					}
					w.Header().Set("Content-Type", MediaJSON)
					json.NewEncoder(w).Encode(answer) //nolint:errcheck // the client hung up
				})
				h := &http.Client{Transport: inMemory{handler, name == "silence"}}
				g := FindGroups(t.Context(), []string{"n1"}, WithLeaderHTTPClient(h))
				defer g.Close()
				known, changed := g.List()
				if !slices.Equal(known, first) {
					t.Fatalf("groups %v", known)
				}
				if name != "groups" {
					return
				}
				for _, number := range known {
					if _, err := g.Leader(number).Heartbeat(t.Context(), job.Heartbeat{}); err != nil {
						t.Error(err)
					}
				}
				mu.Lock()
				groups = []uint32{1, 2, 3}
				if !slices.Equal(asked, []string{"1", "2"}) {
					t.Errorf("asked for groups %v", asked)
				}
				mu.Unlock()
				<-changed
				if known, _ = g.List(); !slices.Equal(known, groups) {
					t.Errorf("groups %v", known)
				}
			})
		})
	}
}

// inMemory answers requests without a network, or not at all.
type inMemory struct {
	http.Handler
	silent bool
}

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	if m.silent {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	return w.Result(), nil
}
