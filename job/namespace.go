package job

import (
	"maps"
	"slices"
	"strings"
)

// A namespace is the unit in which names are unique and rights are given. A job, a queue or a calendar is in one for as
// long as it exists; a namespace itself is never made: it is there while something is in it.
const (
	// DefaultNamespace is the one of what says nothing. It is left out wherever something is stored.
	DefaultNamespace = "default"
	// AllNamespaces stands for all of them in a listing. It is no name.
	AllNamespaces = "*"
	// MaxNamespace is how long a name may be: that of a DNS label, so that it can be a part of a host name.
	MaxNamespace = 63
)

// NamespaceName says whether a text can be the name of a namespace: up to 63 of a-z, 0-9 and -, the latter neither
// first nor last.
func NamespaceName(s string) bool {
	if s == "" || len(s) > MaxNamespace || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// CheckNamespace refuses what is not a name of a namespace.
func CheckNamespace(s string) error {
	if err := checkNamespace(s); err != nil {
		return err
	}
	return nil
}

func checkNamespace(s string) *Error {
	if NamespaceName(s) {
		return nil
	}
	return Invalid("namespace", "use up to 63 of a-z, 0-9 and -, with a letter or digit first and last",
		"%.80q is not the name of a namespace", s)
}

// QueueKey names a queue: two of one name in two namespaces have nothing in common.
type QueueKey struct{ Namespace, Name string }

// String is the queue as messages name it: the namespace is said if it is not the usual one.
func (k QueueKey) String() string {
	if k.Namespace == DefaultNamespace || k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Class is what decides which workers can take a run and in which line it stands. Jobs of one class are
// interchangeable to the matcher.
type Class struct {
	Namespace string
	Type      Type
	Queue     string // of a queue job
	Selector  map[string]string
	Secrets   []string // what its runs are handed to their workers with, ordered
}

// QueueKey is the queue of a queue job's class; ok is false if it is of another type.
func (c *Class) QueueKey() (k QueueKey, ok bool) {
	return QueueKey{c.Namespace, c.Queue}, c.Type == TypeQueue && c.Queue != ""
}

// classSecret is before the name of a secret in the text of a class.
const classSecret = "\x01"

// classSeparator is between the namespace and the type in the text of a class. Neither has it in its name.
const classSeparator = "/"

// String is the class as it is stored: namespace, type, queue, selector and secrets. Of the usual namespace nothing is
// said.
func (c *Class) String() string {
	var b strings.Builder
	if c.Namespace != DefaultNamespace && c.Namespace != "" {
		b.WriteString(c.Namespace + classSeparator)
	}
	b.WriteString(string(c.Type))
	b.WriteByte(0)
	b.WriteString(c.Queue)
	for _, k := range slices.Sorted(maps.Keys(c.Selector)) {
		b.WriteByte(0)
		b.WriteString(k + "=" + c.Selector[k])
	}
	for _, name := range c.Secrets {
		b.WriteByte(0)
		b.WriteString(classSecret + name)
	}
	return b.String()
}

// ParseClass takes the text of a class apart again.
func ParseClass(text string) (c Class) {
	head, rest, more := strings.Cut(text, "\x00")
	c.Namespace, c.Type = DefaultNamespace, Type(head)
	if ns, t, ok := strings.Cut(head, classSeparator); ok {
		c.Namespace, c.Type = ns, Type(t)
	}
	for first := true; more; first = false {
		var part string
		if part, rest, more = strings.Cut(rest, "\x00"); first {
			c.Queue = part
			continue
		}
		if name, ok := strings.CutPrefix(part, classSecret); ok {
			c.Secrets = append(c.Secrets, name)
			continue
		}
		if c.Selector == nil {
			c.Selector = map[string]string{}
		}
		k, v, _ := strings.Cut(part, "=")
		c.Selector[k] = v
	}
	return c
}
