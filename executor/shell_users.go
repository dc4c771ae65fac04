//go:build unix

package executor

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/carillon-scheduler/carillon/job"
)

const (
	flagUser  = "--shell-user"
	flagUsers = "--shell-users"
)

// shellUsers is whose rights the commands of each namespace have. The namespace "" stands for all that are not named.
type shellUsers struct {
	own   map[string]string   // who the commands of a namespace run as
	named map[string][]string // whom its jobs may name besides
	ids   map[string]int      // of all of them: what separates commands is the id, whatever it is called
}

// CheckUsers refuses users that are not written as they should be.
func (o ShellOptions) CheckUsers() error {
	_, err := o.parseUsers()
	return err
}

func (o ShellOptions) parseUsers() (shellUsers, error) {
	u := shellUsers{own: map[string]string{}, named: map[string][]string{}, ids: map[string]int{}}
	for _, text := range o.User {
		namespace, name, err := splitUser(flagUser, text)
		if err != nil {
			return u, err
		}
		if have := u.own[namespace]; have != "" && have != name {
			return u, job.Invalid(flagUser, "give a namespace one user, and one without a namespace to all others; "+
				"those that jobs may name besides are "+flagUsers, "both %s and %s are the user of %s", have, name,
				cmp.Or(namespace, "all other namespaces"))
		}
		u.own[namespace] = name
	}
	for _, text := range o.Users {
		namespace, name, err := splitUser(flagUsers, text)
		if err != nil {
			return u, err
		}
		u.named[namespace] = append(u.named[namespace], name)
	}
	return u, nil
}

// splitUser reads USER or NAMESPACE=USER.
func splitUser(flag, text string) (namespace, name string, _ error) {
	namespace, name, qualified := strings.Cut(text, "=")
	if !qualified {
		namespace, name = "", text
	}
	if qualified && !job.NamespaceName(namespace) || name == "" || strings.ContainsAny(name, "= \t") {
		return "", "", job.Invalid(flag, "use USER, or NAMESPACE=USER for the jobs of one namespace",
			"%q names no user", text)
	}
	return namespace, name, nil
}

// list is every user with the flag that names it, in order.
func (u shellUsers) list() (all []flagged) {
	for _, name := range u.own {
		all = append(all, flagged{name, flagUser})
	}
	for _, names := range u.named {
		for _, name := range names {
			all = append(all, flagged{name, flagUsers})
		}
	}
	slices.SortFunc(all, func(a, b flagged) int {
		return cmp.Or(cmp.Compare(a.flag, b.flag), cmp.Compare(a.name, b.name))
	})
	return slices.Compact(all)
}

type flagged struct{ name, flag string }

// find looks all of them up, and refuses what could not work later.
func (u shellUsers) find() error {
	for _, f := range u.list() {
		if err := canSwitch(); err != nil {
			return fmt.Errorf("commands can run as another user (%s) only if the node runs as root: %w", f.name, err)
		}
		who, err := user.Lookup(f.name)
		if err != nil {
			return err
		}
		if u.ids[f.name], err = strconv.Atoi(who.Uid); err != nil {
			return err
		}
	}
	for namespace, names := range u.named {
		for _, name := range names {
			if other := u.owner(u.ids[name], namespace); namespace != "" && other != "" {
				return job.Invalid(flagUsers, "name another one", "%s=%s: %s is the user of %s", namespace, name, name,
					other)
			}
		}
	}
	return nil
}

// owner is a namespace other than the given one that has this id for itself.
func (u shellUsers) owner(id int, than string) string {
	for namespace, name := range u.own {
		if namespace != "" && namespace != than && u.ids[name] == id {
			return namespace
		}
	}
	return ""
}

// of is the user that a namespace has if its jobs name none; empty: none.
func (u shellUsers) of(namespace string) string { return cmp.Or(u.own[namespace], u.own[""]) }

// identity is whose rights an attempt has: those of the worker, which is nil, or those of the user that the worker has
// for the namespace or that the job names.
func (s *Shell) identity(p job.ShellPayload, namespace string) (*user.User, error) {
	u := s.users
	name := cmp.Or(p.User, u.of(namespace))
	switch {
	case name == "" && s.asProcess():
		return nil, nil
	case name == "":
		return nil, fmt.Errorf("this worker has no user for commands of the namespace %s; start it with %s %s=USER, "+
			"or have the job select workers that do", namespace, flagUser, namespace)
	case p.User != "" && p.User != u.of(namespace) && !slices.Contains(u.named[""], p.User) &&
		!slices.Contains(u.named[namespace], p.User):
		as := p.User
		if namespace != job.DefaultNamespace {
			as = namespace + "=" + p.User
		}
		return nil, fmt.Errorf("payload: user: this worker does not run commands as %q; start it with %s %s, or have "+
			"the job select workers that do", p.User, flagUsers, as)
	}
	who, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("payload: user: %w", err)
	}
	if id, err := strconv.Atoi(who.Uid); err != nil || name != u.of(namespace) && u.owner(id, namespace) != "" {
		return nil, fmt.Errorf("payload: user: %q is the user of another namespace on this worker", p.User)
	}
	return who, nil
}

