package service

import (
	"errors"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/forward"
)

// How often the workers of one token open sessions is bounded. Polls in a session, workers that share a name on purpose,
// and those of other tokens go on.
func TestSessionsThatATokenOpens(t *testing.T) {
	refused := 0
	b := &Service{opening: newOpening(), o: Options{Tracker: forward.NewTracker(forward.TrackerOptions{Self: "n1"}),
		Refused: func(why api.Refusal, who string) {
			if refused++; why != api.RefusedRegistrations || who != "loud" {
				t.Errorf("%s of %s", why, who)
			}
		}}}
	poll := func(token, name string, p job.Poll) job.Code {
		_, err := b.Workers().Poll(api.WithIdentity(t.Context(), api.Identity{Token: token, Name: name}), p)
		if e := (*job.Error)(nil); !errors.As(err, &e) {
			t.Fatal("a node that does not lead answered with ", err)
		}
		return job.CodeOf(err)
	}
	opens := job.Poll{Secret: "s"}
	for range openBurst + openRate {
		poll("t_1", "loud", opens)
	}
	if refused == 0 || poll("t_1", "loud", opens) != job.CodeTooManyRequests {
		t.Fatal("all sessions of one token were opened")
	}
	for _, p := range []job.Poll{{Session: "s"}, {Session: "s", Secret: "s"}, {}} {
		if code := poll("t_1", "loud", p); code == job.CodeTooManyRequests {
			t.Errorf("%+v is refused", p)
		}
	}
	if code := poll("t_2", "quiet", opens); code == job.CodeTooManyRequests {
		t.Error("another token is refused")
	}
}
