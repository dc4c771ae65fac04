package api

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "bring the tables of docs/api.md up to date")

const docsFile = "../docs/api.md"

// docsRow is a route in docs/api.md: its name, role and description.
var docsRow = regexp.MustCompile("(?m)^\\| `((?:[A-Z]+ )?/[^`]*)` \\| (\\w*) \\|(.*)\n")

// upToDate has every route and endpoint with its role. One that is new comes after the one before it in the table, with
// what the OpenAPI document says about it.
func upToDate(t *testing.T, text string) string {
	type row struct{ name, role, about string }
	var rows []row
	for _, rt := range routes() {
		about, _ := at(document(t), "paths", rt.path, strings.ToLower(rt.method), "summary").(string)
		rows = append(rows, row{rt.method + " " + strings.TrimPrefix(rt.path, prefix), rt.role.String(), " " + about + " |"})
	}
	for _, e := range debugEndpoints() {
		rows = append(rows, row{e.Path, e.Role.String(), " |"})
	}
	end := 0 // of the row before
	for _, r := range rows {
		line, from, to := "| `"+r.name+"` | "+r.role+" |"+r.about+"\n", end, end
		for _, m := range docsRow.FindAllStringSubmatchIndex(text, -1) {
			if text[m[2]:m[3]] == r.name {
				line, from, to = "| `"+r.name+"` | "+r.role+" |"+text[m[6]:m[7]]+"\n", m[0], m[1]
			}
		}
		text = text[:from] + line + text[to:]
		end = from + len(line)
	}
	return text
}

// docs/api.md has every route and endpoint with its role, once, and no other. What is internal, and the page, is held by
// the node's own tests.
func TestDocsHaveEveryRouteWithItsRole(t *testing.T) {
	data, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	text := upToDate(t, string(data))
	if *update {
		if err := os.WriteFile(docsFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if text != string(data) {
		t.Error("docs/api.md has not every route with its role: run `go test ./api -run Docs -update` and read the diff")
	}
	known := map[string]bool{}
	for _, rt := range routes() {
		known[rt.method+" "+strings.TrimPrefix(rt.path, prefix)] = true
	}
	for _, e := range debugEndpoints() {
		known[e.Path] = true
	}
	for _, m := range docsRow.FindAllStringSubmatch(text, -1) {
		if !known[m[1]] && !strings.HasPrefix(m[1], "/internal/") && m[1] != "/" && !strings.HasPrefix(m[1], "/ui") {
			t.Errorf("docs/api.md has `%s` twice, or it is no route", m[1])
		}
		delete(known, m[1])
	}
}

// A read needs no more than a viewer, and what changes something more than that.
func TestRolesFitTheirMethods(t *testing.T) {
	for _, rt := range routes() {
		reads := rt.method == "GET" || rt.path == prefix+"/schedule:preview"
		secret := slices.Contains([]string{"/backup", "/tokens", "/join-tokens", "/audit", "/audit:export"},
			strings.TrimPrefix(rt.path, prefix))
		if rt.path == prefix+"/cluster:join" {
			continue // a join token, or a member's certificate, is asked for by the leader
		}
		if looks := rt.role == Viewer || rt.role == Anyone || rt.role == Holder; looks != reads && !secret {
			t.Errorf("%s %s is for the role %s", rt.method, rt.path, rt.role)
		}
	}
	if got := roleOf("GET", "/backup"); got != Admin {
		t.Errorf("a backup, which has every payload, is for the role %s", got)
	}
}

func roleOf(method, path string) Role {
	for _, rt := range routes() {
		if rt.method == method && rt.path == prefix+path {
			return rt.role
		}
	}
	return 0
}

// What is added without a role or without a bound is noticed when the handler is made, not when it is abused.
func TestNoRoutePassesWithoutARole(t *testing.T) {
	refused := func(f func()) (why any) {
		defer func() { why = recover() }()
		f()
		return nil
	}
	h := &handler{}
	for name, f := range map[string]func(){
		"a route":     func() { h.register([]route{{method: "GET", path: "/x"}}) },
		"an endpoint": func() { ByPath([]Endpoint{{Path: "/x"}}) },
	} {
		if why, _ := refused(f).(string); !strings.Contains(why, "/x has no role") {
			t.Errorf("%s without a role: %q", name, why)
		}
	}
	for name, f := range map[string]func(){
		"a route":     func() { h.register([]route{{method: "GET", path: "/x", role: Viewer, target: Control}}) },
		"an endpoint": func() { ByPath([]Endpoint{{Path: "/x", Role: Admin}}) },
		"another":     func() { Authorize(nil, nil, "n1", Limits{}, Endpoint{Path: "/x", Role: Admin}) },
	} {
		if why, _ := refused(f).(string); !strings.Contains(why, "/x has no bound") {
			t.Errorf("%s without a bound: %q", name, why)
		}
	}
}
