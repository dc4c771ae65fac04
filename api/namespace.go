package api

import (
	"cmp"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

// Space is the part of the state that a request is about: a namespace, and whose request it is.
type Space struct {
	// Namespace is the one that names are of and lists are about; job.AllNamespaces for a list over all of them. Empty
	// is the usual one.
	Namespace string
	Given     bool // the request names it: what is named by an id is in it, or is not found
	All       bool // the caller may see every namespace
}

// Name is the namespace, never empty.
func (s Space) Name() string { return cmp.Or(s.Namespace, job.DefaultNamespace) }

// Lists says that a list shows what is in a namespace.
func (s Space) Lists(namespace string) bool {
	return s.Namespace == job.AllNamespaces || s.Name() == namespace
}

// Finds says that something in a namespace is found by its id: an id needs no namespace to be unique, so a caller who
// may see all of them need not know it.
func (s Space) Finds(namespace string) bool { return s.Anywhere() || s.Lists(namespace) }

// Anywhere says that ids of every namespace are found.
func (s Space) Anywhere() bool { return s.All && !s.Given }

const namespaceParam = "namespace"

// namespaced gives the routes of what lives in namespaces their parameter. Whatever they do goes by call.space.
func namespaced(table []route) []route {
	for i := range table {
		table[i].query = append(slices.Clone(table[i].query), namespaceParam)
	}
	return table
}

// listing says that a route lists things, and may do so over all namespaces.
func (rt *route) listing() bool { return rt.method == "GET" && !strings.Contains(rt.path, "{") }

// namespace is what the call is about. The parameter is taken out of the query: it selects nothing else.
func (c *call) namespace() (Space, error) {
	id := IdentityOf(c.r.Context())
	s := Space{Namespace: cmp.Or(id.home(), job.DefaultNamespace), All: id.home() == ""}
	given, err := c.one(namespaceParam)
	if err != nil || !c.query.Has(namespaceParam) {
		return s, err
	}
	c.query.Del(namespaceParam)
	if given == job.AllNamespaces && !c.route.listing() {
		return s, job.Invalid(namespaceParam, "name the namespace", "%q means all namespaces, which only lists "+
			"support", given)
	}
	if err := id.keepsTo(given); err != nil {
		return s, err
	}
	s.Namespace, s.Given = given, true
	if given != job.AllNamespaces {
		err = job.CheckNamespace(given)
	}
	return s, err
}

// home is the namespace that a caller's token is for; empty: all of them.
func (id *Identity) home() string {
	if id == nil {
		return ""
	}
	return id.Namespace
}

// keepsTo refuses another namespace than the one that a caller's token is for.
func (id *Identity) keepsTo(namespace string) error {
	if home := id.home(); home == "" || home == namespace {
		return nil
	}
	return job.Errorf(job.CodeForbidden, "leave the namespace out, or use a token for it",
		"the token %s is for the namespace %s, not for %q", id.Name, id.Namespace, namespace)
}

// into is the namespace of a document that names one itself, or leaves that to the request.
func (c *call) into(inBody string) (string, error) {
	switch {
	case inBody == "":
		return c.space.Name(), nil
	case c.space.Given && inBody != c.space.Namespace:
		return "", job.Invalid(namespaceParam, "leave one of them out",
			"the document says %q and the request %q", inBody, c.space.Namespace)
	}
	if err := IdentityOf(c.r.Context()).keepsTo(inBody); err != nil {
		return "", err
	}
	return inBody, job.CheckNamespace(inBody)
}
