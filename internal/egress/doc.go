// Package egress decides which addresses jobs may connect to. A job names its target, so without bounds an author
// of jobs could have a worker call what only the worker can reach: the services of its own machine, the metadata
// service of its cloud, the cluster's own API.
package egress

// Header marks a request as made for a job. A node's listener refuses it on every route: a public name, a load balancer
// or address translation may lead to a node whatever the address says, and only the request itself can tell then.
const Header = "Carillon-Job-Request"

// HeaderValue is what Header says. It names no run: a redirect takes it to hosts that are told nothing else.
const HeaderValue = "1"
