package node

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
)

// Whoever names a group in a request that is not a worker's gets the answer of everybody else, on a cluster without
// groups and on one with some.
func TestGroupOfARequestThatIsNoWorkers(t *testing.T) {
	one, several := start(t, t.TempDir()), startGroups(t, 2, unhurried).members[0].testNode
	for name, n := range map[string]*testNode{"one group": one, "several": several} {
		n.create(map[string]any{"name": "a", "type": "queue", "schedule": "0 3 * * *", "payload": map[string]any{"queue": "q"}})
		for _, path := range []string{"/jobs", "/runs", "/dead", "/upcoming", "/stats", "/queues", "/status", "/jobs/a", "/jobs/a/runs"} {
			want := n.answered("GET", "/api/v1"+path, nil)
			for _, group := range []string{"0", "1", "2", "7", "4294967296", "x"} {
				got := n.answered("GET", "/api/v1"+path, nil, wire.GroupHeader, group)
				if got.status != http.StatusOK || want.status != got.status || strings.Contains(path, "jobs") && string(want.body) != string(got.body) {
					t.Errorf("%s, %s for group %s: %d %s", name, path, group, got.status, got.body)
				}
			}
		}
	}
}
