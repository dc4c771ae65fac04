package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
)

// RoutePaths are method and path of every route.
func RoutePaths() [][2]string {
	var out [][2]string
	for _, rt := range routes() {
		out = append(out, [2]string{rt.method, rt.path})
	}
	return out
}

// NamespacedRoutes are method and path of the routes of what lives in namespaces; list says which may show all of them.
func NamespacedRoutes() (out [][2]string, list []bool) {
	for _, rt := range routes() {
		if slices.Contains(rt.query, namespaceParam) {
			out, list = append(out, [2]string{rt.method, rt.path}), append(list, rt.listing())
		}
	}
	return out, list
}

// RouteOf finds the route that a path belongs to.
func RouteOf(method, path string) string {
	path, _, _ = strings.Cut(path, "?")
	for _, rt := range routes() {
		if rt.method == method && fits(rt.path, path) {
			return rt.path
		}
	}
	return ""
}

func fits(pattern, path string) bool {
	a, b := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		_, verb, _ := strings.Cut(a[i], "}")
		switch {
		case !strings.HasPrefix(a[i], "{"):
			if a[i] != b[i] {
				return false
			}
		case verb != "" && !strings.HasSuffix(b[i], verb), verb == "" && strings.Contains(b[i], ":"):
			return false
		}
	}
	return true
}

// Conforms checks an answer against what the OpenAPI document says about it.
func Conforms(t testing.TB, method, path string, status int, media string, body []byte) error {
	doc := document(t)
	responses := at(doc, "paths", path, strings.ToLower(method), "responses")
	answer := at(responses, strconv.Itoa(status))
	if answer == nil {
		if status < 400 {
			return fmt.Errorf("the status %d is not documented", status)
		}
		answer = at(responses, "default")
	}
	content := at(answer, "content")
	if content == nil {
		if len(body) > 0 {
			return fmt.Errorf("a body %q where none is documented", body)
		}
		return nil
	}
	schema := at(content, media, "schema")
	if schema == nil {
		return fmt.Errorf("the media type %q is not documented", media)
	}
	docs := [][]byte{body}
	if media == "application/x-ndjson" {
		docs = nil
		for line := range strings.Lines(string(body)) {
			docs = append(docs, []byte(line))
		}
	} else if media == "text/plain" || media == "text/event-stream" || media == wire.MediaBackup {
		return nil
	}
	for _, d := range docs {
		var v any
		if err := json.Unmarshal(d, &v); err != nil {
			return err
		}
		if err := conform(doc, schema, v, "body"); err != nil {
			return err
		}
	}
	return nil
}

// AppendResult is a line's answer.
var AppendResult = appendResult

// TableRow is a route as tests see it.
type TableRow struct {
	Method, Path string
	Role         Role
	Scope        Scope
}

// RouteTable are all routes.
func RouteTable() (rows []TableRow) {
	for _, rt := range routes() {
		rows = append(rows, TableRow{rt.method, rt.path, rt.role, rt.scope()})
	}
	return rows
}
