package service

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/names"
	"github.com/carillon-scheduler/carillon/node/view"
	"github.com/carillon-scheduler/carillon/store"
)

const (
	// viewScan is how many definitions one view looks at for a name, which decodes few of them: about a millisecond.
	viewScan = 4096
	// UsersShown is how many jobs are named, usersCounted how many of a group are counted, that keep a calendar from
	// being deleted.
	UsersShown   = 5
	usersCounted = 1000
)

// Uses are the uses of calendars or secrets by jobs of this group, which this node must lead.
func (b *Service) Uses(ctx context.Context, of names.UsesOf) ([]names.Use, error) {
	if err := b.verify(ctx); err != nil {
		return nil, err
	}
	return b.localUses(ctx, of)
}

// allUses are those by jobs of all groups.
func (b *Service) allUses(ctx context.Context, of names.UsesOf) ([]names.Use, error) {
	uses, err := b.localUses(ctx, of)
	if err != nil || b.o.OtherUses == nil {
		return uses, err
	}
	others, err := b.o.OtherUses(ctx, of)
	return names.AddUses(uses, others, UsersShown), err
}

// localUses looks through the jobs in this node's state, a few thousand at a time: about 0.15 s per million of those in
// memory. A job that is created or edited meanwhile may be missed; its calendar is then none, and the scheduler's log
// says so. It has a turn only for that: what follows waits for other nodes, or for a commit.
func (b *Service) localUses(ctx context.Context, of names.UsesOf) (out []names.Use, err error) {
	done, err := b.Turn(ctx, api.Read{Stale: true})
	if err != nil {
		return nil, err
	}
	defer api.EndTurn(ctx)
	defer done()
	word, limit := job.SecretScheme, 0
	if of.Calendar {
		word, limit = of.Name, usersCounted
	}
	at := map[store.SecretKey]int{}
	var after job.ID
	for end, count := false, 0; !end && (limit == 0 || count < limit); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		err := b.view(func(r *view.Reader) (err error) {
			after, _, end, err = r.JobsWith(word, after, viewScan, func(id job.ID, d store.Definition) bool {
				for _, name := range usedBy(&d.Spec, of) {
					count++
					k := store.SecretKey{Namespace: d.Spec.Namespace, Name: name}
					i, ok := at[k]
					if !ok {
						i = len(out)
						at[k], out = i, append(out, names.Use{Of: k})
					}
					if out[i].Count++; out[i].Count <= UsersShown {
						out[i].Jobs = append(out[i].Jobs, cmp.Or(d.Spec.Name, id.String()))
					}
				}
				return true
			})
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// usedBy is what of that which is asked for a job refers to, each once.
func usedBy(spec *job.Spec, of names.UsesOf) []string {
	if !of.Calendar {
		all := append(spec.SecretRefs(), spec.Notify.WebhookSecrets()...)
		slices.Sort(all)
		return slices.Compact(all)
	}
	if spec.Namespace == of.Namespace && slices.Contains(spec.Calendars, of.Name) {
		return []string{of.Name}
	}
	return nil
}

// users refuses a calendar that is in use.
func (b *Service) users(ctx context.Context, namespace, calendar string) error {
	known := false
	err := b.view(func(r *view.Reader) error {
		known = r.Calendar(namespace, calendar) != nil
		return nil
	})
	if err != nil || !known {
		return err // the state machine says so
	}
	uses, err := b.allUses(ctx, names.UsesOf{Calendar: true, Namespace: namespace, Name: calendar})
	if err != nil || len(uses) == 0 {
		return err
	}
	text := strconv.Itoa(uses[0].Count) + " jobs use"
	switch {
	case uses[0].Count == 1:
		text = "1 job uses"
	case uses[0].Count >= usersCounted:
		text = "at least " + text
	}
	return job.Errorf(job.CodeState, "remove it from those jobs first", "%s the calendar %q: %s", text, calendar,
		someOf(uses[0]))
}

// someOf names the first jobs of a use.
func someOf(u names.Use) string {
	list := strings.Join(u.Jobs, ", ")
	if u.Count > len(u.Jobs) {
		list += ", …"
	}
	return list
}

// unused refuses a secret that jobs refer to.
func (b *Service) unused(ctx context.Context, k store.SecretKey) error {
	if _, ok := b.o.Store.Secret(k); !ok {
		return nil // the state machine says so
	}
	uses, err := b.allUses(ctx, names.UsesOf{})
	i := slices.IndexFunc(uses, func(u names.Use) bool { return u.Of == k })
	if err != nil || i < 0 {
		return err
	}
	return job.Errorf(job.CodeState, "remove it from those jobs first, or use force: their runs will then fail",
		"jobs refer to the secret %q: %s (%s in all)", k.Name, someOf(uses[i]), strconv.Itoa(uses[i].Count))
}
