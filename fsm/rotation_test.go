package fsm

import (
	"slices"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/store"
)

func rotation(n byte, distrust bool) store.Rotation {
	r := store.Rotation{CA: keys.Hash{n}.String(), Cert: []byte{n}, Old: []byte{n - 1}, Distrust: distrust}
	if !distrust {
		r.Cross = []byte{n, n}
	}
	return r
}

// A rotation ends with the confirmation, or the removal, of the last member that was missing, and not before.
func TestRotationEndsWithTheLastMember(t *testing.T) {
	w := secureWorld(t)
	w.unchanged(CodeRefused, &BeginRotation{Rotation: rotation(2, false)})
	w.want(CodeOK, &MakeSecure{CA: keys.Hash{1}.String()})
	for _, id := range []string{"n1", "n2", "n3"} {
		w.want(CodeOK, row(id, "i-"+id, id+":1"))
	}
	next := rotation(2, false)
	half := next
	half.Cross = nil
	same := rotation(1, false)
	w.unchanged(CodeRefused, &BeginRotation{Rotation: half}, &BeginRotation{Rotation: same},
		&BeginRotation{Rotation: store.Rotation{CA: "x", Cert: []byte{1}, Old: []byte{1}, Cross: []byte{1}}},
		&ConfirmCA{CA: next.CA, ID: "n1", Instance: "i-n1"})
	w.unchanged(CodeOK, &AbortRotation{})
	w.want(CodeOK, &BeginRotation{Rotation: next, Request: Request{ID: "r1", Expires: w.now + 1e6}})
	w.want(CodeOK, &BeginRotation{Rotation: rotation(9, false), Request: Request{ID: "r1", Expires: w.now + 1e6}})
	w.unchanged(CodeMoved, &BeginRotation{Rotation: rotation(3, false)})
	w.want(CodeOK, &ConfirmCA{CA: next.CA, ID: "n1", Instance: "i-n1"})
	w.unchanged(CodeOK, &ConfirmCA{CA: next.CA, ID: "n1", Instance: "i-n1"})
	w.unchanged(CodeNotFound, &ConfirmCA{CA: next.CA, ID: "n2", Instance: "another"},
		&ConfirmCA{CA: next.CA, ID: "n9", Instance: "i"})
	w.unchanged(CodeRefused, &ConfirmCA{CA: keys.Hash{3}.String(), ID: "n2", Instance: "i-n2"})
	w.want(CodeOK, &ConfirmCA{CA: next.CA, ID: "n2", Instance: "i-n2"})
	if s := w.st.Info().Security; s.CA != (keys.Hash{1}).String() || s.Rotation == nil || len(s.Rotation.Confirmed) != 2 ||
		s.Rotation.StartedAt == 0 {
		t.Fatalf("%+v", s)
	}
	w.want(CodeOK, &RemoveNode{ID: "n3"})
	s := w.st.Info().Security
	if s.CA != next.CA || s.Rotation != nil || len(s.Former) != 1 || s.Former[0].CA != (keys.Hash{1}).String() ||
		len(s.Former[0].Cross) == 0 || string(s.Cert) != string(next.Cert) {
		t.Fatalf("%+v", s)
	}
	w.check()
}

