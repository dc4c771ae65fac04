package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/store"
)

func joinRow(uses int, expires int64) store.JoinToken {
	t := keys.NewToken(keys.JoinToken, keys.Hash{1})
	sum := t.Sum()
	return store.JoinToken{ID: t.ID, Sum: sum[:], Uses: uses, ExpiresAt: expires, Voter: true}
}

func secureWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	if w.st.Info().ClusterID == "" {
		w.want(CodeOK, &Init{ClusterID: "c1"})
	}
	return w
}

func TestClusterBecomesSecureOnce(t *testing.T) {
	w := secureWorld(t)
	join := joinRow(3, T(3600))
	w.unchanged(CodeRefused, &CreateJoinToken{Token: join}, &MakeSecure{}, &MakeSecure{CA: "none"})
	ca := keys.Hash{1}.String()
	w.want(CodeOK, &MakeSecure{CA: ca, Join: join})
	if s := w.st.Info().Security; s.CA != ca || len(s.Joins) != 1 || s.Joins[0].CreatedAt != w.now {
		t.Fatalf("%+v", s)
	}
	w.unchanged(CodeOK, &MakeSecure{CA: ca, Join: joinRow(1, T(3600))}) // the next leader
	w.unchanged(CodeRefused, &MakeSecure{CA: keys.Hash{2}.String()})
	w.check()
}

// joins is a new member that comes with a token.
func joins(id string, token store.JoinToken) *PutNode {
	c := row(id, "i-"+id, id+":1")
	c.Join, c.Node.Key = token.ID, "key-"+id
	return c
}

// A use is counted where the row is written, and a repetition uses nothing.
func TestJoinTokenLetsInSoMany(t *testing.T) {
	w := secureWorld(t)
	two, gone, late := joinRow(2, T(3600)), joinRow(2, T(3600)), joinRow(2, w.now+5000)
	w.want(CodeOK, &MakeSecure{CA: keys.Hash{1}.String(), Join: two})
	w.want(CodeOK, &CreateJoinToken{Token: gone})
	w.want(CodeOK, &CreateJoinToken{Token: late})
	w.want(CodeOK, joins("n1", two))
	w.unchanged(CodeOK, joins("n1", two))
	other := joins("n1", two)
	other.Node.Key, other.Node.Version = "another", "v2"
	w.want(CodeOK, other)
	if n, _ := w.node("n1"); n.Key != "key-n1" || n.Version != "v2" {
		t.Errorf("a live row has another key: %+v", n)
	}
	w.want(CodeOK, joins("n2", two))
	w.want(CodeOK, &RevokeJoinToken{ID: gone.ID})
	w.unchanged(CodeOK, &RevokeJoinToken{ID: gone.ID})
	w.unchanged(CodeNotFound, &RevokeJoinToken{ID: "aaaaaaaaaaaa"})
	standby := joinRow(2, T(3600))
	standby.Voter = false
	w.want(CodeOK, &CreateJoinToken{Token: standby})
	without := joins("n4", standby)
	without.Node.Standby = true
	w.want(CodeOK, without)
	w.now += 5000
	for why, c := range map[string]*PutNode{"is used up": joins("n3", two), "was revoked": joins("n3", gone),
		"has expired": joins("n3", late), "has no join token": joins("n3", joinRow(1, T(3600))), "gives no vote": joins("n3", standby)} {
		w.unchanged(CodeRefused, c)
		if o := w.one(c); !strings.Contains(o.Text, why) || !strings.Contains(o.Text, "carillon cluster token create") {
			t.Errorf("%s: %s", why, o.Text)
		}
	}
	if s, _ := w.st.Info().Security.Join(two.ID); s.Used != 2 {
		t.Errorf("%+v", s)
	}
	w.check()
}

func TestJoinTokensAreBounded(t *testing.T) {
	w := secureWorld(t)
	w.want(CodeOK, &MakeSecure{CA: keys.Hash{1}.String()})
	for name, bad := range map[string]store.JoinToken{"no id": {Sum: make([]byte, 32), Uses: 1, ExpiresAt: T(9999)},
		"no uses": joinRow(0, T(9999)), "many uses": joinRow(MaxJoinUses+1, T(9999)), "over": joinRow(1, w.now)} {
		if o := w.one(&CreateJoinToken{Token: bad}); o.Code != CodeRefused {
			t.Errorf("%s: %+v", name, o)
		}
	}
	for range MaxJoinTokens {
		w.want(CodeOK, &CreateJoinToken{Token: joinRow(1, w.now+1000)})
	}
	w.unchanged(CodeRefused, &CreateJoinToken{Token: joinRow(1, T(9999))})
	w.now += 1000
	w.want(CodeOK, &CreateJoinToken{Token: joinRow(1, T(9999)),
		Request: Request{ID: fmt.Sprint("k:", 1), Fingerprint: 1, Expires: T(9999)}})
	if n := len(w.st.Info().Security.Joins); n != 1 {
		t.Errorf("%d tokens", n)
	}
	w.check()
}
