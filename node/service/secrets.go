package service

import (
	"context"
	"strings"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/names"
	"github.com/carillon-scheduler/carillon/store"
)

// maxSecretsIn bounds how many secrets a namespace has, so that none uses up what all of them share (fsm.MaxSecrets).
// Requests that come at the same moment may go a little beyond it.
const maxSecretsIn = 512

// PutSecret implements api.Backend. The leader seals the value before it proposes anything: what is in the log can be
// read by those who have the cluster's keys, and by no one else.
func (b *Service) PutSecret(ctx context.Context, name string, s wire.SecretRequest, rq api.Request) (wire.Secret,
	error) {
	k := store.SecretKey{Namespace: rq.Space.Name(), Name: name}
	by := callerOf(ctx)
	_, err := b.changeNamed(ctx, rq, name, func(a attempt) (fsm.Command, error) {
		version, hosts := uint64(1), s.Hosts
		if row, ok := b.o.Store.Secret(k); ok {
			if version = row.Version + 1; hosts == nil {
				hosts = row.Hosts
			}
		} else if b.o.Store.SecretsIn(k.Namespace) >= maxSecretsIn {
			// Judged before it is proposed: members of an older version know of no such limit and would apply it.
			return nil, job.Errorf(job.CodeState, "delete some of them, or use another namespace",
				"namespace %s has %d secrets already", k.Namespace, maxSecretsIn)
		}
		sealed, err := b.o.Vault.Seal(k, version, s.Value)
		if err != nil {
			return nil, err
		}
		return &fsm.PutSecret{Head: a.head, Request: a.req, Namespace: spaceIn(k.Namespace), Name: name,
			Version: version, Sealed: sealed, Hosts: hosts, SetBy: by}, nil
	})
	if err != nil {
		return wire.Secret{}, err
	}
	b.heardByGroups(ctx, "the value from before")
	row, ok := b.o.Store.Secret(k)
	if !ok {
		return wire.Secret{Name: name, Namespace: k.Namespace}, nil // deleted since
	}
	b.o.Logger.Info("secret set", "secret", name, "namespace", k.Namespace, "version", row.Version, "by", by)
	return b.secret(k, row), nil
}

// secret is a row as it is listed.
func (b *Service) secret(k store.SecretKey, row *store.Secret) wire.Secret {
	s := wire.Secret{Name: k.Name, Namespace: k.Namespace, Version: row.Version, Hosts: row.Hosts,
		SetAt: job.Instant(row.SetAt), SetBy: row.SetBy, Status: "set"}
	if ok, known := b.o.Vault.Readable(row); known && !ok {
		s.Status = "missing" // its value is sealed with a key that the cluster does not have
	}
	return s
}

// Secrets implements api.Backend.
func (b *Service) Secrets(ctx context.Context, rd api.Read) ([]wire.Secret, error) {
	if err := b.fresh(ctx, rd); err != nil {
		return nil, err
	}
	var out []wire.Secret
	b.o.Store.EachSecret(func(k store.SecretKey, row *store.Secret) {
		if rd.Space.Lists(k.Namespace) {
			out = append(out, b.secret(k, row))
		}
	})
	if len(out) == 0 {
		return nil, nil
	}
	uses, err := b.allUses(ctx, names.UsesOf{})
	by := map[store.SecretKey]names.Use{}
	for _, u := range uses {
		by[u.Of] = u
	}
	for i := range out {
		u := by[store.SecretKey{Namespace: out[i].Namespace, Name: out[i].Name}]
		out[i].Jobs, out[i].JobCount = u.Jobs, u.Count
	}
	if rd.Stale {
		err = nil // those of a group without a leader are missing
	}
	return out, err
}

// DeleteSecret implements api.Backend. One that jobs refer to stays, unless the caller insists.
func (b *Service) DeleteSecret(ctx context.Context, name string, force bool, rq api.Request) error {
	k := store.SecretKey{Namespace: rq.Space.Name(), Name: name}
	o, done, err := b.replay(ctx, rq)
	if err == nil && !done {
		if err = b.verify(ctx); err == nil && !force {
			err = b.unused(ctx, k)
		}
		if err == nil {
			o, err = b.change(ctx, rq, func(a attempt) (fsm.Command, error) {
				return &fsm.DeleteSecret{Head: a.head, Request: a.req, Namespace: spaceIn(k.Namespace), Name: name}, nil
			})
		}
	}
	switch {
	case err != nil:
		return err
	case o.Code == fsm.CodeNotFound:
		return job.Errorf(job.CodeNotFound, "`carillon secret list` lists them",
			"there is no secret %q in namespace %q", name, k.Namespace)
	}
	if err := outcomeError(o, name); err != nil {
		return err
	}
	b.heardByGroups(ctx, "the secret as it was")
	b.o.Logger.Info("secret deleted", "secret", name, "namespace", k.Namespace, "by", callerOf(ctx))
	return nil
}

// checkSecrets refuses a job that refers to a secret which it would not get.
func (b *Service) checkSecrets(spec *job.Spec) error {
	for _, name := range spec.SecretRefs() {
		if err := b.checkSecret(spec, spec.SecretField(name), name); err != nil {
			return err
		}
	}
	for _, name := range spec.Notify.WebhookSecrets() {
		if err := b.checkSecret(spec, webhookField, name); err != nil {
			return err
		}
	}
	return nil
}

const webhookField = "notify.webhook"

func (b *Service) checkSecret(spec *job.Spec, field, name string) error {
	if b.o.Vault.Plain() {
		return job.Invalid(field, "make the cluster secure: start the nodes with --secure",
			"a job cannot refer to a secret in a cluster without keys")
	}
	row, ok := b.secretRow(store.SecretKey{Namespace: spec.Namespace, Name: name})
	if !ok {
		return job.Invalid(field, "set it first: carillon secret set "+name+" -n "+spec.Namespace,
			"there is no secret %q in namespace %q", name, spec.Namespace)
	}
	if len(row.Hosts) == 0 {
		return nil
	}
	targets, ok := spec.Targets()
	if field == webhookField {
		targets, ok = spec.Notify.Targets()
	}
	for _, t := range targets {
		ok = ok && job.SecretMayGoTo(row.Hosts, t)
	}
	if !ok {
		return job.Invalid(field, "send it to one of these, or allow other hosts for the secret",
			"the secret %q is only for %s", name, strings.Join(row.Hosts, ", "))
	}
	return nil
}
