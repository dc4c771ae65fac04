package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// A worker finds the groups of its cluster and reaches each leader by the group's number.
func TestFindGroups(t *testing.T) {
	for name, first := range map[string][]uint32{"groups": {1, 2}, "one": nil, "silence": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				asked := []string{}
				handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					var answer any = job.HeartbeatReply{}
					if r.URL.Path == "/api/v1/whoami" {
						answer = wire.Whoami{Name: "anyone", Groups: first}
					} else {
						asked = append(asked, r.URL.Query().Get("group"))
					}
					w.Header().Set("Content-Type", MediaJSON)
					json.NewEncoder(w).Encode(answer) //nolint:errcheck // the client hung up
				})
				h := &http.Client{Transport: inMemory{handler, name == "silence"}}
				g, hangUp := FindGroups([]string{"n1"}, WithLeaderHTTPClient(h))
				defer hangUp()
				known, err := g.List(t.Context())
				if (err != nil) != (name == "silence") || !slices.Equal(known, first) {
					t.Fatalf("groups %v, %v", known, err)
				}
				for _, number := range known {
					if _, err := g.Leader(number).Heartbeat(t.Context(), job.Heartbeat{}); err != nil {
						t.Error(err)
					}
				}
				for i, number := range known {
					if asked[i] != fmt.Sprint(number) {
						t.Errorf("asked for groups %v", asked)
					}
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
