package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/mask"
	"github.com/carillon-scheduler/carillon/job"
)

// secretRoutes are about secrets. An admin of the namespace sets them, its operators write jobs that refer to them: who
// may write a job may have its target receive the value.
func secretRoutes() []route {
	return []route{
		{"GET", "/secrets", Viewer, ToLeader, Control, emptyBody, (*call).listSecrets, params("stale")},
		{"GET", "/secrets/{name}", Viewer, ToLeader, Control, emptyBody, (*call).getSecret, params("stale")},
		{"PUT", "/secrets/{name}", Admin, ToLeader, Control, jsonBody, (*call).putSecret, nil},
		{"DELETE", "/secrets/{name}", Admin, ToLeader, Control, emptyBody, (*call).deleteSecret, params("force")},
	}
}

// SecretBackend is what the routes of secrets stand on. Values go in only.
type SecretBackend interface {
	PutSecret(ctx context.Context, name string, s wire.SecretRequest, rq Request) (wire.Secret, error)
	Secrets(ctx context.Context, rd Read) ([]wire.Secret, error)
	// DeleteSecret removes one; one that jobs refer to only with force.
	DeleteSecret(ctx context.Context, name string, force bool, rq Request) error
}

func (c *call) secretName() (string, error) {
	name := c.r.PathValue("name")
	if !job.SecretName(name) {
		return "", job.Invalid("name", "use up to 64 letters, digits, - and _, beginning with a letter or digit",
			"%q is not a name for a secret", name)
	}
	return name, nil
}

func (c *call) listSecrets() error {
	rd, err := c.read()
	if err != nil {
		return err
	}
	all, err := c.h.backend.Secrets(c.ctx, rd)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, wire.SecretList{Secrets: list(all)})
}

func (c *call) getSecret() error {
	name, err := c.secretName()
	if err != nil {
		return err
	}
	rd, err := c.read()
	if err != nil {
		return err
	}
	all, err := c.h.backend.Secrets(c.ctx, rd)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Name == name {
			return c.reply(http.StatusOK, s)
		}
	}
	return job.Errorf(job.CodeNotFound, "`carillon secret list` lists them", "there is no secret %q in namespace %q",
		name, c.space.Name())
}

func (c *call) putSecret() error {
	name, err := c.secretName()
	if err != nil {
		return err
	}
	var s wire.SecretRequest
	if err := job.DecodeStrict(c.body, &s); err != nil {
		return err
	}
	if err := checkSecret(&s); err != nil {
		return err
	}
	// Requests are told apart by a hash of their body, which is stored. One of this body would let a short value be
	// guessed, so what is told apart is the secret alone.
	c.body = nil
	rq, err := c.request()
	if err != nil {
		return err
	}
	set, err := c.h.backend.PutSecret(c.ctx, name, s, rq)
	if err != nil {
		return err
	}
	return c.reply(http.StatusOK, set)
}

// checkSecret says what is wrong with a value, without repeating any of it.
func checkSecret(s *wire.SecretRequest) error {
	switch {
	case len(s.Value) < job.MinSecretBytes:
		return job.Invalid("value", "use a longer one",
			"a value of less than %d bytes cannot be masked in what runs print", job.MinSecretBytes)
	case len(s.Value) > job.MaxSecretBytes:
		return job.Invalid("value", "keep the key elsewhere and have the secret open it",
			"the value has %d bytes, at most %d are allowed", len(s.Value), job.MaxSecretBytes)
	case mask.Lines(s.Value) > job.MaxSecretLines:
		return job.Invalid("value", "use several secrets, or encode it, as base64 for example",
			"the value has %d lines, at most %d are allowed: each is masked in what runs print",
			mask.Lines(s.Value), job.MaxSecretLines)
	case strings.ContainsAny(s.Value, "\x00\uFFFD"):
		return job.Invalid("value", "encode it, as base64 for example",
			"the value is not text: it has a zero byte or is not UTF-8")
	case strings.Contains(s.Value, job.SecretScheme):
		return job.Invalid("value", "set the value itself", "the value of a secret cannot refer to another")
	case len(s.Hosts) > job.MaxSecretHosts:
		return job.Invalid("hosts", "", "%d hosts are more than %d", len(s.Hosts), job.MaxSecretHosts)
	}
	for i, h := range s.Hosts {
		if !job.CheckSecretHost(h) {
			return job.Invalid("hosts["+strconv.Itoa(i)+"]", "use a name or an address, :PORT if only that is meant",
				"%q is not a host", h)
		}
	}
	return nil
}

func (c *call) deleteSecret() error {
	name, err := c.secretName()
	if err != nil {
		return err
	}
	force, err := c.flag("force")
	if err != nil {
		return err
	}
	rq, err := c.request()
	if err != nil {
		return err
	}
	return c.done(c.h.backend.DeleteSecret(c.ctx, name, force, rq))
}

// warn says what the owner of a job had better do otherwise, where there is something better.
func (c *call) warn(spec *job.Spec) {
	if !c.h.opts.Secure {
		return
	}
	for _, w := range spec.Warnings() {
		c.say(w)
	}
}
