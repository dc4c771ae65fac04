package datadir

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// The groups of a backup were copied at different moments: a job may be there without its reservation, or the reverse,
// and of two jobs one may have got the name of the other in between. The jobs say what is so, and the reservations are
// made anew.

// Renamed is a job that lost its name to another one when groups were restored. It is paused.
type Renamed struct {
	Job       job.ID `json:"job"`
	Namespace string `json:"namespace"`
	Was       string `json:"was"`
	Name      string `json:"name"`
	Keeper    job.ID `json:"keeper"` // the job that has the name
}

// namedJob is a job with its name.
type namedJob struct {
	Namespace, Name string
	Job             job.ID
}

// namePage is how many names are read, or written, at a time.
const namePage = 1 << 14

// nameReader goes over the names of a group, in order.
type nameReader struct {
	*restoredState
	page  []namedJob
	after string
	ended bool
}

// peek is the next name; false: there is none.
func (r *nameReader) peek() (n namedJob, ok bool, err error) {
	if len(r.page) == 0 && !r.ended {
		err = r.st.View(r.read)
	}
	if err != nil || len(r.page) == 0 {
		return n, false, err
	}
	return r.page[0], true, nil
}

func (r *nameReader) take() { r.page = r.page[1:] }

func (r *nameReader) read(v *store.View) (err error) {
	r.page = nil
	r.after, r.ended, err = v.SearchNames(job.AllNamespaces, r.after, namePage, func(name string, id job.ID) bool {
		r.page = append(r.page, namedJob{Name: name, Job: id})
		return true
	})
	for i := range r.page {
		if err == nil {
			var def store.Definition
			def, _, err = v.Definition(r.page[i].Job)
			r.page[i].Namespace = def.Spec.Namespace
		}
	}
	return err
}

// twin is one of several jobs that have one name.
type twin struct {
	namedJob
	in     *restoredState
	number uint64 // of its reservation
	home   bool   // it is at home, and needs none
}

// renameTwins leaves a name that several jobs have to the one that got it last, and gives the others other names.
func renameTwins(states []*restoredState) (all []Renamed, err error) {
	if len(states) == 1 {
		return nil, nil
	}
	var readers []*nameReader
	for _, s := range states {
		readers = append(readers, &nameReader{restoredState: s})
	}
	for {
		var twins []twin
		first := ""
		for _, x := range readers {
			n, ok, err := x.peek()
			if err != nil {
				return nil, inGroup(x.h.Group, err)
			}
			if key := store.NameKey(n.Namespace, n.Name); ok && (len(twins) == 0 || key <= first) {
				if key < first {
					twins = nil
				}
				first, twins = key, append(twins, twin{namedJob: n, in: x.restoredState})
			}
		}
		if len(twins) == 0 {
			return all, nil
		}
		for _, x := range readers {
			if n, ok, _ := x.peek(); ok && store.NameKey(n.Namespace, n.Name) == first { // it was read above
				x.take()
			}
		}
		if len(twins) == 1 {
			continue
		}
		renamed, err := settleTwins(states, twins)
		if err != nil {
			return nil, err
		}
		all = append(all, renamed...)
	}
}

