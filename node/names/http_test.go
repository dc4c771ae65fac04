package names

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
	"github.com/carillon-scheduler/carillon/store"
)

// follower is what raft says on a node that follows.
type follower string

func (f follower) LeaderWithID() (raft.ServerAddress, raft.ServerID) {
	return raft.ServerAddress(f), "leader"
}
func (follower) State() raft.RaftState             { return raft.Follower }
func (follower) LastContact() time.Time            { return time.Now() }
func (follower) RegisterObserver(*raft.Observer)   {}
func (follower) DeregisterObserver(*raft.Observer) {}

// following is the keeper of a node that knows who leads.
func following(tb testing.TB, leader string) *Keeper {
	t := forward.NewTracker(forward.TrackerOptions{Self: "self"})
	t.Watch(follower(leader))
	st, err := store.Open(filepath.Join(tb.TempDir(), "x.db"), store.Options{NoSync: true, MmapSize: 1 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { st.Close() })
	return New(Options{Tracker: t, Store: st})
}

func address(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

// An ask finds the leader by way of a node that no longer is, and what was not done is not taken for done.
func TestAskFindsTheLeader(t *testing.T) {
	c := newCluster(t, 1)
	leader := httptest.NewServer(Serve(func(group uint32) *Keeper { return c.of(group).keep }))
	defer leader.Close()
	asked := 0
	former := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != Path || r.Header.Get(wire.ForwardedHeader) != "self" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		Serve(func(uint32) *Keeper { return following(t, address(leader)) })(w, r)
	}))
	defer former.Close()
	client := &Client{
		NodeID: "self", Local: func(uint32) *Keeper { return nil },
		Addr: func(uint32) string { return address(former) },
		HTTP: func() *http.Client { return http.DefaultClient },
	}
	name := away(1, "n")
	q := &Ask{From: 3, Reserve: []fsm.ReserveItem{{Name: named(name), Request: "r", Fingerprint: 1 << 63, Group: 3}}}
	var a Answer
	if err := client.Call(t.Context(), 1, q, &a); err != nil {
		t.Fatal(err)
	}
	if len(a.Outcomes) != 1 || a.Outcomes[0].Code != fsm.CodeOK || a.Outcomes[0].Number == 0 || asked != 1 {
		t.Errorf("%+v after %d asks of the former leader", a, asked)
	}
	var local Answer
	client.Local = func(group uint32) *Keeper { return c.of(group).keep }
	if err := client.Call(t.Context(), 1, q, &local); err != nil || asked != 1 ||
		fmt.Sprint(local) != fmt.Sprint(a) {
		t.Errorf("%+v, and over HTTP %+v; %v after %d asks", local, a, err, asked)
	}
	refused := &Ask{From: 3, Release: make([]fsm.NameItem, MaxItems+1)}
	if err := client.Call(t.Context(), 1, refused, &a); job.CodeOf(err) != job.CodeInvalid {
		t.Errorf("too many at a time: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.of(1).silence(true)
	if err := client.Call(ctx, 1, q, &a); err == nil {
		t.Error("no node could answer, and there is an answer")
	}
}

func TestServeRefusesWhatIsNoAsk(t *testing.T) {
	c := newCluster(t, 1)
	keeper := func(group uint32) *Keeper {
		if group < 1 || group > testGroups {
			return nil
		}
		return c.of(group).keep
	}
	for _, x := range []struct {
		method, group, body string
		status              int
	}{
		{"POST", "1", `{"from":2}`, 200},
		{"GET", "1", `{"from":2}`, 400},
		{"POST", "", `{"from":2}`, 400},
		{"POST", "9", `{"from":2}`, 404},
		{"POST", "1", `{`, 400},
		{"POST", "1", `{"from":99}`, 400},
		{"POST", "1", `{"from":2,"reserve":[` + strings.Repeat(" ", MaxMessage) + `]}`, 400},
	} {
		r := httptest.NewRequest(x.method, Path, strings.NewReader(x.body))
		r.Header.Set(wire.GroupHeader, x.group)
		w := httptest.NewRecorder()
		if Serve(keeper)(w, r); w.Code != x.status {
			t.Errorf("%s of %.30s to group %q: %d %s", x.method, x.body, x.group, w.Code, w.Body)
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", Path, strings.NewReader(`{"from":2}`))
	r.Header.Set(wire.GroupHeader, "1")
	Serve(func(uint32) *Keeper { return following(t, "127.0.0.1:9") })(w, r)
	if w.Code != http.StatusMisdirectedRequest || w.Header().Get(wire.LeaderHeader) != "127.0.0.1:9" {
		t.Errorf("a node that does not lead: %d %v", w.Code, w.Header())
	}
}
