package fsm

import (
	"slices"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// BeginRotation begins to replace the CA and the cluster key. A majority of the voters has the new ones already. Who
// has confirmed and when it was begun is set in apply. One that distrusts the old CA also revokes the join tokens, and
// suspends all API tokens except the one that asks for it.
type BeginRotation struct {
	Head     `codec:"h"`
	Request  Request        `codec:"q"`
	Rotation store.Rotation `codec:"r"`
	// Replaces is the rotation that is under way and given up for this one; empty: there is none.
	Replaces string `codec:"p,omitempty"`
}

func (c *BeginRotation) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *BeginRotation) action() string {
	if c.Rotation.Distrust {
		return "cluster.distrust-ca"
	}
	return "cluster.rotate-ca"
}

func (c *BeginRotation) object(*applier) (object, error) { return object{ID: c.Rotation.CA}, nil }
func (*AbortRotation) object(*applier) (object, error)   { return object{}, nil }

// do answers with the hash of the new CA in Text.
func (c *BeginRotation) do(a *applier) (Outcome, error) {
	info, r := a.b.Info(), c.Rotation
	s := info.Security
	h, err := keys.ParseHash(r.CA)
	refuse := func(text string) (Outcome, error) { return Outcome{Code: CodeRefused, Text: text}, nil }
	switch {
	case s.CA == "":
		return refuse("the cluster is not secure, and has no CA")
	case err != nil || h == (keys.Hash{}) || len(r.Cert) == 0 || len(r.Old) == 0:
		return refuse("the certificate of the CA is damaged")
	case r.Distrust == (len(r.Cross) > 0):
		return refuse("a distrusted CA cannot vouch for another, and a trusted one must")
	case len(r.StartedBy) > job.MaxName:
		return refuse("a name is too long")
	case s.Rotation != nil && s.Rotation.CA != c.Replaces:
		return Outcome{Code: CodeMoved}, nil
	case s.Rotation != nil && s.Rotation.Distrust && !r.Distrust:
		return refuse("others may know the key of the old CA: it cannot be trusted again")
	case r.CA == s.CA:
		return refuse("the cluster has that CA already")
	}
	if old := s.Rotation; old != nil {
		former := store.FormerCA{CA: old.CA, Cert: old.Cert, Cross: old.Cross, Aborted: true}
		if r.Distrust {
			former.Cross = nil
		}
		s.Former = formerWith(s.Former, former)
	}
	r.StartedAt, r.Confirmed = a.now, nil
	s.Rotation = &r
	if r.Distrust {
		// Who has the old keys could make tokens until now. From here on he is no node of the cluster any more.
		own := ""
		if c.By != nil {
			own = c.By.Token
		}
		if _, err := a.b.SuspendTokens(own); err != nil {
			return Outcome{}, err
		}
		// And he can make the secret of each join token.
		s.Joins = slices.Clone(s.Joins)
		for i := range s.Joins {
			if s.Joins[i].RevokedAt == 0 {
				s.Joins[i].RevokedAt = max(a.now, 1)
			}
		}
	}
	info.Security = s
	a.b.SetInfo(info)
	a.b.TouchNodes()
	return Outcome{Code: CodeOK, Text: r.CA, Count: 1}, nil
}

// formerWith is the list with one more at its front. Of those that were given up the last is kept, and takes no other's
// place: clients know the cluster by CAs that were in use.
func formerWith(list []store.FormerCA, f store.FormerCA) []store.FormerCA {
	list = slices.DeleteFunc(slices.Clone(list), func(o store.FormerCA) bool { return o.Aborted })
	list = append([]store.FormerCA{f}, list...)
	most := keys.MaxFormer
	if f.Aborted {
		most++
	}
	return list[:min(len(list), most)]
}

// ConfirmCA says that a member has what the rotation under way gives it.
type ConfirmCA struct {
	Head     `codec:"h"`
	CA       string `codec:"c"`
	ID       string `codec:"i"`
	Instance string `codec:"n"`
}

func (c *ConfirmCA) apply(a *applier) error {
	info := a.b.Info()
	r := info.Security.Rotation
	n, ok, err := a.b.Node(c.ID)
	switch {
	case err != nil:
		return err
	case r == nil || r.CA != c.CA:
		return a.refused("this rotation is not in progress")
	case !ok || n.Removed || n.Instance != c.Instance:
		a.outcome(Outcome{Code: CodeNotFound})
		return nil
	case r.Has(c.ID, c.Instance):
		a.outcome(Outcome{Code: CodeOK})
		return nil
	}
	next := *r
	next.Confirmed = append(slices.Clone(r.Confirmed), store.Confirmed{Node: c.ID, Instance: c.Instance})
	info.Security.Rotation = &next
	a.b.SetInfo(info)
	a.outcome(Outcome{Code: CodeOK, Count: 1})
	return a.finishRotation()
}

// finishRotation makes the new CA the one in use as soon as every member has confirmed it. It is done with the last
// confirmation, or with the removal of the member that was missing: there is no moment in which a crash could leave it
// undone.
func (a *applier) finishRotation() error {
	info := a.b.Info()
	r := info.Security.Rotation
	if r == nil {
		return nil
	}
	all := true
	err := a.b.EachNode(func(n store.Node) { all = all && (n.Removed || r.Has(n.ID, n.Instance)) })
	if err != nil || !all && !mutant.On(mutant.RotateEarly) {
		return err
	}
	s := info.Security
	s.Former = formerWith(s.Former, store.FormerCA{CA: s.CA, Cert: r.Old, Cross: r.Cross})
	s.CA, s.Cert, s.Rotation = r.CA, r.Cert, nil
	info.Security = s
	a.b.SetInfo(info)
	a.b.TouchNodes()
	return nil
}

// AbortRotation gives a rotation up.
type AbortRotation struct {
	Head    `codec:"h"`
	Request Request `codec:"q"`
}

func (c *AbortRotation) apply(a *applier) error { return a.once(c.Request, c.do) }

func (c *AbortRotation) do(a *applier) (Outcome, error) {
	info := a.b.Info()
	s := info.Security
	switch r := s.Rotation; {
	case r == nil:
		return Outcome{Code: CodeOK}, nil
	case r.Distrust:
		return Outcome{Code: CodeRefused, Text: "others may know the key of the old CA, so it cannot be trusted " +
			"again: bring the missing members back, or remove them"}, nil
	default:
		s.Former = formerWith(s.Former, store.FormerCA{CA: r.CA, Cert: r.Cert, Cross: r.Cross, Aborted: true})
	}
	s.Rotation = nil
	info.Security = s
	a.b.SetInfo(info)
	a.b.TouchNodes()
	return Outcome{Code: CodeOK, Count: 1}, nil
}