// settleTwins lets the one keep the name that has the reservation with the highest number. One that is at home has it
// without: it had it when the last number was given out that its state knows of, and those above came later.
func settleTwins(states []*restoredState, twins []twin) (out []Renamed, err error) {
	homes := states[0].st.Info().Homes
	for i := range twins {
		t := &twins[i]
		t.home = job.HomeOf(job.NameJob, t.Namespace, t.Name, homes) == t.in.h.Group
		err := t.in.st.View(func(v *store.View) error {
			if t.home {
				t.number = v.LastReserved()
				return nil
			}
			return v.EachHeld(func(h store.Held) bool {
				if h.Job == t.Job && h.Kind == job.NameJob {
					t.number = h.Number
				}
				return t.number == 0
			})
		})
		if err != nil {
			return nil, inGroup(t.in.h.Group, err)
		}
	}
	slices.SortFunc(twins, func(a, b twin) int {
		return cmp.Or(cmp.Compare(b.number, a.number), boolCompare(b.home, a.home))
	})
	for _, t := range twins[1:] {
		name, err := freeName(states, t, homes)
		if err == nil {
			err = t.rename(states, name)
		}
		if err != nil {
			return nil, inGroup(t.in.h.Group, err)
		}
		out = append(out, Renamed{Job: t.Job, Namespace: t.Namespace, Was: t.Name, Name: name, Keeper: twins[0].Job})
	}
	return out, nil
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// freeName is a name that no job has, and that is at home in the job's group, if names have their homes in several:
// there it needs no reservation.
func freeName(states []*restoredState, t twin, homes uint32) (string, error) {
	for n := 1; ; n++ {
		end := "-restored-" + strconv.Itoa(n)
		name := strings.ToValidUTF8(t.Name[:min(len(t.Name), job.MaxName-len(end))], "") + end
		free := homes <= 1 || job.HomeOf(job.NameJob, t.Namespace, name, homes) == t.in.h.Group
		for _, s := range states {
			if !free {
				break
			}
			err := s.st.View(func(v *store.View) error {
				_, taken := v.Named(t.Namespace, name)
				free = !taken
				return nil
			})
			if err != nil {
				return "", err
			}
		}
		if free {
			return name, nil
		}
	}
}

// reserve has the home of a new name keep it for the job, under a number that is above all that were given out.
func (t *twin) reserve(states []*restoredState, name string) (home uint32, number uint64, err error) {
	n := job.NameRef{Kind: job.NameJob, Namespace: t.Namespace, Name: name}
	home = job.HomeOf(n.Kind, n.Namespace, n.Name, states[0].st.Info().Homes)
	if home == t.in.h.Group {
		return 0, 0, nil
	}
	err = states[home].change(func(b *store.Batch) error {
		info := b.Info()
		if err := b.RaiseEpoch(&info, info.Epoch+1); err != nil {
			return err
		}
		r := store.Reservation{NameRef: n, Group: t.in.h.Group, Request: "restore", At: b.C.Mark}
		err := b.Reserve(&r)
		number = r.Number
		return err
	})
	return home, number, err
}

// rename pauses the job and gives it another name, by the commands that people do that with.
func (t *twin) rename(states []*restoredState, name string) error {
	var failed error
	machine := fsm.New(t.in.st, fsm.Options{Logger: slog.New(slog.DiscardHandler),
		Fatal: func(err error) { failed = err }})
	apply := func(cmd func(fsm.Head) fsm.Command) error {
		last, term := t.in.end()
		data, err := fsm.Encode(cmd(fsm.Head{Now: t.in.st.Counters().Mark, Term: term}))
		if err != nil {
			return err
		}
		a := machine.Apply(&raft.Log{Index: last + 1, Term: term, Type: raft.LogCommand, Data: data})
		reply, ok := a.(*fsm.Reply)
		switch {
		case failed != nil:
			return failed
		case !ok:
			return fmt.Errorf("%s cannot be renamed: %v", t.Job, a)
		case reply.Items[0].Code != fsm.CodeOK:
			return fmt.Errorf("%s cannot be renamed: %s (%d)", t.Job, reply.Items[0].Text, reply.Items[0].Code)
		}
		return nil
	}
	if err := apply(func(h fsm.Head) fsm.Command { return &fsm.Pause{Head: h, Job: uint64(t.Job)} }); err != nil {
		return err
	}
	update := &fsm.Update{Job: uint64(t.Job)}
	var err error
	if update.Home, update.Reservation, err = t.reserve(states, name); err != nil {
		return err
	}
	err = t.in.st.View(func(v *store.View) error {
		def, _, err := v.Definition(t.Job)
		if err != nil {
			return err
		}
		s, p, _, err := v.State(t.Job)
		update.Seen = fsm.Seen{Gen: s.Gen, Parked: p.Parked, At: p.At, Ready: p.Ready}
		update.Next = fsm.When{At: s.ParkedAt, Ready: s.ParkedReady}
		update.Version = def.Version
		def.Version++
		def.Spec.Name = name
		update.Def = def.Append(nil)
		return err
	})
	if err != nil {
		return err
	}
	return apply(func(h fsm.Head) fsm.Command {
		update.Head = h
		return update
	})
}

// keepNames has the homes of names keep them for the jobs that have them, and for no others.
func keepNames(states []*restoredState) error {
	if len(states) == 1 {
		return nil
	}
	for _, s := range states {
		if err := s.change((*store.Batch).ForgetNames); err != nil {
			return inGroup(s.h.Group, err)
		}
	}
	homes := states[0].st.Info().Homes
	for _, s := range states {
		for r := (&nameReader{restoredState: s}); ; {
			if _, more, err := r.peek(); err != nil || !more {
				if err != nil {
					return inGroup(s.h.Group, err)
				}
				break
			}
			at := make([][]namedJob, homes+1) // by home
			for len(r.page) > 0 {
				n := r.page[0]
				if home := job.HomeOf(job.NameJob, n.Namespace, n.Name, homes); home != s.h.Group {
					at[home] = append(at[home], n)
				}
				r.take()
			}
			if err := reserveAll(states, s, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// reserveAll has homes keep names for jobs of a group.
func reserveAll(states []*restoredState, of *restoredState, at [][]namedJob) error {
	var held []store.Held
	for home, names := range at {
		if len(names) == 0 {
			continue
		}
		err := states[home].change(func(b *store.Batch) error {
			for _, n := range names {
				r := store.Reservation{NameRef: job.NameRef{Kind: job.NameJob, Namespace: n.Namespace, Name: n.Name},
					Group: of.h.Group, Request: "restore", Job: n.Job, At: b.C.Mark}
				if err := b.Reserve(&r); err != nil {
					return err
				}
				held = append(held, store.Held{NameRef: r.NameRef, Home: uint32(home), Number: r.Number, Job: n.Job})
			}
			return nil
		})
		if err != nil {
			return inGroup(uint32(home), err)
		}
	}
	return inGroup(of.h.Group, of.change(func(b *store.Batch) error {
		for _, h := range held {
			if err := b.HoldName(h); err != nil {
				return err
			}
		}
		return nil
	}))
}
