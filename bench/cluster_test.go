package bench

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
)

// All groups have their replicas and leaders, but one node has not heard yet that they take jobs: the bench would give
// it jobs that are refused.
func TestBegunWhenAllNodesKnowTheGroups(t *testing.T) {
	t.Parallel()
	var behind atomic.Int32 // how often the node that is behind is still to be asked
	behind.Store(3)
	c := &Cluster{}
	for _, id := range []string{"n1", "n2", "n3"} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			s := wire.Status{Node: id, Leader: "n1", Ready: true, Groups: []wire.GroupStatus{{ID: 0, Leader: "n1"}}}
			for i, leader := range []string{"n1", "n2"} {
				s.Groups = append(s.Groups, wire.GroupStatus{ID: uint32(i + 1), Leader: leader, Members: []string{"n1", "n2", "n3"}})
			}
			if id == "n3" {
				switch behind.Add(-1) {
				case 2:
					s.Groups = s.Groups[:1]
				case 1, 0:
					s.Growth = &wire.Growth{Want: 2}
				}
			}
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(s); err != nil {
				t.Error(err)
			}
		}))
		t.Cleanup(srv.Close)
		c.addrs = append(c.addrs, strings.TrimPrefix(srv.URL, "http://"))
	}
	if err := c.begun(t.Context(), 3, 2); err != nil || behind.Load() >= 0 {
		t.Errorf("%v; node n3 was to be asked %d times more", err, behind.Load()+1)
	}
}
