package api

import (
	"fmt"
	"net/http"
)

// Role says who may call a route. Nothing enforces it yet: there is no authentication, and everybody who reaches the
// port of a node may call everything. It is said in the tables all the same, so that no route is added without the
// question being asked.
type Role uint8

// The roles. The zero value is none of them: a route without a role is a mistake.
const (
	Anyone   Role = iota + 1 // probes of load balancers and supervisors, which have no credentials
	Viewer                   // reads, and what changes nothing
	Operator                 // changes jobs, runs, dead letters, calendars and queues
	Admin                    // changes the cluster, or sees all of it: membership, clock, backups, memory
	Worker                   // takes runs and reports them
	Node                     // another node of the cluster
)

var roleNames = map[Role]string{
	Anyone: "anyone", Viewer: "viewer", Operator: "operator", Admin: "admin", Worker: "worker", Node: "node",
}

// String is the role as the documents have it.
func (r Role) String() string { return roleNames[r] }

// mustBe panics about a route without a role: it would be open to all, or closed to all, by oversight.
func (r Role) mustBe(path string) {
	if roleNames[r] == "" {
		panic(fmt.Sprintf("the route %s has no role: say in its table who may call it", path))
	}
}

// Endpoint is a path of a node's port that is not of the API: no document describes it to clients, and it is served by
// the node that is asked.
type Endpoint struct {
	Path  string
	Role  Role
	Serve http.HandlerFunc
}

// ByPath looks endpoints up. It panics about one without a role.
func ByPath(list []Endpoint) map[string]http.HandlerFunc {
	out := make(map[string]http.HandlerFunc, len(list))
	for _, e := range list {
		e.Role.mustBe(e.Path)
		out[e.Path] = e.Serve
	}
	return out
}
