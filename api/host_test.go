package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
)

func TestHostOnLoopback(t *testing.T) {
	srv := httptest.NewServer(api.New(empty(t).Backend, api.Options{Hosts: []string{"sched.internal:7400"}}))
	t.Cleanup(srv.Close)
	for host, want := range map[string]int{
		"":                     200, // what the URL says, 127.0.0.1
		"localhost":            200,
		"LocalHost.:7400":      200,
		"127.8.9.1:7400":       200,
		"[::1]:7400":           200,
		"[::1]":                200,
		"0.0.0.0:7400":         200,
		"Sched.Internal":       200,
		"evil.example:7555":    403,
		"evil.example":         403,
		"127.0.0.1.evil.com":   403,
		"localhost.evil.com":   403,
		"10.0.0.1:7400":        403,
		"[fe80::1%25lo0]:7400": 403,
	} {
		for _, header := range []string{"X-Nothing", "Carillon-Forwarded"} { // a page can send either
			rq, err := http.NewRequest("GET", srv.URL+"/api/v1/jobs", nil)
			if err != nil {
				t.Fatal(err)
			}
			rq.Host = host
			rq.Header.Set(header, "n1")
			resp, err := http.DefaultClient.Do(rq)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s, %s: %d, want %d", host, header, resp.StatusCode, want)
			}
		}
	}
	// Elsewhere than on the loopback interface names are no secret.
	w := httptest.NewRecorder()
	rq := httptest.NewRequest("GET", "http://evil.example/api/v1/jobs", strings.NewReader(""))
	api.New(empty(t).Backend, api.Options{}).ServeHTTP(w, rq)
	if w.Code != 200 {
		t.Error(w.Code, w.Body)
	}
}