// A rotation that was given up is remembered as one that never was; one that distrusts the old CA is not given up, takes
// the place of one that does not, and ends every join token.
func TestRotationIsGivenUp(t *testing.T) {
	w := secureWorld(t)
	join := joinRow(3, T(3600))
	w.want(CodeOK, &MakeSecure{CA: keys.Hash{1}.String(), Join: join})
	w.want(CodeOK, row("n1", "i-n1", "n1:1"))
	w.want(CodeOK, &BeginRotation{Rotation: rotation(2, false)})
	w.want(CodeOK, &AbortRotation{})
	if s := w.st.Info().Security; s.CA != (keys.Hash{1}).String() || s.Rotation != nil || !s.Former[0].Aborted ||
		!s.Knows(keys.Hash{2}.String()) {
		t.Fatalf("%+v", s)
	}
	w.want(CodeOK, &BeginRotation{Rotation: rotation(3, false)})
	w.want(CodeOK, &BeginRotation{Rotation: rotation(4, true), Replaces: keys.Hash{3}.String()})
	w.unchanged(CodeRefused, &AbortRotation{}, &BeginRotation{Rotation: rotation(5, false),
		Replaces: keys.Hash{4}.String()})
	if j, _ := w.st.Info().Security.Join(join.ID); j.RevokedAt == 0 {
		t.Errorf("%+v", j)
	}
	w.want(CodeOK, &ConfirmCA{CA: keys.Hash{4}.String(), ID: "n1", Instance: "i-n1"})
	s := w.st.Info().Security
	if s.CA != (keys.Hash{4}).String() || len(s.Former) != 1 || len(s.Former[0].Cross) != 0 || s.Former[0].Aborted {
		t.Fatalf("%+v", s)
	}
	for n := byte(5); n < 12; n++ {
		w.want(CodeOK, &BeginRotation{Rotation: rotation(n, false)})
		w.want(CodeOK, &ConfirmCA{CA: keys.Hash{n}.String(), ID: "n1", Instance: "i-n1"})
	}
	if s := w.st.Info().Security; len(s.Former) != keys.MaxFormer || s.Former[0].CA != (keys.Hash{10}).String() {
		t.Errorf("%+v", s.Former)
	}
	// To give up takes no place of a CA that clients know the cluster by, however often.
	oldest := keys.Hash{7}.String()
	for n := byte(12); n < 15; n++ {
		w.want(CodeOK, &BeginRotation{Rotation: rotation(n, false)})
		w.want(CodeOK, &AbortRotation{})
		if s := w.st.Info().Security; len(s.Former) != keys.MaxFormer+1 || s.Standing(oldest) != store.CALeaving {
			t.Fatalf("%q: %+v", s.Standing(oldest), s.Former)
		}
	}
	w.want(CodeOK, &BeginRotation{Rotation: rotation(15, false)})
	w.want(CodeOK, &ConfirmCA{CA: keys.Hash{15}.String(), ID: "n1", Instance: "i-n1"})
	if s := w.st.Info().Security; len(s.Former) != keys.MaxFormer || s.Standing(oldest) != store.CAForgotten {
		t.Errorf("%q: %+v", s.Standing(oldest), s.Former)
	}
	w.check()
}

// Who had the old keys may have made tokens: with the CA that is distrusted, all are suspended, except that of who asks.
func TestDistrustSuspendsTokens(t *testing.T) {
	w := secureWorld(t)
	w.want(CodeOK, &MakeSecure{CA: keys.Hash{1}.String()})
	w.want(CodeOK, row("n1", "i-n1", "n1:1"))
	ids := map[string]string{}
	for _, name := range []string{"own", "other", "gone"} {
		r := tokenRow(name)
		ids[name] = r.ID
		w.want(CodeOK, &CreateToken{Token: r})
	}
	w.want(CodeOK, &RevokeToken{ID: ids["gone"]})
	suspended := func(names ...string) {
		t.Helper()
		for name, id := range ids {
			if got, ok := w.st.Token(id); !ok || got.Suspended != slices.Contains(names, name) {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
	by := Head{Now: w.now, Term: w.term, By: &Caller{Token: ids["own"], Name: "own"}}
	w.want(CodeOK, &BeginRotation{Head: by, Rotation: rotation(2, false)})
	suspended()
	w.want(CodeOK, &BeginRotation{Head: by, Rotation: rotation(3, true), Replaces: keys.Hash{2}.String()})
	suspended("other")
	w.want(CodeOK, &ResumeToken{ID: ids["other"]})
	w.want(CodeOK, &BeginRotation{Rotation: rotation(4, true), Replaces: keys.Hash{3}.String()}) // by the admin socket
	suspended("own", "other")
	w.check()
}
