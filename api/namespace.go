package api

import (
	"cmp"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

// Scope is the part of the state that a request is about: a namespace, and whose request it is.
type Scope struct {
	// Namespace is the one that names are of and lists are about; job.AllNamespaces for a list over all of them. Empty
	// is the usual one.
	Namespace string
	Given     bool // the request names it: what is named by an id is in it, or is not found
	All       bool // the caller may see every namespace
}

// Space is the namespace, never empty.
func (s Scope) Space() string { return cmp.Or(s.Namespace, job.DefaultNamespace) }

// Lists says that a list shows what is in a namespace.
func (s Scope) Lists(namespace string) bool {
	return s.Namespace == job.AllNamespaces || s.Space() == namespace
}

// Finds says that something in a namespace is found by its id: an id needs no namespace to be unique, so a caller who
// may see all of them need not know it.
func (s Scope) Finds(namespace string) bool { return s.Anywhere() || s.Lists(namespace) }

// Anywhere says that ids of every namespace are found.
func (s Scope) Anywhere() bool { return s.All && !s.Given }

const namespaceParam = "namespace"

// namespaced gives the routes of what lives in namespaces their parameter. Whatever they do goes by call.scope.
func namespaced(table []route) []route {
	for i := range table {
		table[i].query = append(slices.Clone(table[i].query), namespaceParam)
	}
	return table
}

// listing says that a route lists things, and may do so over all namespaces.
func (rt *route) listing() bool { return rt.method == "GET" && !strings.Contains(rt.path, "{") }

// namespace is the scope of the call. The parameter is taken out of the query: it selects nothing else.
func (c *call) namespace() (Scope, error) {
	s := Scope{Namespace: job.DefaultNamespace, All: c.seesAll()}
	given, err := c.one(namespaceParam)
	if err != nil || !c.query.Has(namespaceParam) {
		return s, err
	}
	c.query.Del(namespaceParam)
	if given == job.AllNamespaces && !c.route.listing() {
		return s, job.Invalid(namespaceParam, "name the namespace", "%q stands for all of them in lists only", given)
	}
	s.Namespace, s.Given = given, true
	if given != job.AllNamespaces {
		err = job.CheckNamespace(given)
	}
	return s, err
}

// seesAll says that the caller may see every namespace.
func (c *call) seesAll() bool { return true }

// into is the namespace of a document that names one itself, or leaves that to the request.
func (c *call) into(inBody string) (string, error) {
	switch {
	case inBody == "":
		return c.scope.Space(), nil
	case c.scope.Given && inBody != c.scope.Namespace:
		return "", job.Invalid(namespaceParam, "leave one of them out",
			"the document says %q and the request %q", inBody, c.scope.Namespace)
	}
	return inBody, job.CheckNamespace(inBody)
}
