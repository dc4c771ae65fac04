package apitest_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// A stream belongs to its token: it shows what that may see, and ends with it.
func TestEventsKeepToTheirToken(t *testing.T) {
	n := apitest.Start(t, apitest.Secure)
	srv := httptest.NewServer(n.Node.Handler())
	defer srv.Close()
	spec := job.Spec{Name: "tick", Namespace: "team-b", Type: job.TypeHTTP, Schedule: "@manual",
		Payload: []byte(`{"url":"http://127.0.0.1:1/"}`)}
	j, _, err := n.Backend.CreateJob(t.Context(), spec, api.Request{Key: "1", Space: api.Space{All: true}})
	if err != nil {
		t.Fatal(err)
	}
	made, err := n.Backend.CreateToken(t.Context(), wire.TokenRequest{Name: "screen", Role: "viewer", Namespace: "team-a",
		TTL: job.Duration(time.Hour)}, api.Request{Key: "2"})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) *http.Response {
		t.Helper()
		rq, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/api/v1/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		rq.Header.Set("Authorization", "Bearer "+made.Text)
		resp, err := srv.Client().Do(rq)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	for path, want := range map[string]int{"events?topics=cluster": 403, "events?topics=stats&namespace=*": 403,
		"events?topics=job:" + j.ID.String(): 404, "events?topics=job:tick": 404, "events?namespace=team-b": 403,
		"stats?namespace=*": 403, "stats?namespace=team-b": 403, "stats": 200} {
		resp := get(path)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
	resp := get("events?topics=stats")
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	var text []string
	for lines.Scan() {
		text = append(text, lines.Text())
		if lines.Text() == "event: hello" {
			if _, err := n.Backend.RevokeToken(t.Context(), made.ID, api.Request{Key: "3"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if all := strings.Join(text, "\n"); !strings.Contains(all, "event: bye") || !strings.Contains(all, "token_revoked") {
		t.Errorf("the stream ended with %q", all)
	}
}

// A client that asks for the head of a stream gets that, and its connection back.
func TestHeadOfEventsEnds(t *testing.T) {
	n := apitest.Start(t)
	served := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(served)
		n.Node.Handler().ServeHTTP(w, r)
	}))
	defer srv.Close()
	rq, err := http.NewRequestWithContext(t.Context(), "HEAD", srv.URL+"/api/v1/events?topics=stats", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(rq)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	<-served
}
