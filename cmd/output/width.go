package output

import (
	"iter"
	"strings"
	"unicode"

	"golang.org/x/text/width"

	"github.com/carillon-scheduler/carillon/internal/terminal"
)

// Visible is how many columns a text takes on the screen.
func Visible(s string) (n int) {
	for _, w := range characters(s) {
		n += w
	}
	return n
}

const (
	joiner         = '\u200d' // makes one picture of two
	emojiSelector  = '\ufe0f' // makes a sign a picture
	regionA        = '\U0001f1e6'
	regionZ        = '\U0001f1ff'
	lightSkin      = '\U0001f3fb'
	darkSkin       = '\U0001f3ff'
	jamoVowel      = '\u1160' // from here on, Hangul that stands in the block of the one before
	jamoLast       = '\u11ff'
	pictureColumns = 2
)

// columns is how many columns a rune takes that stands for itself.
func columns(r rune) int {
	if r < 0x300 { // most of them
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) || r >= jamoVowel && r <= jamoLast {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

func isRegion(r rune) bool { return r >= regionA && r <= regionZ }

// characters are what a reader takes for one character each: where it begins and how many columns it has. Colours and
// marks of details have none. Accents, the parts of an emoji and the two letters of a flag belong together, as
// terminals draw them: a text that is cut between them would show something else.
func characters(s string) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		colour, begin, cols := false, -1, 0
		var last rune
		for i, r := range s {
			switch {
			case r == '\x1b':
				colour = true
				continue
			case colour:
				colour = r != 'm'
				continue
			case r == 0:
				continue
			}
			n := columns(r)
			switch {
			case begin < 0:
			case r == emojiSelector:
				cols, last = max(cols, pictureColumns), r
				continue
			case n == 0, last == joiner, r >= lightSkin && r <= darkSkin && cols == pictureColumns:
				last = r
				continue
			case isRegion(r) && isRegion(last):
				cols, last = pictureColumns, 0 // the next one begins another flag
				continue
			}
			if begin >= 0 && !yield(begin, cols) {
				return
			}
			begin, cols, last = i, n, r
		}
		if begin >= 0 {
			yield(begin, cols)
		}
	}
}

// cut shortens a text to n columns.
func cut(s string, n int) string {
	if Visible(s) <= n {
		return s
	}
	seen, end := 0, 0
	for i, w := range characters(s) {
		if seen += w; seen > n-1 {
			end = i
			break
		}
	}
	if s = s[:end] + "…"; strings.Contains(s, "\x1b") {
		s += terminal.Reset
	}
	return s
}
