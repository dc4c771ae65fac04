package gc

import "testing"

func TestPercentFor(t *testing.T) {
	for _, tc := range []struct {
		alive uint64
		want  int
	}{{0, 800}, {1 << 20, 800}, {64 << 20, 300}, {192 << 20, 100}, {4 << 30, 100}} {
		if got := percentFor(tc.alive); got != tc.want {
			t.Errorf("%d MiB alive: %d %%, and not %d %%", tc.alive>>20, got, tc.want)
		}
	}
	if live() == 0 {
		t.Skip("nothing was collected yet")
	}
}
