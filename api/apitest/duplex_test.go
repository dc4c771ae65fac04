package apitest_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/job"
)

// What a client sends of a bulk create after it was answered is no request, whatever the answer was and however the
// body says where it ends.
func TestTheRestOfABulkCreateIsNoRequest(t *testing.T) {
	t.Parallel()
	n := apitest.Start(t)
	refused := hooked{n.Backend, func(context.Context, string) error {
		return job.Errorf(job.CodeNoLeader, "", "lost it")
	}}
	panics := hooked{n.Backend, func(context.Context, string) error { panic("boom") }}
	framings := map[string]string{
		"announced": "Content-Length: 1%d\r\n\r\n%s",
		"chunked":   "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n",
		"malformed": "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\nno length\r\n",
	}
	for what, c := range map[string]struct {
		api.Backend
		status int
	}{
		"beyond its limits": {n.Backend, 200}, "refused": {refused, 503}, "after a panic": {panics, 500},
	} {
		limits := api.BulkLimits{Lines: 2, ChunkLines: 1}
		srv := httptest.NewServer(api.New(c.Backend, api.Options{Bulk: limits}))
		defer srv.Close()
		for how, framing := range framings {
			t.Run(what+", "+how, func(t *testing.T) {
				victim, _, err := n.Backend.CreateJob(t.Context(), job.Spec{Name: "victim", Type: "queue",
					Schedule: "@manual", Payload: []byte(`{"queue":"q"}`)}, api.Request{Key: t.Name()})
				if err != nil {
					t.Fatal(err)
				}
				conn, err := net.Dial("tcp", srv.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				text := line("a") + line("b") + line("c")
				fmt.Fprintf(conn, "POST /api/v1/jobs:bulk HTTP/1.1\r\nHost: localhost\r\n"+framing, len(text), text)
				in := bufio.NewReader(conn)
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != c.status || !resp.Close {
					t.Errorf("%s, close %v, %v", resp.Status, resp.Close, err)
				}
				fmt.Fprintf(conn, "DELETE /api/v1/jobs/%s HTTP/1.1\r\nHost: localhost\r\n\r\n", victim.ID)
				if answer, err := http.ReadResponse(in, nil); err == nil {
					answer.Body.Close()
					t.Errorf("the rest of the body was answered with %s", answer.Status)
				}
				if _, err := n.Backend.GetJob(t.Context(), victim.ID.String(), api.Read{}); err != nil {
					t.Fatalf("the rest of a body deleted a job: %v", err)
				}
				if err := n.Backend.DeleteJob(t.Context(), victim.ID.String(), 0, api.Request{Key: "-" + t.Name()}); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// A bulk create that fails is answered although its client keeps it open and sends nothing.
func TestABulkCreateThatFailsWaitsForNothing(t *testing.T) {
	f := hooked{none, func(context.Context, string) error { return job.Errorf(job.CodeNoLeader, "", "lost it") }}
	srv := httptest.NewServer(api.New(f, api.Options{RequestTimeout: time.Hour, Bulk: api.BulkLimits{ChunkLines: 1}}))
	defer srv.Close()
	in, out := io.Pipe()
	defer out.Close()
	go io.WriteString(out, line("a")) //nolint:errcheck // the answer tells
	resp, err := srv.Client().Post(srv.URL+"/api/v1/jobs:bulk", "application/x-ndjson", in)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 503 || !strings.Contains(string(text), "lost it") {
		t.Errorf("%s: %s, %v", resp.Status, text, err)
	}
}

// A bulk create that was read to its end leaves its connection to the next request.
func TestABulkCreateKeepsItsConnection(t *testing.T) {
	srv := httptest.NewServer(api.New(empty(t).Backend, api.Options{}))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for i, framing := range []string{"Content-Length: %d\r\n\r\n%s", "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n",
		"Content-Length: %d\r\n\r\n%s"} {
		text := line(fmt.Sprint("kept", i))
		fmt.Fprintf(conn, "POST /api/v1/jobs:bulk HTTP/1.1\r\nHost: localhost\r\n"+framing, len(text), text)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(i, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.Close || !strings.Contains(string(body), "created") {
			t.Errorf("%d: close %v, %s, %v", i, resp.Close, body, err)
		}
	}
}
