package mask

import (
	"slices"
	"sort"
)

// automaton finds all occurrences of some patterns in one pass (Aho and Corasick). Its nodes are the prefixes of the
// patterns, numbered by length and then by order of the bytes: the children of a node lie side by side, and a whole
// automaton is a few arrays that are filled from front to back. Node 0 is the empty prefix.
type automaton struct {
	root  [256]int32 // the node of a first byte, or 0
	label []byte     // the last byte of a node
	child []int32    // the first child of a node: the last one is before the first of the next node
	fail  []int32    // the longest proper suffix of a node that is a node
	found []int32    // the length of the longest pattern that a node ends with, or 0
	level []int32    // the first node of each length
}

// build makes the automaton of patterns that are sorted, none twice and none empty. It takes time in proportion to
// their length together.
func build(patterns []string) *automaton {
	nodes := 1
	for i, p := range patterns {
		nodes += len(p)
		if i > 0 {
			nodes -= shared(patterns[i-1], p)
		}
	}
	a := &automaton{label: make([]byte, 1, nodes), child: make([]int32, 0, nodes+1), fail: make([]int32, 1, nodes),
		found: make([]int32, 1, nodes), level: make([]int32, 1, 1+len(slices.MaxFunc(patterns, byLength)))}
	type walk struct {
		pattern string
		node    int32 // of as many bytes as there are levels
	}
	walks := make([]walk, len(patterns))
	for i, p := range patterns {
		walks[i].pattern = p
	}
	for n := 0; len(walks) > 0; n++ {
		a.level = append(a.level, int32(len(a.label)))
		rest, parent := walks[:0], int32(-1)
		for _, w := range walks {
			// As they are sorted, those with the same prefix are side by side, the one that is the prefix first.
			if c := w.pattern[n]; w.node != parent || c != a.label[len(a.label)-1] {
				parent = w.node
				a.add(parent, c, n+1, len(w.pattern) == n+1)
			}
			if len(w.pattern) > n+1 {
				rest = append(rest, walk{w.pattern, int32(len(a.label) - 1)})
			}
		}
		walks = rest
	}
	for len(a.child) <= len(a.label) {
		a.child = append(a.child, int32(len(a.label)))
	}
	return a
}

func byLength(a, b string) int { return len(a) - len(b) }

// shared is the length of the longest common prefix.
func shared(a, b string) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// add makes the next node.
func (a *automaton) add(parent int32, c byte, length int, whole bool) {
	node := int32(len(a.label))
	for len(a.child) <= int(parent) {
		a.child = append(a.child, node)
	}
	fail := int32(0)
	if parent == 0 {
		a.root[c] = node
	} else {
		// It is shorter than the parent, so that its children are all there.
		fail = a.next(a.fail[parent], c)
	}
	found := a.found[fail]
	if whole {
		found = int32(length)
	}
	a.label, a.fail, a.found = append(a.label, c), append(a.fail, fail), append(a.found, found)
}

// next is the longest suffix of a node and one more byte that is a node.
func (a *automaton) next(node int32, c byte) int32 {
	for ; node != 0; node = a.fail[node] {
		from, to := a.child[node], a.child[node+1]
		for to-from > 8 {
			if middle := (from + to) / 2; a.label[middle] <= c {
				from = middle
			} else {
				to = middle
			}
		}
		for ; from < to; from++ {
			if a.label[from] == c {
				return from
			}
		}
	}
	return a.root[c]
}

// length is how many bytes a node has.
func (a *automaton) length(node int32) int {
	if node == 0 {
		return 0
	}
	return sort.Search(len(a.level), func(n int) bool { return a.level[n] > node }) - 1
}
