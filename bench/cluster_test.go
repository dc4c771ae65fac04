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

// All groups have their replicas and leaders, but not all nodes know yet that they take jobs: the bench would have jobs
// put into some of them only.
func TestBegunWhenTheGrowthIsDone(t *testing.T) {
	t.Parallel()
	var left atomic.Int32 // how often the status still says that the cluster is growing
	left.Store(2)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s := wire.Status{Node: "n1", Leader: "n1", Ready: true, Groups: []wire.GroupStatus{{ID: 0, Leader: "n1"}}}
		for i, leader := range []string{"n1", "n2"} {
			s.Groups = append(s.Groups, wire.GroupStatus{ID: uint32(i + 1), Leader: leader, Members: []string{"n1", "n2", "n3"}})
		}
		if left.Add(-1) >= 0 {
			s.Growth = &wire.Growth{Groups: 2, Want: 2}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(s); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(srv.Close)
	c := &Cluster{addrs: []string{strings.TrimPrefix(srv.URL, "http://")}}
	if err := c.begun(t.Context(), 3, 2); err != nil || left.Load() >= 0 {
		t.Errorf("%v; it was to be asked %d times more", err, left.Load()+1)
	}
}
