package job

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Instant is a point in time in milliseconds since 1970, RFC 3339 in UTC on the wire. Zero means none.
type Instant int64

// At converts a time.
func At(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixMilli())
}

// Time converts back; the zero Instant gives the zero Time.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(i)).UTC()
}

func (i Instant) String() string {
	if i == 0 {
		return ""
	}
	return i.Time().Format("2006-01-02T15:04:05.999Z07:00")
}

// MarshalJSON writes RFC 3339, null for none.
func (i Instant) MarshalJSON() ([]byte, error) {
	if i == 0 {
		return []byte("null"), nil
	}
	return json.Marshal(i.String())
}

// UnmarshalJSON reads RFC 3339 with any offset.
func (i *Instant) UnmarshalJSON(b []byte) error {
	if string(b) == "null" || string(b) == `""` {
		*i = 0
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("want an RFC 3339 time such as \"2027-03-01T09:00:00Z\"")
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return fmt.Errorf("%q is not an RFC 3339 time such as \"2027-03-01T09:00:00Z\"", s)
	}
	*i = At(t)
	return nil
}

// Duration is a Go duration string on the wire ("90s", "1h30m").
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes a Go duration string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads a Go duration string.
func (d *Duration) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*d = 0
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("want a duration string such as \"90s\", not %s", b)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a duration such as \"90s\" or \"1h30m\"", s)
	}
	*d = Duration(v)
	return nil
}

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
