package job

import "cmp"

// NameKind says what a name is the name of.
type NameKind uint8

// The kinds of names that are unique over all groups. Numbers are part of the stored format and of the hash.
const (
	NameJob     NameKind = 1
	NameRequest NameKind = 2 // the request key of a job that has no name
	NameQueue   NameKind = 3
)

// NameRef is a name that is unique in the whole cluster.
type NameRef struct {
	Kind      NameKind `codec:"k"`
	Namespace string   `codec:"s"` // empty: the usual one
	Name      string   `codec:"n"`
}

// Fits says whether a name can be one: not empty, and not longer than those of its kind may be.
func (n NameRef) Fits(maxRequest int) bool {
	if n.Namespace != "" && !NamespaceName(n.Namespace) {
		return false
	}
	switch n.Kind {
	case NameJob:
		return n.Name != "" && len(n.Name) <= MaxName
	case NameRequest:
		return n.Name != "" && len(n.Name) <= maxRequest
	case NameQueue:
		return QueueName(n.Name)
	}
	return false
}

// MaxGroups is how many groups for jobs a cluster may have.
const MaxGroups = 64

// HomeOf is the group that decides who has a name. homes is how many groups for jobs the cluster began with, which
// never changes, so neither does the home. With one group everything is in group 0.
func HomeOf(kind NameKind, namespace, name string, homes uint32) uint32 {
	if homes <= 1 {
		return 0
	}
	return 1 + uint32(hashName(kind, namespace, name)%uint64(homes))
}

// PlaceOf is the group that a new job is put into, or that a queue is pinned to. groups is how many groups take new
// jobs now: as long as those are the homes, a name's job is at home.
func PlaceOf(kind NameKind, namespace, name string, groups uint32) uint32 {
	return HomeOf(kind, namespace, name, groups)
}

// hashName is FNV-1a (64 bits) over the kind, the namespace, a zero byte and the name, and then MurmurHash3's
// finalizer: the low bits of FNV-1a depend on the low bits of the text only, and names that differ in one digit would
// share a group. It may never change: names would get other homes.
func hashName(kind NameKind, namespace, name string) uint64 {
	const prime = 1099511628211
	h := (uint64(14695981039346656037) ^ uint64(kind)) * prime
	namespace = cmp.Or(namespace, DefaultNamespace)
	for i := range len(namespace) {
		h = (h ^ uint64(namespace[i])) * prime
	}
	h *= prime // the zero byte
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
