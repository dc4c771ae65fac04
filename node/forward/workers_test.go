package forward

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

type member struct{ others []string }

func (m member) Ref() *job.NodeRef { return &job.NodeRef{Cluster: "c", Instance: "i"} }
func (m member) Removed() bool     { return false }
func (m member) Alone() bool       { return false }
func (m member) Others() []string  { return m.others }
func (m member) Stopped() error    { return nil }

func (m member) Halted() (own, node <-chan struct{}) { return nil, nil }

// A node without a replica of a group finds its leader through those that have one, also while it stops: its worker has
// results to hand in. Messages name the group.
func TestWorkerRouteOfAGroup(t *testing.T) {
	for group, query := range map[uint32]string{0: "group=0", 3: "group=3"} {
		node := func(answer func(http.ResponseWriter)) string {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery != query {
					t.Errorf("group %d: it is sent to %s", group, r.URL)
				}
				w.Header().Set("Content-Type", wire.MediaJSON)
				answer(w)
			}))
			t.Cleanup(srv.Close)
			return srv.Listener.Addr().String()
		}
		say := func(v any) func(http.ResponseWriter) {
			return func(w http.ResponseWriter) {
				if err := json.NewEncoder(w).Encode(v); err != nil {
					t.Error(err)
				}
			}
		}
		leads := node(say(job.PollReply{Session: "s"}))
		follows := node(func(w http.ResponseWriter) {
			w.Header().Set(wire.LeaderHeader, leads)
			w.WriteHeader(http.StatusMisdirectedRequest)
			say(wire.Problem{Error: job.Error{Code: job.CodeNotLeader}})(w)
		})
		r := NewWorkerRoute(WorkerOptions{Group: group, Tracker: func() *Tracker { return nil },
			Member: member{[]string{follows}}, Stopping: func() bool { return true }})
		defer r.Close()
		if reply, err := r.Poll(t.Context(), job.Poll{Worker: "w"}); err != nil || reply.Session != "s" {
			t.Errorf("group %d: %+v, %v", group, reply, err)
		}
		if _, err := r.Heartbeat(t.Context(), job.Heartbeat{Session: "s"}); err != nil {
			t.Errorf("group %d: %v", group, err)
		}
	}
}
