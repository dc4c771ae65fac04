package node

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// What each node looks up in its own state, of calendars, secrets and tokens, is what it was when a change of it was
// answered: a leader of another group does not start a run on a holiday that was set before. A node that cannot be told
// is named in the answer.
func TestEveryNodeHasHeardOfAChange(t *testing.T) {
	realTime(t)
	t.Parallel()
	keyed, _ := securely(t)
	c := startGroups(t, 2, keyed, secure)
	admin := []string{"Authorization", "Bearer " + readAdmin(t, c.members[0].cfg.DataDir)}
	// A node that gets no processor for two seconds is named; then nothing is said of it.
	change := func(by int, method, path, body string) (told apiAnswer, complete bool) {
		t.Helper()
		m := c.members[by%3].testNode
		m.eventually(method+" "+path, func() bool {
			told = m.answered(method, path, body, append(admin, "Idempotency-Key", method+path+body)...)
			return told.status/100 == 2
		})
		return told, told.header.Get(wire.WarningHeader) == ""
	}
	heard := 0
	for i := range 10 {
		k := store.SecretKey{Namespace: job.DefaultNamespace, Name: fmt.Sprint("x", i)}
		secret := func(m *member) bool {
			_, there := m.group.store.Secret(k)
			return there
		}
		if _, complete := change(i, "PUT", "/api/v1/calendars/"+k.Name, `{"dates":["2030-12-24"]}`); complete {
			heard++
			for _, m := range c.members {
				if !calendarIn(t, m.group, k.Name) {
					t.Errorf("%s has not heard of calendar %s", m.id(), k.Name)
				}
			}
		}
		if _, complete := change(i+1, "PUT", "/api/v1/secrets/"+k.Name, `{"value":"topsecret"}`); complete {
			for _, m := range c.members {
				if !secret(m) {
					t.Errorf("%s has not heard of secret %s", m.id(), k.Name)
				}
			}
		}
		if _, complete := change(i+2, "DELETE", "/api/v1/secrets/"+k.Name, ""); complete {
			for _, m := range c.members {
				if secret(m) {
					t.Errorf("%s has not heard that secret %s is deleted", m.id(), k.Name)
				}
			}
		}
		made := ok[wire.TokenCreated](c.members[i%3].testNode, "POST", "/api/v1/tokens",
			wire.TokenRequest{Name: k.Name, Role: job.RoleViewer}, admin...)
		if _, complete := change(i+1, "POST", "/api/v1/tokens/"+made.ID+":revoke", ""); complete {
			for _, m := range c.members {
				if status := m.whoami(made.Text); status != http.StatusUnauthorized {
					t.Errorf("%s takes the token %s, which was revoked: %d", m.id(), k.Name, status)
				}
			}
		}
	}
	if heard == 0 {
		t.Error("no change was heard of in time")
	}

	lost := c.others(c.leader())[0]
	lost.kill()
	for i, m := range c.members {
		if m == lost {
			continue
		}
		told, _ := change(i, "PUT", "/api/v1/calendars/after", fmt.Sprintf(`{"dates":["2030-12-%d"]}`, 10+i))
		if w := told.header.Get(wire.WarningHeader); !strings.Contains(w, "reached "+lost.id()+" yet") {
			t.Errorf("through %s, without %s: %q", m.id(), lost.id(), w)
		}
	}
}
