package router_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/router"
)

// A node's lists in pages of one row through the router, whose cursors it makes itself of the rows, are the node's own.
func TestCursorsOfRowsAreThoseOfANode(t *testing.T) {
	n := apitest.Start(t)
	node := api.New(n.Backend, n.Options)
	w := router.New(router.Options{
		Groups: func() []uint32 { return []uint32{0, 1} },
		Handler: func(g uint32) http.Handler {
			return map[uint32]http.Handler{0: node, 1: api.New(&fake{}, api.Options{})}[g]
		},
		Home:  func(job.NameKind, string, string) uint32 { return 0 },
		Place: func(string, string, string, string) uint32 { return 0 },
	})
	var in strings.Builder
	for _, name := range []string{"xa", "xb", "xc", "xd"} {
		in.WriteString(`{"name":"` + name + `","schedule":"@every 60s","type":"queue","payload":{"queue":"q"}}` + "\n")
	}
	if rec := call(t, node, "POST", "/jobs:bulk", in.String(), nil); strings.Count(rec.Body.String(), "created") != 4 {
		t.Fatal(rec.Body)
	}
	one, all := func() int { return 1 }, func() int { return 100 }
	for _, target := range []string{"/jobs", "/jobs?prefix=x", "/jobs?q=X&namespace=*"} {
		got, want := walk(t, w, target, one, jobsOf), walk(t, node, target, all, jobsOf)
		if same(t, 0, target, got, want); len(got) == 0 {
			t.Errorf("%s is empty", target)
		}
	}
	var first wire.UpcomingPage
	call(t, node, "GET", "/upcoming?limit=9", "", &first)
	cursor := ""
	for i := range first.Occurrences {
		var p wire.UpcomingPage
		call(t, w, "GET", "/upcoming?limit=1&cursor="+cursor, "", &p)
		same(t, 0, "/upcoming", p.Occurrences, first.Occurrences[i:i+1])
		cursor = p.NextCursor
	}
	var audits wire.AuditPage
	call(t, node, "GET", "/audit", "", &audits)
	same(t, 0, "/audit", walk(t, w, "/audit", one, auditOf), audits.Records)
}
