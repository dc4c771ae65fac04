package mask_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/mask"
)

// many are secrets of some lines each.
func many(secrets, lines, width int) (values []string) {
	for s := range secrets {
		var b strings.Builder
		for n := range lines {
			fmt.Fprintf(&b, "%0*d\n", width, s*lines+n)
		}
		values = append(values, b.String())
	}
	return values
}

func BenchmarkManyLines(b *testing.B) {
	text := strings.Repeat("0000123 line of an output\n", 320) // 8 KiB
	for _, c := range []struct{ secrets, lines, width int }{{1, 50, 64}, {32, 1, 40}, {4, 256, 6}, {16, 64, 127}} {
		values := many(c.secrets, c.lines, c.width)
		b.Run(fmt.Sprintf("%d secrets of %d lines of %d", c.secrets, c.lines, c.width), func(b *testing.B) {
			for b.Loop() {
				mask.New(values...).String(text)
			}
		})
	}
}
