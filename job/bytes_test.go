package job

import "testing"

func TestBytes(t *testing.T) {
	for in, want := range map[string]Bytes{"512MiB": 512 << 20, "1.5 GB": 1_500_000_000, "0": 0, "4096": 4096, "2kib": 2048, "7B": 7, "1TiB": 1 << 40} {
		if got, err := ParseBytes(in); got != want || err != nil {
			t.Errorf("%s: %d %v", in, got, err)
		}
	}
	for _, in := range []string{"", "MiB", "-1", "NaN", "1e300TiB", "5 apples", "Inf"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("%q is %d", in, got)
		}
	}
	for want, b := range map[string]Bytes{"512.0 MiB": 512 << 20, "0 B": 0, "1023 B": 1023, "1.5 KiB": 1536, "3.0 TiB": 3 << 40} {
		if got := b.String(); got != want {
			t.Errorf("%d is %s, not %s", uint64(b), got, want)
		}
	}
}
