// Package guard keeps out of a node's port what a browser sends on behalf of another site's page, and what jobs send.
package guard

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/egress"
	"github.com/carillon-scheduler/carillon/job"
)

// Refuse answers a request with an error.
type Refuse func(http.ResponseWriter, error)

// Handler keeps out what jobs send (guardJobs), and what a browser sends on behalf of another site's page: under
// another name (guardHost), or across origins. A page that happens to be open must not be able to submit a shell job to
// a node on the same machine, and a browser can send a body without a content type anywhere.
func Handler(next http.Handler, refuse Refuse, secure bool, hosts ...string) http.Handler {
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, job.Errorf(job.CodeForbidden, "call the API from its own page, or from outside a browser",
			"cross-origin requests may not change anything"))
	}))
	return guardJobs(guardHost(origin.Handler(next), refuse, secure, hosts...), refuse)
}

// guardJobs refuses what an http job or a webhook of one was made to send here, on every route: who may submit a job
// could otherwise do through a worker, from inside, what they may not do themselves. By its address such a call cannot
// be told: behind a load balancer, a public name or address translation a node has addresses that it does not know.
func guardJobs(next http.Handler, refuse Refuse) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Header[egress.Header]; ok {
			refuse(w, job.Errorf(job.CodeForbidden, "call the API from a shell job, a worker or outside any job",
				"the header %s says that this request comes from an HTTP job or a webhook, and those may not call a "+
					"node", egress.Header))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// guardHost refuses requests under a name that is not this node's. A page whose own name was made to mean the node's
// address (DNS rebinding) is of the same origin to the browser, and might read everything and submit shell jobs; only
// the Host header gives it away. Every other header is in its power, so none makes an exception. hosts are names, with
// or without a port, that are allowed besides localhost.
//
// An address is nothing that could be made to mean another one: a page from there is the node's own. Over the loopback
// interface it must be a loopback address. On a secure cluster a page has no token, whatever it is called, and names
// count over the loopback interface only.
func guardHost(next http.Handler, refuse Refuse, secure bool, hosts ...string) http.Handler {
	allowed := map[string]bool{"localhost": true, "": true} // HTTP/1.0 has none, and no browser speaks it
	for _, h := range hosts {
		allowed[hostname(h)] = true
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := hostname(r.Host)
		ip, err := netip.ParseAddr(name)
		isAddress := err == nil
		// The unspecified one as a destination means the same.
		isOwn := isAddress && (ip.Unmap().IsLoopback() || ip.IsUnspecified())
		local, remote := reachedOver(r)
		switch {
		case allowed[name], !local && (!remote || secure || isAddress), local && isOwn:
			next.ServeHTTP(w, r)
		case local:
			refuse(w, job.Errorf(job.CodeForbidden,
				"use localhost, a loopback address or the name that the node advertises",
				"%q is not a name of this node on the loopback interface", r.Host))
		default:
			refuse(w, job.Errorf(job.CodeForbidden,
				"use the node's address or the name that it advertises, or start it with --allowed-hosts "+name,
				"%q is not a name of this node", r.Host))
		}
	})
}

// reachedOver says whether a request came over the loopback interface, or over another one. What came by a socket of
// the file system came over none.
func reachedOver(r *http.Request) (local, remote bool) {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && addr.IP.IsLoopback(), ok && !addr.IP.IsLoopback()
}

// hostname is a host without its port, as names are compared.
func hostname(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// LostName refuses a path in which a name would be lost: ServeMux sends such a request elsewhere, where it means
// something else. prefix is that of the paths with names.
func LostName(prefix, path string) error {
	rest, ok := strings.CutPrefix(path, prefix+"/")
	if !ok {
		return nil
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(rest, "/"), "/") {
		switch name, _, verb := strings.Cut(part, ":"); {
		case part == "" || verb && name == "":
			return job.Errorf(job.CodeInvalid, "give the name or the id", "a name in the path %s is empty", path)
		case name == "." || name == "..":
			return job.Errorf(job.CodeInvalid, "give the name or the id", "%q in the path %s is not a name", name, path)
		}
	}
	return nil
}
