package job

import (
	"testing"
	"unicode/utf8"
)

func TestTruncationKeepsText(t *testing.T) {
	for _, s := range []string{"", "abc", "aé", "éé", "日本語", "a\xff\xfeb", "\xc3"} {
		for n := range 8 {
			for _, got := range []string{Head(s, n), Tail(s, n)} {
				if len(got) > n || !utf8.ValidString(got) {
					t.Errorf("%q cut to %d: %q", s, n, got)
				}
			}
		}
	}
}
