package membership

import (
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/transport"
)

// TestNotJoinedYet: the refusals that joins and replicas may begin with are logged only if they stay. Others are at once.
func TestNotJoinedYet(t *testing.T) {
	t.Parallel()
	said := 0
	m := &Members{refused: map[string]entry{}, log: func(string, ...any) { said++ }}
	refuse := func(reason string, want int) {
		t.Helper()
		m.OnRefused(&transport.RefusedError{Peer: transport.Hello{NodeID: "n2"}, Reason: reason})
		if said != want {
			t.Errorf("%q: said %d times, want %d", reason, said, want)
		}
	}
	pass := func(d time.Duration) {
		for k, e := range m.refused {
			m.refused[k] = entry{e.text, e.logged.Add(-d)}
		}
	}
	refuse(NotJoined, 0)
	refuse(NotJoined, 0)
	pass(joinGrace + time.Second)
	refuse(NotJoined, 1)
	refuse(NotJoined, 1)
	pass(logAgain + time.Second)
	refuse(NotJoined, 2)
	pass(time.Hour) // another join
	refuse(NotJoined, 2)
	refuse("it was removed", 3)
	refuse("it was removed", 3)
	refuse(NotJoined, 3)
	replica := "node n2 has no replica of group 3: " + transport.NoReplica
	refuse(replica, 3)
	pass(joinGrace + time.Second)
	refuse(replica, 4)
}
