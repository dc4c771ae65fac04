package job

import (
	"testing"
	"unicode/utf8"
)

func TestTruncationKeepsText(t *testing.T) {
	for _, s := range []string{"", "abc", "aé", "éé", "日本語", "a\xff\xfeb", "\xc3",
		"\xff\xfe\x80\x80\x80\x80\xe2\x82\xc3\xf0\x9f\x98"} {
		for n := range 8 {
			for _, got := range []string{Head(s, n), Tail(s, n)} {
				if len(got) > n || !utf8.ValidString(got) {
					t.Errorf("%q cut to %d: %q", s, n, got)
				}
			}
		}
	}
}

func TestHeadAndTail(t *testing.T) {
	for _, c := range []struct{ in, head, tail string }{
		{"abc", "abc", "abc"},
		{"abcdefgh", "abcdef", "cdefgh"},
		{"üüüü", "üüü", "üüü"},
		{"aüüüü", "aüü", "üüü"},
		{"\xbcab\xc3", "ab", "ab"},         // a rune cut in two at each end
		{"a\xffb", "a\ufffdb", "a\ufffdb"}, // not text
	} {
		if head, tail := Head(c.in, 6), Tail(c.in, 6); head != c.head || tail != c.tail {
			t.Errorf("%q: head %q, tail %q", c.in, head, tail)
		}
	}
}
