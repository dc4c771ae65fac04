package apitest_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
)

// routeOf finds the route that a path belongs to.
func routeOf(method, path string) string {
	path, _, _ = strings.Cut(path, "?")
	for _, rt := range api.Routes() {
		if rt.Method == method && fits(rt.Path, path) {
			return rt.Path
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

// namespacedRoutes are those of what lives in namespaces.
func namespacedRoutes() []api.Route {
	return slices.DeleteFunc(api.Routes(), func(rt api.Route) bool { return !rt.Namespaced })
}

type dict = map[string]any

// document is the OpenAPI document as clients get it.
var document = sync.OnceValues(func() (doc dict, err error) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/api/v1/openapi.json", nil)
	api.New(none, api.Options{}).ServeHTTP(w, r)
	return doc, json.Unmarshal(w.Body.Bytes(), &doc)
})

func at(v any, path ...string) any {
	for _, p := range path {
		m, ok := v.(dict)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

// conforms checks an answer against what the OpenAPI document says about it.
func conforms(t testing.TB, method, path string, status int, media string, body []byte) error {
	t.Helper()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
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

func resolve(doc dict, ref string) any {
	return at(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

// conform checks a decoded value against a schema of the document. It knows the keywords that the document uses.
func conform(doc dict, schema, v any, where string) error {
	s, ok := schema.(dict)
	if !ok {
		return fmt.Errorf("%s: there is no schema", where)
	}
	if ref, ok := s["$ref"].(string); ok {
		return conform(doc, resolve(doc, ref), v, where)
	}
	if err := conformMore(doc, s, v, where); err != nil {
		return err
	}
	if any, ok := s["anyOf"].([]any); ok {
		var last error
		for _, one := range any {
			if last = conform(doc, one, v, where); last == nil {
				return nil
			}
		}
		return last
	}
	if !typeFits(s["type"], v) {
		return fmt.Errorf("%s: %v is not %v", where, v, s["type"])
	}
	if enum, ok := s["enum"].([]any); ok && v != nil && !slices.Contains(enum, v) {
		return fmt.Errorf("%s: %v is not one of %v", where, v, enum)
	}
	if text, ok := v.(string); ok {
		if p, ok := s["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(text) {
			return fmt.Errorf("%s: %q does not match %s", where, text, p)
		}
		if _, err := time.Parse(time.RFC3339Nano, text); s["format"] == "date-time" && err != nil {
			return fmt.Errorf("%s: %v", where, err)
		}
	}
	if list, ok := v.([]any); ok && s["items"] != nil {
		for i, e := range list {
			if err := conform(doc, s["items"], e, fmt.Sprintf("%s[%d]", where, i)); err != nil {
				return err
			}
		}
	}
	if m, ok := v.(dict); ok {
		return conformObject(doc, s, m, where)
	}
	return nil
}

// conformMore has the keywords that only the schema of job files uses.
func conformMore(doc, s dict, v any, where string) error {
	all, _ := s["allOf"].([]any)
	for _, one := range all {
		if err := conform(doc, one, v, where); err != nil {
			return err
		}
	}
	if cond, ok := s["if"]; ok {
		branch := s["then"]
		if conform(doc, cond, v, where) != nil {
			branch = s["else"]
		}
		if branch != nil {
			if err := conform(doc, branch, v, where); err != nil {
				return err
			}
		}
	}
	if want, ok := s["const"]; ok && v != want {
		return fmt.Errorf("%s: %v is not %v", where, v, want)
	}
	if n, ok := v.(float64); ok {
		if least, ok := s["minimum"].(float64); ok && n < least {
			return fmt.Errorf("%s: %v is less than %v", where, n, least)
		}
		if most, ok := s["maximum"].(float64); ok && n > most {
			return fmt.Errorf("%s: %v is more than %v", where, n, most)
		}
	}
	return nil
}

func conformObject(doc, s, m dict, where string) error {
	props, _ := s["properties"].(dict)
	required, _ := s["required"].([]any)
	for _, r := range required {
		if _, ok := m[r.(string)]; !ok {
			return fmt.Errorf("%s: %s is missing", where, r)
		}
	}
	for k, e := range m {
		p, ok := props[k]
		if !ok {
			if s["additionalProperties"] == false {
				return fmt.Errorf("%s: %s is not documented", where, k)
			}
			if p, ok = s["additionalProperties"].(dict); !ok {
				continue
			}
		}
		if err := conform(doc, p, e, where+"."+k); err != nil {
			return err
		}
	}
	return nil
}

func typeFits(want, v any) bool {
	if list, ok := want.([]any); ok {
		return slices.ContainsFunc(list, func(w any) bool { return typeFits(w, v) })
	}
	switch want {
	case nil:
		return true
	case "null":
		return v == nil
	case "string":
		_, ok := v.(string)
		return ok
	case "boolean":
		_, ok := v.(bool)
		return ok
	case "array":
		_, ok := v.([]any)
		return ok
	case "object":
		_, ok := v.(dict)
		return ok
	case "number":
		_, ok := v.(float64)
		return ok
	case "integer":
		f, ok := v.(float64)
		return ok && f == math.Trunc(f)
	}
	return false
}
