package job

import (
	"fmt"
	"hash/fnv"
	"testing"
)

// These values are in clusters: if one changes, names are looked for where they are not.
func TestHomesNeverChange(t *testing.T) {
	for _, c := range []struct {
		kind            NameKind
		namespace, name string
		hash            uint64
		of4, of64       uint32
	}{
		{NameJob, "", "nightly", 0xf7bccd421b81ccb1, 2, 50},
		{NameJob, "team-a", "nightly", 0x2eb33152df408e35, 2, 54},
		{NameRequest, "team-a", "nightly", 0x9488537a5fadd828, 1, 41},
		{NameQueue, "", "mail", 0x11cfb88875811e4f, 4, 16},
		{NameJob, "", "größe-1", 0xfb8b2054614e59ba, 3, 59},
		{NameRequest, "", "", 0x8ee095630412ee8e, 3, 15},
	} {
		if h := hashName(c.kind, c.namespace, c.name); h != c.hash ||
			HomeOf(c.kind, c.namespace, c.name, 4) != c.of4 || PlaceOf(c.kind, c.namespace, c.name, 64) != c.of64 {
			t.Errorf("%d %q %q: %#x, group %d of 4, %d of 64", c.kind, c.namespace, c.name, h,
				HomeOf(c.kind, c.namespace, c.name, 4), PlaceOf(c.kind, c.namespace, c.name, 64))
		}
	}
	// The first half of the hash is the one that everybody has.
	std := fnv.New64a()
	fmt.Fprintf(std, "\x01team-a\x00nightly")
	h := std.Sum64()
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	if h ^= h >> 33; hashName(NameJob, "team-a", "nightly") != h {
		t.Errorf("%#x, the library says %#x", hashName(NameJob, "team-a", "nightly"), h)
	}
}

func TestHomes(t *testing.T) {
	for homes := range uint32(2) {
		if g := HomeOf(NameJob, "", "a", homes); g != 0 {
			t.Errorf("of %d: %d", homes, g)
		}
	}
	if HomeOf(NameJob, "", "a", 7) != HomeOf(NameJob, DefaultNamespace, "a", 7) {
		t.Error("the usual namespace has two homes")
	}
	const groups, names = 8, 8000 // names that differ in few bits are spread
	var counts [groups + 1]int
	for i := range names {
		counts[HomeOf(NameJob, "", fmt.Sprintf("job-%d0", i), groups)]++
	}
	for g, n := range counts[1:] {
		if n < names/groups*3/4 || n > names/groups*5/4 || counts[0] != 0 {
			t.Errorf("group %d has %d of %d names", g+1, n, names)
		}
	}
}
