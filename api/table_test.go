package api

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/expand"
	"github.com/carillon-scheduler/carillon/job"
)

const boundsFile = "testdata/bounds.txt"

// The file has every route with what bounds it: the bytes of a body, those that its values may take in memory, the pool
// that it is in, by which rate it is counted, and as whom the leader judges it if a node passes it on. A route that is not in it, or is bounded
// otherwise, does not pass: run with -update and read the diff. Package node has the same for what is not of the API.
func TestEveryRouteIsBounded(t *testing.T) {
	var rows []string
	for _, rt := range routes() {
		rows = append(rows, fmt.Sprintf("%s %s | %d | %d | %s | %s | %s", rt.method, rt.path, rt.most(), expands(&rt), poolName(&rt),
			rateName(&rt), passedOnAs(&rt)))
	}
	for _, e := range debugEndpoints() {
		rows = append(rows, fmt.Sprintf("%s | %d | 0 | callers | requests | answered here", e.Path, max(e.Body, 0)))
	}
	slices.Sort(rows)
	text := strings.Join(rows, "\n") + "\n"
	if *update {
		if err := os.WriteFile(boundsFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(boundsFile)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s has not every route with its bounds: run `go test ./api -run Bounded -update` and read the diff",
			boundsFile)
	}
	// Who shows no token gets to send a body to one route only, and no route that takes one is without a rate.
	for _, rt := range routes() {
		if rt.role == Anyone && rt.method != "GET" && rt.path != prefix+"/cluster:join" {
			t.Errorf("%s %s takes a body of strangers", rt.method, rt.path)
		}
		if rt.role == Node {
			t.Errorf("%s %s is for nodes: those have /internal/, which is never passed on", rt.method, rt.path)
		}
	}
}

// expands is what the values of a body may take in memory. TestBodiesDoNotExpand of package apitest holds each route to
// it.
func expands(rt *route) int64 {
	most := rt.most()
	switch {
	case most == 0 || rt.body == emptyBody:
		return 0 // nothing is decoded
	case rt.body == linesBody:
		most = 256 << 10 // of one line
	}
	return expand.Most(int(most))
}

// poolName is where the bytes of a body are counted.
func poolName(rt *route) string {
	switch {
	case rt.most() == 0:
		return "-"
	case rt.role == Anyone:
		return "strangers"
	case rt.body == linesBody:
		return "bulk"
	}
	return "callers"
}

// rateName is what a request of a token, or of a stranger, is counted by.
func rateName(rt *route) string {
	if rt.role == Anyone {
		if rt.method == "GET" {
			return string(RefusedReads)
		}
		return string(RefusedJoins)
	}
	role := job.RoleAdmin
	if rt.role == Worker {
		role = job.RoleWorker
	}
	switch kind := kindOf(&Identity{Role: role}, rt.role, rt.body); kind {
	case plainRequest:
		return string(RefusedRequests)
	case workerCall:
		return "free"
	default:
		return string(refusedOpen[kind])
	}
}

// passedOnAs is as whom the leader judges what a node passes on.
func passedOnAs(rt *route) string {
	switch {
	case rt.way == Here || rt.way == Asking:
		return "answered here"
	case rt.role == Anyone:
		return "nobody"
	}
	return "token"
}
