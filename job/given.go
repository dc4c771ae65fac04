package job

import (
	"cmp"
	"fmt"
	"strings"
)

// What an operator gives to jobs under a name, such as a broker with its password, is for the jobs of some namespaces:
// "orders" for those of the usual one, "team-a,team-b/orders" for those of two, "*/orders" for all. The maps that hold
// such things have the name as the key, after the namespace and a slash if it is not the usual one.

// GivenKeys are the keys of what is given as ref. The name, which may be checked, is behind the namespaces.
func GivenKeys(ref string) (keys []string, name string, err error) {
	spaces, name, ok := strings.Cut(ref, "/")
	if !ok {
		return []string{ref}, ref, nil
	}
	for _, space := range strings.Split(spaces, ",") {
		switch {
		case space == AllNamespaces || NamespaceName(space):
			keys = append(keys, GivenKey(space, name))
		default:
			return nil, name, fmt.Errorf("%q is not a namespace", space)
		}
	}
	return keys, name, nil
}

// GivenKey is the key of what is given to the jobs of a namespace (empty: the usual one), and what to write before the
// = to give it to them.
func GivenKey(namespace, name string) string {
	if cmp.Or(namespace, DefaultNamespace) == DefaultNamespace {
		return name
	}
	return namespace + "/" + name
}

// Given finds what jobs of a namespace (empty: the usual one) have under a name, and its key. One for the namespace
// comes before one for all.
func Given[V any](all map[string]V, namespace, name string) (v V, key string, ok bool) {
	if strings.Contains(name, "/") { // a URL, or one that means a key of another namespace
		return v, name, false
	}
	key = GivenKey(namespace, name)
	if v, ok = all[key]; !ok {
		key = GivenKey(AllNamespaces, name)
		v, ok = all[key]
	}
	return v, key, ok
}
