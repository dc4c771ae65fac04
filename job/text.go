package job

import (
	"strings"
	"unicode/utf8"
)

// Head is the beginning of a text, at most n bytes of valid UTF-8.
func Head(s string, n int) string {
	s = onlyText(s)
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Tail is the end of a text, at most n bytes of valid UTF-8.
func Tail(s string, n int) string {
	s = onlyText(s)
	if len(s) <= n {
		return s
	}
	i := len(s) - n
	for i < len(s) && !utf8.RuneStart(s[i]) {
		i++
	}
	return s[i:]
}

// onlyText replaces what is not UTF-8. A rune that was cut in two at either end is dropped instead: it was fine where
// it came from.
func onlyText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	for i := 0; i < utf8.UTFMax && len(s) > 0 && !utf8.RuneStart(s[0]); i++ {
		s = s[1:]
	}
	for i := 1; i < utf8.UTFMax && i <= len(s); i++ {
		if c := s[len(s)-i]; utf8.RuneStart(c) {
			if !utf8.FullRuneInString(s[len(s)-i:]) {
				s = s[:len(s)-i]
			}
			break
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