// asProcess says that some commands have the rights of this process.
func (s *Shell) asProcess() bool { return len(s.o.User) == 0 || s.o.AsNode && s.users.own[""] == "" }

// sharing is who else can have commands run as a user, by what this worker was started with.
type sharing uint8

const (
	withNone  sharing = iota
	withAny           // whatever namespace comes
	withNamed         // a namespace that was named for it
)

// sharing is that of a namespace's command that runs as this id. Root can read what all others have.
func (s *Shell) sharing(namespace string, id int) sharing {
	if s.o.Namespace == namespace || s.o.operated {
		return withNone
	}
	return max(s.users.sharing(namespace, id, s.asProcess()), s.users.sharing(namespace, 0, s.asProcess()))
}

func (u shellUsers) sharing(namespace string, id int, asProcess bool) sharing {
	has := func(names []string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return u.ids[n] == id })
	}
	if u.owner(id, namespace) != "" {
		return withNamed
	}
	for of, names := range u.named {
		if of != "" && of != namespace && has(names) {
			return withNamed
		}
	}
	own, rest := u.own[namespace], u.own[""]
	switch {
	case asProcess && id == os.Geteuid() || rest != "" && u.ids[rest] == id:
		return withAny
	case own != "" && u.ids[own] == id:
		return withNone // what is a namespace's own, others may not name
	case has(u.named[""]):
		return withAny
	}
	return withNone
}

// several stands for more namespaces than one.
const several = "*"

// turns keep commands with secrets apart from commands that others wrote: processes of one user can read each other's
// environment and memory, files in their home, and what one left behind.
type turns struct {
	mu      sync.Mutex
	ran     map[int]string         // by user id: the namespace whose jobs ran since this process began, or several
	secrets map[int]map[string]int // by user id and namespace: attempts under way that have secrets
}

func (t *turns) othersRan(namespace string, id int) bool {
	ran := t.ran[id]
	return ran != "" && ran != namespace
}

func (t *turns) othersHaveSecrets(namespace string, id int) bool {
	for of, under := range t.secrets {
		for other := range under {
			if other != namespace && (of == id || id == 0) {
				return true
			}
		}
	}
	return false
}

// admit lets an attempt begin, or says why it must not. chosen: the job chose the command; that of a queue is the
// operator's. The attempt has ended when done is called.
func (s *Shell) admit(namespace string, who *user.User, secrets, chosen bool) (done func(), _ error) {
	id, name := os.Geteuid(), "of this worker"
	if who != nil {
		var err error
		if id, err = strconv.Atoi(who.Uid); err != nil {
			return nil, err
		}
		name = who.Username
	}
	remedy := fmt.Sprintf("give the namespace %s a user of its own on this worker with %s %s=USER", namespace, flagUser,
		namespace)
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	with := s.sharing(namespace, id)
	if chosen && s.turns.othersHaveSecrets(namespace, id) {
		return nil, fmt.Errorf("not started: a command of another namespace has secrets that the user %s could read: "+
			"%s", name, remedy)
	}
	switch {
	case !secrets || with == withNone:
	case with == withNamed || namespace != job.DefaultNamespace:
		return nil, fmt.Errorf("not started: commands of other namespaces may run as the user %s or as root, and "+
			"could read the secrets of this one: %s, or start a worker for this namespace alone", name, remedy)
	case s.turns.othersRan(namespace, id) || s.turns.othersRan(namespace, 0):
		return nil, fmt.Errorf("not started: commands of other namespaces ran as the user %s or as root, and "+
			"could read the secrets of this one: %s, or start a worker for this namespace alone", name, remedy)
	}
	switch {
	case !chosen:
	case s.turns.othersRan(namespace, id):
		s.turns.ran[id] = several
	default:
		s.turns.ran[id] = namespace
	}
	if !secrets {
		return func() {}, nil
	}
	if s.turns.secrets[id] == nil {
		s.turns.secrets[id] = map[string]int{}
	}
	s.turns.secrets[id][namespace]++
	return func() {
		s.turns.mu.Lock()
		defer s.turns.mu.Unlock()
		if s.turns.secrets[id][namespace]--; s.turns.secrets[id][namespace] == 0 {
			delete(s.turns.secrets[id], namespace)
		}
	}, nil
}
