package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/job"
)

// answers are what a cluster says to one request after the other, the last one again and again.
func answers(t *testing.T, list ...any) *client.Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a := list[0]
		if len(list) > 1 {
			list = list[1:]
		}
		w.Header().Set("Content-Type", "application/json")
		switch a := a.(type) {
		case int:
			w.Header().Del("Content-Type")
			w.WriteHeader(a)
			return
		case *job.Error:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(503)
			json.NewEncoder(w).Encode(map[string]any{"status": 503, "code": a.Code, "detail": a.Message})
			return
		case client.Removal:
			w.WriteHeader(202)
		}
		json.NewEncoder(w).Encode(a)
	}))
	t.Cleanup(s.Close)
	return client.New(s.URL, client.WithAttempts(1))
}

var noLeader = job.Errorf(job.CodeNoLeader, "", "there is no leader")

// A removal is waited for, over the loss of a leader, and says which groups are left.
func TestRemove(t *testing.T) {
	var out bytes.Buffer
	c := answers(t, client.Removal{NodeID: "n4", Groups: []uint32{1, 2}}, client.Removal{NodeID: "n4", Groups: []uint32{1, 2}},
		noLeader, client.Removal{NodeID: "n4", Groups: []uint32{2}}, 204)
	if err := Remove(t.Context(), c, "n4", &out); err != nil {
		t.Fatal(err)
	}
	want := "n4 is leaving: groups 1, 2 still to hand over\nthere is no leader\n" +
		"n4 is leaving: group 2 still to hand over\n"
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
	out.Reset()
	if err := Remove(t.Context(), answers(t, noLeader, 204), "n4", &out); job.CodeOf(err) != job.CodeNoLeader {
		t.Errorf("nothing was begun: %v", err)
	}
}

// A move is waited for; who stops waiting is told that it goes on.
func TestMove(t *testing.T) {
	to := []string{"n1", "n2"}
	begun := client.GroupMove{Group: 5, To: to, Voting: []string{"n1"}, Adding: []string{"n2"}, Leaving: []string{"n3", "n4"}}
	rq := client.MoveGroupRequest{Group: 5, To: to}
	var out bytes.Buffer
	r, err := Move(t.Context(), answers(t, begun, client.GroupMove{Group: 5, To: to, Done: true}), rq, true, &out)
	if err != nil || !r.Done || MoveText(r) != "group 5 is on n1, n2" ||
		out.String() != "group 5: n1 votes; n2 catches up; n3, n4 leave\n" {
		t.Errorf("%+v %v %s", r, err, out.String())
	}
	out.Reset()
	if r, err := Move(t.Context(), answers(t, begun), rq, false, &out); err != nil || r.Done || out.Len() > 0 {
		t.Errorf("%+v %v %s", r, err, out.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	begun.Problem = "the group has no leader"
	_, err = Move(ctx, answers(t, begun), rq, true, writer(func(p []byte) {
		out.Write(p)
		cancel() // as Ctrl-C does
	}))
	if want := "group 5: n1 votes; n2 catches up; n3, n4 leave; the group has no leader\n" +
		"the move of group 5 goes on; `carillon status` shows it\n"; !errors.Is(err, context.Canceled) || out.String() != want {
		t.Errorf("%v %s", err, out.String())
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

func TestNumber(t *testing.T) {
	for text, want := range map[string]uint32{"0": 0, "7": 7, "64": 64} {
		if n, err := GroupNumber(text); n != want || err != nil {
			t.Errorf("%s: %d %v", text, n, err)
		}
	}
	for _, text := range []string{"", "x", "-1", "65", "1.5", "n4"} {
		if _, err := GroupNumber(text); job.CodeOf(err) != job.CodeInvalid {
			t.Errorf("%q: %v", text, err)
		}
	}
}
