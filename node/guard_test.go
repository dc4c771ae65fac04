package node

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/node/forward"
)

// TestNoNodeForwardsForAStrangersPage: a page whose name was made to mean this machine, or that is of another origin,
// gets nowhere through any node. What is forwarded no longer says where it came from, so the node that is asked must
// look.
func TestNoNodeForwardsForAStrangersPage(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	for _, m := range c.members {
		for name, change := range map[string]func(*http.Request){
			"rebound":      func(r *http.Request) { r.Host = "evil.example:7400" },
			"cross-origin": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
			"forged": func(r *http.Request) {
				r.Host = "evil.example"
				r.Header.Set(forward.HeaderForwarded,
					"n9")
			},
		} {
			rq, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+m.Addr()+"/api/v1/jobs",
				strings.NewReader(`{"type":"shell","schedule":"@manual","payload":{"command":"id"}}`))
			if err != nil {
				t.Fatal(err)
			}
			change(rq)
			resp, err := m.client.Do(rq)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s through %s: %d", name, m.id(), resp.StatusCode)
			}
		}
	}
}
