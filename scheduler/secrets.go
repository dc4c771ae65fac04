package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/fsm"
	"github.com/carillon-scheduler/carillon/internal/mask"
	"github.com/carillon-scheduler/carillon/job"
)

// Vault opens secrets.
type Vault interface {
	// Open is a secret's value, and the hosts that it may be sent to; none: any. It must not block.
	Open(namespace, name string) (value string, hosts []string, err error)
	// Values are those that a run which refers to secrets may have been given.
	Values(namespace string, names []string) []string
}

// AllSecrets stands for all secrets of a worker's namespace in what it is granted.
const AllSecrets = "*"

// maySee says that a session may have what the runs of a class are handed out with: the workers of nodes may, others
// what their tokens were granted.
func maySee(x *session, secrets []string) bool {
	if len(secrets) == 0 || x.node != nil || slices.Contains(x.secrets, AllSecrets) {
		return true
	}
	return !slices.ContainsFunc(secrets, func(name string) bool { return !slices.Contains(x.secrets, name) })
}

// unmasked is what may not show in what a run leaves behind.
type unmasked struct {
	namespace string
	names     []string
	masker    *mask.Masker // of the values that it was handed out with; nil: an earlier leader did that
}

// filled is a job's payload with the values of its secrets in it.
type filled struct {
	payload []byte
	values  []string
	hosts   []string // that it may talk to; none: any
	uses    *unmasked
	err     error // why it cannot be handed out; it names the secret
}

// fill opens the secrets that a job refers to, nil if it refers to none. It is done when a claim is committed and
// before its worker is told, so that nothing of it is in the log; and not under the lock.
func (s *Scheduler) fill(spec *job.Spec, names []string) *filled {
	if len(names) == 0 {
		return nil
	}
	f := &filled{uses: &unmasked{namespace: spec.Namespace, names: names}}
	values := map[string]string{}
	for _, name := range names {
		if s.o.Vault == nil {
			f.err = fmt.Errorf("the secret %q cannot be read: this cluster has no secrets", name)
			return f
		}
		value, hosts, err := s.o.Vault.Open(spec.Namespace, name)
		if err == nil && len(hosts) > 0 {
			err = f.bind(spec, name, hosts)
		}
		if err != nil {
			f.err = err
			return f
		}
		values[name] = value
		f.values = append(f.values, value)
	}
	lines := 0
	for _, v := range f.values {
		lines += mask.Lines(v)
	}
	if lines > mask.MaxLines {
		f.err = fmt.Errorf("the secrets of the job have %d lines together, and at most %d can be masked: "+
			"encode their values, as base64 for example", lines, mask.MaxLines)
		return f
	}
	f.payload, f.err = spec.ExpandSecrets(func(name string) string { return values[name] })
	if f.err == nil {
		f.uses.masker = mask.New(f.values...)
	}
	return f
}

// fillAll fills what a batch of claims hands out, by the numbers of those that refer to secrets.
func (s *Scheduler) fillAll(claims []pick, reply *fsm.Reply) (out map[int]*filled) {
	for i := range claims {
		if known := claims[i].job; len(known.secrets) > 0 && reply.Items[i].Code == fsm.CodeClaimed {
			if out == nil {
				out = map[int]*filled{}
			}
			out[i] = s.fill(&known.def.Spec, known.secrets)
		}
	}
	return out
}

// bind holds a run to the hosts of one of its secrets.
func (f *filled) bind(spec *job.Spec, name string, hosts []string) error {
	targets, ok := spec.Targets()
	if !ok {
		return fmt.Errorf("the secret %q is only for %s, and the job does not say where it is sent", name,
			strings.Join(hosts, ", "))
	}
	for _, t := range targets {
		if !job.SecretMayGoTo(hosts, t) {
			return fmt.Errorf("the secret %q is only for %s, not for %s", name, strings.Join(hosts, ", "), t)
		}
	}
	if f.hosts == nil {
		f.hosts = slices.Clone(hosts)
		return nil
	}
	if f.hosts = common(f.hosts, hosts); len(f.hosts) == 0 {
		f.hosts = targets // all of the secrets allow those; an empty list would allow everything
	}
	return nil
}

// common are the hosts that two lists allow. One with a port is narrower than the same without.
func common(a, b []string) (out []string) {
	for _, h := range a {
		if within(b, h) {
			out = append(out, h)
		}
	}
	for _, h := range b {
		if within(a, h) && !within(out, h) {
			out = append(out, h)
		}
	}
	return out
}

// within says that a list allows all that one host of another list allows.
func within(hosts []string, h string) bool {
	same := func(other string) bool { return strings.EqualFold(other, h) }
	return slices.ContainsFunc(hosts, same) || len(hosts) > 0 && job.SecretMayGoTo(hosts, h)
}

// into puts the values into an assignment.
func (f *filled) into(a *job.Assignment) *job.Assignment {
	if f != nil {
		a.Payload, a.Secrets, a.Hosts = f.payload, f.values, f.hosts
	}
	return a
}

// hides is what the result of the run may not show.
func (f *filled) hides() *unmasked {
	if f == nil {
		return nil
	}
	return f.uses
}

// lacksLocked ends a run whose secrets cannot be opened, or not for its target: its worker is never told of it, so
// there is no attempt. What is missing is not there at the next try either.
func (s *Scheduler) lacksLocked(c *claim, f *filled) {
	s.log.Warn("run failed: a secret is missing", "run", c.run, "error", f.err)
	p := s.endLocked(c, true, job.Result{Outcome: job.OutcomeFailed, Permanent: true, Error: f.err.Error()})
	p.lacks = true
}

// hide masks a result once more before it goes into the log: the worker is not the only one who sees to it.
func (s *Scheduler) hide(c *claim, r *job.Result) {
	if c.unmasked == nil || r.Error == "" && r.Output == "" {
		return
	}
	m := s.maskerOf(c.unmasked)
	r.Error, r.Output = m.String(r.Error), m.String(r.Output)
}

// maskerOf masks what a run may not show. Of one that an earlier leader handed out, the values are asked for again.
func (s *Scheduler) maskerOf(u *unmasked) *mask.Masker {
	if u.masker == nil && s.o.Vault != nil {
		return mask.New(s.o.Vault.Values(u.namespace, u.names)...)
	}
	return u.masker
}
