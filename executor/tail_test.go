//go:build linux

package executor

import (
	"strings"
	"testing"
)

func TestTailBufferSince(t *testing.T) {
	b := newTailBuffer(8)
	for _, c := range []struct {
		write     string
		after, at int64
		want      string
	}{{"", 0, 0, ""}, {"abc", 0, 0, "abc"}, {"", 2, 2, "c"}, {"", 3, 3, ""}, {"defghij", 3, 3, "defghij"}, {"", 0, 2, "cdefghij"}, {strings.Repeat("x", 100), 5, 102, "xxxxxxxx"}, {"", 110, 110, ""}, {"", 999, 999, ""}} {
		b.Write([]byte(c.write))
		if at, got := b.since(c.after); at != c.at || string(got) != c.want {
			t.Errorf("after %q, since %d: %d %q, want %d %q", c.write, c.after, at, got, c.at, c.want)
		}
	}
}
