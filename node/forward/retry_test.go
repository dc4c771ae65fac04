package forward

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/job"
)

// Wait ends with what it waits for, at its time, and when the node leaves.
func TestWaitForALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := NewTracker(TrackerOptions{Self: "n1"})
		tr.Watch(fixedRaft{})
		began := time.Now()
		if _, ok := tr.Wait(t.Context(), began.Add(3*time.Second), Leader.Known); ok ||
			time.Since(began) != 3*time.Second {
			t.Errorf("a leader after %s", time.Since(began))
		}
		time.AfterFunc(time.Second, func() { tr.SetEpoch(&Epoch{Term: 7}) })
		if l, ok := tr.Wait(t.Context(), time.Time{}, Leader.Known); !ok || l.Epoch == nil || l.Epoch.Term != 7 {
			t.Errorf("%+v", l)
		}
		if e, err := tr.Leading(); err != nil || e.Term != 7 {
			t.Error(e, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, ok := tr.Wait(ctx, time.Time{}, Leader.Elsewhere); ok {
			t.Error("another node leads")
		}
		time.AfterFunc(time.Second, tr.Leave)
		if _, ok := tr.Wait(t.Context(), time.Time{}, Leader.Elsewhere); ok {
			t.Error("another node leads")
		}
		if l, ok := tr.Wait(t.Context(), time.Time{}, Leader.Known); !ok || l.Epoch == nil {
			t.Error("a node that leaves does not know its own leadership")
		}
	})
}

// A request is repeated while leaders come and go, under one key, and says that it is a repetition once it may have
// been done. An answer that is none of a lost leadership ends it, and so does the end of its time.
func TestRepeatsUntilALeaderAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{
			job.Errorf(job.CodeNoLeader, "", "lost"), job.Errorf(job.CodeNotLeader, "",
				"another"), job.Errorf(job.CodeOutcomeUnknown, "", "perhaps"), nil,
		}
		asked := 0
		f := newForwarder(t, fixedRaft{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := answers[min(asked, len(answers)-1)]
			if asked++; err != nil {
				api.WriteError(w, err)
			}
		}))
		f.t.SetEpoch(&Epoch{Term: 1})
		send := func() *httptest.ResponseRecorder {
			asked = 0
			w := httptest.NewRecorder()
			f.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/api/v1/jobs/a:run", nil))
			return w
		}
		if w := send(); w.Code != 200 || asked != 4 {
			t.Errorf("%d after %d attempts: %s", w.Code, asked, w.Body)
		}
		answers = []error{job.Errorf(job.CodeNotReady, "", "holds")}
		if w := send(); w.Code != 503 || asked != 1 || !strings.Contains(w.Body.String(), "holds") {
			t.Errorf("%d after %d attempts: %s", w.Code, asked, w.Body)
		}
		answers = []error{job.Errorf(job.CodeOutcomeUnknown, "", "perhaps")}
		began := time.Now()
		if w := send(); w.Code != 503 || asked < 20 || asked > maxTries ||
			!strings.Contains(w.Body.String(), string(job.CodeOutcomeUnknown)) {
			t.Errorf("%d after %d attempts: %s", w.Code, asked, w.Body)
		}
		if d := time.Since(began); d > LeaderWait {
			t.Errorf("it took %s", d)
		}
	})
}
