package fsm

import (
	"cmp"
	"fmt"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// Reserve keeps names, at their home, for jobs that other groups are to make or rename, or pins queues to groups. An
// item is answered with its number (Version) and group, and with the job if that is there already. CodeExists names
// the job that has the name; CodePending: another request's may have it. CodeOK without a number: the home is the
// group itself, and the job needs no reservation.
type Reserve struct {
	Head  `codec:"h"`
	Items []ReserveItem `codec:"i"`
}

// ReserveItem is one name.
type ReserveItem struct {
	Name        job.NameRef `codec:"n"`
	Request     string      `codec:"q"` // who asks again under it, with the same fingerprint, gets the same reservation
	Fingerprint uint64      `codec:"f"`
	Group       uint32      `codec:"g"` // where the job is to be
}

func (c *Reserve) items() int             { return len(c.Items) }
func (c *Reserve) apply(a *applier) error { return each(a, c.Items, a.reserve) }

// each does something with every item.
func each[T any](a *applier, items []T, do func(*T) (Outcome, error)) error {
	for i := range items {
		o, err := do(&items[i])
		if err != nil {
			return err
		}
		a.outcome(o)
	}
	return nil
}

func (a *applier) reserve(it *ReserveItem) (Outcome, error) {
	own := a.b.Group()
	if !it.Name.Fits(maxRequestID) || it.Request == "" || len(it.Request) > maxRequestID || it.Group > job.MaxGroups {
		return Outcome{Code: CodeRefused, Text: "there is no such name, request or group"}, nil
	}
	if home := a.b.HomeOf(it.Name); !a.b.ManyGroups() || home != own || it.Group == 0 && own != 0 {
		return Outcome{Code: CodeRefused, Text: fmt.Sprintf("the home of %q is group %d", it.Name.Name, home)}, nil
	}
	r, there, err := a.b.Reservation(it.Name)
	switch {
	case err != nil:
		return Outcome{}, err
	case there && (r.Kind == job.NameQueue || r.Request == it.Request && r.Fingerprint == it.Fingerprint):
		return Outcome{Code: CodeOK, Job: r.Job, Version: r.Number, Group: r.Group}, nil
	case there && r.Request == it.Request:
		return Outcome{Code: CodeKeyReused}, nil
	case there && r.Pending():
		return Outcome{Code: CodePending, Group: r.Group}, nil
	case there:
		return Outcome{Code: CodeExists, Job: r.Job, Group: r.Group}, nil
	}
	switch it.Name.Kind {
	case job.NameJob:
		if id, taken := a.b.Named(it.Name.Namespace, it.Name.Name); taken {
			return Outcome{Code: CodeExists, Job: id, Group: own}, nil
		}
	case job.NameRequest: // it may have been done here while there were fewer groups
		o, done, err := a.repeat(Request{ID: it.Name.Name, Fingerprint: it.Fingerprint})
		if err != nil || done && o.Code == CodeKeyReused {
			return o, err
		}
		if done {
			return Outcome{Code: CodeExists, Job: o.Job, Group: own}, nil
		}
	}
	if it.Group == own && it.Name.Kind != job.NameQueue {
		return Outcome{Code: CodeOK, Group: own}, nil
	}
	r = store.Reservation{NameRef: it.Name, Group: it.Group, Request: it.Request, Fingerprint: it.Fingerprint,
		At: a.now}
	err = a.b.Reserve(&r)
	return Outcome{Code: CodeOK, Version: r.Number, Group: r.Group}, err
}

// NameItem is a name with the number of its reservation. Another number means another reservation: nothing happens.
type NameItem struct {
	Name   job.NameRef `codec:"n"`
	Number uint64      `codec:"u"`
	Job    uint64      `codec:"j,omitempty"` // confirm: the job that has the name
}

// ConfirmNames says, at their home, that jobs have names. An outcome with Replay is about an earlier reservation of its
// request, and its job may be gone: then AbortNames says what to confirm.
type ConfirmNames struct {
	Head  `codec:"h"`
	Items []NameItem `codec:"i"`
}

func (c *ConfirmNames) items() int { return len(c.Items) }
func (c *ConfirmNames) apply(a *applier) error {
	return each(a, c.Items, func(it *NameItem) (Outcome, error) {
		r, ok, err := a.reserved(it)
		switch {
		case err != nil || !ok:
			return Outcome{Code: CodeNotFound}, err
		case uint64(r.Job) == it.Job:
			return Outcome{Code: CodeOK, Job: r.Job}, nil
		case !r.Pending() || uint32(job.ID(it.Job).Group()) != r.Group:
			return Outcome{Code: CodeRefused, Job: r.Job, Text: "the name is not that job's"}, nil
		}
		return Outcome{Code: CodeOK, Job: job.ID(it.Job)}, a.b.ConfirmName(r, job.ID(it.Job))
	})
}

// ReleaseNames frees names at their home: their group has said that no job has them, and none will.
type ReleaseNames struct {
	Head  `codec:"h"`
	Items []NameItem `codec:"i"`
}

func (c *ReleaseNames) items() int { return len(c.Items) }
func (c *ReleaseNames) apply(a *applier) error {
	return each(a, c.Items, func(it *NameItem) (Outcome, error) {
		r, ok, err := a.reserved(it)
		if err != nil || !ok && (r.Number == 0 || !mutant.On(mutant.ReleaseAny)) {
			return Outcome{Code: CodeNotFound}, err
		}
		return Outcome{Code: CodeOK}, a.b.ReleaseName(r)
	})
}

// reserved is the reservation that an item means.
func (a *applier) reserved(it *NameItem) (store.Reservation, bool, error) {
	if !it.Name.Fits(maxRequestID) {
		return store.Reservation{}, false, nil
	}
	r, ok, err := a.b.Reservation(it.Name)
	return r, ok && r.Number == it.Number, err
}

// AbortNames asks the group of the jobs what became of reservations at Home that are pending: CodeExists names the job,
// CodeOK says that nothing will ever be made under the number. All reservations for this group below Below are known
// to be confirmed or released: there nothing is to be remembered of them.
type AbortNames struct {
	Head  `codec:"h"`
	Home  uint32     `codec:"o"`
	Below uint64     `codec:"b"`
	Items []NameItem `codec:"i"`
}

func (c *AbortNames) items() int { return len(c.Items) }
func (c *AbortNames) apply(a *applier) error {
	err := each(a, c.Items, func(it *NameItem) (Outcome, error) {
		h, ok, err := a.b.Held(c.Home, it.Number)
		if err != nil || ok {
			return Outcome{Code: CodeExists, Job: h.Job}, err
		}
		if a.b.NumberOver(c.Home, it.Number) {
			return Outcome{Code: CodeOK}, nil
		}
		return Outcome{Code: CodeOK}, a.b.SpendNumber(c.Home, it.Number)
	})
	return cmp.Or(err, a.b.SettleNumbers(c.Home, c.Below))
}

// PaidNames says that Home has released names that jobs of this group no longer have. Below is as in AbortNames.
type PaidNames struct {
	Head  `codec:"h"`
	Home  uint32     `codec:"o"`
	Below uint64     `codec:"b"`
	Items []NameItem `codec:"i"`
}

func (c *PaidNames) items() int { return len(c.Items) }
func (c *PaidNames) apply(a *applier) error {
	err := each(a, c.Items, func(it *NameItem) (Outcome, error) {
		if _, held, err := a.b.Held(c.Home, it.Number); err != nil || held {
			return Outcome{Code: CodeRefused, Text: "a job has the name"}, err
		}
		return Outcome{Code: CodeOK}, a.b.SpendNumber(c.Home, it.Number) // what comes late under it is still refused
	})
	return cmp.Or(err, a.b.SettleNumbers(c.Home, c.Below))
}

// entitled says why a job of this group may not have a name, as an outcome; code 0: it may. With one group it may
// always: that no other job has the name, the caller has looked at.
func (a *applier) entitled(n job.NameRef, home uint32, number uint64) (Outcome, error) {
	if !a.b.ManyGroups() || n.Name == "" {
		return Outcome{}, nil
	}
	own, at := a.b.Group(), a.b.HomeOf(n)
	if number == 0 && at == own {
		r, taken, err := a.b.Reservation(n)
		switch {
		case err != nil || !taken:
			return Outcome{}, err
		case r.Pending():
			return Outcome{Code: CodePending, Group: r.Group}, nil
		}
		return Outcome{Code: CodeDuplicate, Job: r.Job, Group: r.Group}, nil
	}
	if number != 0 && (at == own || home != at) {
		return Outcome{Code: CodeRefused, Text: fmt.Sprintf("%q is to be reserved at group %d", n.Name, at)}, nil
	}
	h, held, err := a.b.Held(home, number)
	switch {
	case err != nil:
		return Outcome{}, err
	case held: // and by no job's name: of a request that was forgotten
		return Outcome{Code: CodeExists, Job: h.Job}, nil
	case number == 0 && n.Kind == job.NameRequest: // the proposer knows that its repetitions come to this group
		return Outcome{}, nil
	case number == 0 || a.b.NumberOver(home, number):
		return Outcome{Code: CodeAborted}, nil
	}
	return Outcome{}, nil
}

// hold keeps by which reservation a job has a name.
func (a *applier) hold(n job.NameRef, home uint32, number uint64, id job.ID) error {
	if number == 0 || n.Name == "" || !a.b.ManyGroups() {
		return nil
	}
	return a.b.HoldName(store.Held{NameRef: n, Home: home, Number: number, Job: id})
}

// owe takes from a job the name that it has by a reservation. Its home is told later: until then no job can have it.
func (a *applier) owe(id job.ID) error {
	if !a.b.ManyGroups() {
		return nil
	}
	return a.b.OweName(id, job.NameJob)
}
