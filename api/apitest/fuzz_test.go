package apitest_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// FuzzHandlers: whatever arrives, nothing panics, and what is refused is refused with a problem that names a code.
func FuzzHandlers(f *testing.F) {
	for _, rt := range api.Routes() {
		path := strings.NewReplacer("{ref}", "daily", "{name}", "xmas", "{queue}", "q").Replace(rt.Path)
		f.Add(rt.Method, path, "", "", "", spec)
		f.Add(rt.Method, path, "limit=1&cursor=1&stale=true", "k", `"1"`, `{"version":1}`)
	}
	f.Add("POST", "/api/v1/jobs:bulk", "", "", "", line("a")+"{\n\n"+line("b"))
	f.Add("PATCH", "/api/v1/jobs/daily", "", "", "", `{"payload":{"body":{"a":[1,{"b":null}]}},"retry":null}`)
	f.Add("POST", "/api/v1/schedule:preview", "", "", "", `{"schedule":"0 2 * * 1#5","timezone":"Africa/Cairo","count":100}`)
	f.Add("PUT", "/api/v1/calendars/x", "", "", "", `{"windows":[{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z"}]}`)
	f.Add("DELETE", "/api/v1/dead", "ids=1,2&all=1", "", "", "")
	f.Add("POST", "/api/v1/workers:report", "queue=q", "", "", `{"results":[{"claim":"c_1.5.m.7","outcome":"failed","error":"e","retry_after":"3s"},{}]}`)
	f.Add("POST", "/api/v1/workers:poll", "queue=q&namespace=default", "", "", `{"free":3,"wait":"1s","tags":{"a":"b"}}`)
	f.Add("GET", "/api/v1/jobs/%2e%2e", "", "", "", "")
	f.Add("GET", "*", "", "", "", "")
	h := api.New(world(f).Backend, api.Options{Workers: failing(job.Errorf(job.CodeNotReady, "", "no"))})
	f.Fuzz(func(t *testing.T, method, path, query, key, match, body string) {
		if len(body) > 1<<16 {
			return
		}
		r := &http.Request{Method: method, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "x", Header: http.Header{}, RequestURI: path,
			URL: &url.URL{Path: path, RawQuery: query}, ContentLength: int64(len(body))}
		r = r.WithContext(t.Context())
		r.Body = http.NoBody
		if body != "" {
			r.Body = readCloser{strings.NewReader(body)}
		}
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		if match != "" {
			r.Header.Set("If-Match", match)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code < 400 {
			return
		}
		var p wire.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Code == "" || p.Message == "" || p.Status != w.Code {
			t.Errorf("%d: not a problem (%v): %q", w.Code, err, w.Body)
		}
		if w.Code == http.StatusInternalServerError {
			t.Errorf("an internal error: %s", w.Body)
		}
	})
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }
