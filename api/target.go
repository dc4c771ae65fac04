package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Target says which of a cluster's groups a route is about. Package node/router sends its requests there.
type Target uint8

// The targets. The zero value is none of them: a route without a target is a mistake.
const (
	Control    Target = iota + 1 // the control group, which has what is of the whole cluster
	AtNode                       // none: the node that is asked says something of itself
	ByJob                        // the group of the job that the path names
	ByRun                        // the group of the run that the path names
	ByLetter                     // the group of the dead letter that the path names
	ByQueue                      // the group of the queue that the path names
	ByPlace                      // the group that a new job is put into
	BySession                    // the group whose leader a worker speaks to
	AcrossJobs                   // every group that has jobs
	AcrossAll                    // those and the control group
)

// mustBe panics about a route without a target: its requests would go to some group by oversight.
func (t Target) mustBe(path string) {
	if t < Control || t > AcrossAll {
		panic(fmt.Sprintf("the route %s has no target: say in its table which group it is about", path))
	}
}

// Finder finds the rows of the table that requests are for, by the rules by which they are served.
type Finder struct{ mux *http.ServeMux }

// NewFinder makes one.
func NewFinder() *Finder {
	f := &Finder{mux: http.NewServeMux()}
	for pattern, res := range resources(routes()) {
		f.mux.Handle(pattern, &demand{res: res})
	}
	return f
}

// Find is the row that a request is for, and what is in the place of the variable of its path. What is in no row is
// answered by the node that is asked.
func (f *Finder) Find(r *http.Request) (row Route, ref string) {
	_, rt := find(f.mux, r)
	if rt == nil {
		return Route{Method: r.Method, Path: r.URL.Path, Target: AtNode}, ""
	}
	return rt.row(), variable(rt.path, r.URL.EscapedPath())
}

// variable is the part of a path that stands where the pattern has a name in braces.
func variable(pattern, path string) string {
	parts := strings.Split(path, "/")
	for i, p := range strings.Split(pattern, "/") {
		if !strings.HasPrefix(p, "{") || i >= len(parts) {
			continue
		}
		value, err := url.PathUnescape(parts[i])
		if err != nil {
			return ""
		}
		if _, verb, _ := strings.Cut(p, "}"); verb != "" {
			value = strings.TrimSuffix(value, verb)
		}
		return value
	}
	return ""
}
