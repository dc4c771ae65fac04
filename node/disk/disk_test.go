package disk

import "testing"

func TestLimit(t *testing.T) {
	t.Parallel()
	var unset Limit
	unset.Defaults()
	for _, tt := range []struct {
		limit Limit
		total uint64
		want  uint64
	}{
		{unset, 1 << 40, 512 << 20},
		{unset, 1 << 30, (1 << 30) / 20},
		{Limit{Bytes: 7}, 1 << 40, 7},
		{Limit{Percent: 50}, 1000, 500},
		{Limit{Off: true}, 1 << 40, 0},
	} {
		if got := tt.limit.Of(tt.total); got != tt.want {
			t.Errorf("%+v of %d: %d", tt.limit, tt.total, got)
		}
	}
	if free, total, err := Statfs(t.TempDir()); err != nil || total == 0 || free > total {
		t.Errorf("%d of %d: %v", free, total, err)
	}
}
