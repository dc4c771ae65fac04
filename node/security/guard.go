package security

import (
	"net/http"
	"strings"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

// MembersOnly refuses, on a secure cluster, what is not for strangers and not for nodes that were removed. Those may
// still hear that they were, and their workers hand in what they have.
func (k *Keys) MembersOnly(next http.Handler, belongs func(keys.Peer) bool) http.Handler {
	if k.ring == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, ok := keys.PeerOf(r.Context())
		switch {
		case !ok && strings.HasPrefix(r.URL.Path, "/internal/"):
			api.WriteError(w, job.Errorf(job.CodeForbidden, "",
				"this is only for nodes of the cluster, which have a certificate"))
		case ok && !belongs(p) && !leaving[r.URL.Path]:
			api.WriteError(w, job.Errorf(job.CodeForbidden,
				"stop it; to bring it back, empty its data directory and start it with --join",
				"node %s was removed from the cluster", p.Node))
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// leaving is what a node that was removed may still ask for.
var leaving = map[string]bool{
	"/internal/v1/announce":     true,
	"/internal/v1/formation":    true, // and one that lost its directory
	"/api/v1/workers:poll":      true,
	"/api/v1/workers:heartbeat": true,
	"/api/v1/workers:report":    true,
	"/api/v1/workers:output":    true,
}
