package apitest_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/schedule"
)

// callers says for which routes the rule does not hold that one method of the client calls each, and why.
var callers = map[string][]string{
	// What an edit would do is another question than the edit.
	"PUT /api/v1/jobs/{ref}": {"Client.PreviewUpdate", "Client.UpdateJob"},
	// To force a transfer is a decision of its own, with a name of its own.
	"POST /api/v1/cluster:transfer": {"Client.ForceTransfer", "Client.TransferLeadership"},
	// One waits until the node is gone, the other shows how far that is.
	"POST /api/v1/cluster:remove": {"Client.BeginRemoval", "Client.RemoveNode"},
	// A worker that starts waits for the answer.
	"GET /api/v1/whoami": {"Client.Granted", "Client.Whoami", "Leader.Groups"},
}

// uncalled are the methods of the client that call no route, and why.
var uncalled = map[string]string{
	"Client.In":    "the same client for another namespace",
	"Client.Addr":  "says where the client calls",
	"Leader.Close": "gives up idle connections",
}

// calls are arguments of methods that zero values do not lead to a route, or not to all of theirs.
var calls = map[string][][]any{
	"Client.ApplyJobs":  {{strings.NewReader(spec), client.ApplyOptions{}, func(client.ApplyResult) error { return nil }}},
	"Client.BulkCreate": {{strings.NewReader(spec), func(client.BulkResult) error { return nil }}},
	"Client.Events":     {{[]string{"stats"}, func(client.Event) error { return nil }}},
	"Client.PatchJob":   {{"x", client.Patch(`{}`), uint64(0)}},
}

// recorder notes which routes are called; every answer is that there is no such thing.
type recorder struct {
	t     *testing.T
	calls []string
	// spaced are the routes of what lives in namespaces.
	spaced []string
}

func (r *recorder) RoundTrip(rq *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	r.ServeHTTP(w, rq)
	return w.Result(), nil
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, rq *http.Request) {
	if rq.Body != nil {
		io.Copy(io.Discard, rq.Body) //nolint:errcheck // only the path counts
	}
	route := routeOf(rq.Method, rq.URL.Path)
	if route == "" {
		r.t.Errorf("%s %s is called, which is no route", rq.Method, rq.URL.Path)
	} else if name := rq.Method + " " + route; !slices.Contains(r.calls, name) {
		r.calls = append(r.calls, name)
		// A worker that asks the leader of a group says in the message whose runs it takes.
		q := rq.URL.Query()
		if has := q.Has("namespace"); has != (slices.Contains(r.spaced, name) && !q.Has("group")) {
			r.t.Errorf("%s names a namespace: %v, which the route has or has not", name, has)
		}
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusNotFound)
	io.WriteString(w, `{"status":404,"code":"not_found","detail":"no"}`) //nolint:errcheck // a test
}

// The client is held to the table: each route is called by one of its methods, and no method calls anything else.
func TestClientCallsEveryRouteAndNoOther(t *testing.T) {
	rec := &recorder{t: t}
	for _, rt := range namespacedRoutes() {
		rec.spaced = append(rec.spaced, rt.Method+" "+rt.Path)
	}
	srv := httptest.NewServer(rec) // a leader makes its own connections
	defer srv.Close()
	leader := client.NewLeader([]string{srv.Listener.Addr().String()})
	defer leader.Close()
	got := map[string][]string{} // by route
	// Without a limit on time no call asks besides whether its node still lives.
	c := client.New("127.0.0.1:1", client.WithHTTPClient(&http.Client{Transport: rec}), client.WithTimeout(0),
		client.WithNamespace("team-a"))
	for _, target := range []any{c, leader} {
		v := reflect.ValueOf(target)
		for i := range v.NumMethod() {
			name := v.Type().Elem().Name() + "." + v.Type().Method(i).Name
			if uncalled[name] != "" {
				continue
			}
			rec.calls = nil
			for _, args := range append(calls[name], nil)[:max(1, len(calls[name]))] {
				v.Method(i).Call(arguments(t, v.Method(i).Type(), args))
			}
			if len(rec.calls) != max(1, len(calls[name])) {
				t.Errorf("%s calls %q: a method calls one route", name, rec.calls)
			}
			for _, route := range rec.calls {
				got[route] = append(got[route], name)
			}
		}
	}
	for _, rt := range api.Routes() {
		name := rt.Method + " " + rt.Path
		methods := slices.Sorted(slices.Values(got[name]))
		if want := callers[name]; want != nil && !slices.Equal(methods, want) || want == nil && len(methods) != 1 {
			t.Errorf("%s is called by %q; add a method to the client, or an exception with its reason here", name, methods)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("called and not in the table: %q", slices.Collect(maps.Keys(got)))
	}
}

// arguments are those given after the context, or values that stand for anything.
func arguments(t *testing.T, f reflect.Type, given []any) []reflect.Value {
	in := []reflect.Value{}
	for i := range f.NumIn() {
		typ := f.In(i)
		switch {
		case typ == reflect.TypeFor[context.Context]():
			in = append(in, reflect.ValueOf(t.Context()))
		case given != nil:
			in = append(in, reflect.ValueOf(given[i-1]))
		case typ.Kind() == reflect.String:
			in = append(in, reflect.ValueOf("x").Convert(typ))
		case typ == reflect.TypeFor[schedule.Calendar]():
			in = append(in, reflect.ValueOf(schedule.Calendar{Name: "x"}))
		default:
			in = append(in, reflect.Zero(typ))
		}
	}
	return in
}
