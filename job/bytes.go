package job

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size, as people write and read it.
type Bytes uint64

var byteUnits = []struct {
	name string
	size float64
}{{"KIB", 1 << 10}, {"MIB", 1 << 20}, {"GIB", 1 << 30}, {"TIB", 1 << 40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
	{"TB", 1e12}, {"B", 1}, {"", 1}}

// ParseBytes reads a size such as 512MiB, 1.5GB or 4096.
func ParseBytes(s string) (Bytes, error) {
	text := strings.ToUpper(strings.TrimSpace(s))
	for _, u := range byteUnits {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || math.IsNaN(n) || n < 0 || n*u.size >= math.MaxInt64 {
			break
		}
		return Bytes(n * u.size), nil
	}
	return 0, fmt.Errorf("%q is not a size such as 512MiB or 2GiB", s)
}

func (b Bytes) String() string {
	for i := 3; i >= 0; i-- {
		if u := byteUnits[i]; float64(b) >= u.size {
			return strconv.FormatFloat(float64(b)/u.size, 'f', 1, 64) + " " + []string{"KiB", "MiB", "GiB", "TiB"}[i]
		}
	}
	return strconv.FormatUint(uint64(b), 10) + " B"
}
