package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// StatusSet is the set of HTTP statuses that mean success: 200, "2xx", "200-299" or a list of those. Empty means 2xx.
type StatusSet []StatusRange

// StatusRange is one element of a StatusSet, both ends included.
type StatusRange struct{ From, To int }

// Contains says whether a status means success.
func (s StatusSet) Contains(code int) bool {
	if len(s) == 0 {
		return code >= 200 && code <= 299
	}
	return slices.ContainsFunc(s, func(r StatusRange) bool { return code >= r.From && code <= r.To })
}

func (r StatusRange) String() string {
	if r.From == r.To {
		return strconv.Itoa(r.From)
	}
	if r.From%100 == 0 && r.To == r.From+99 {
		return strconv.Itoa(r.From/100) + "xx"
	}
	return fmt.Sprintf("%d-%d", r.From, r.To)
}

// MarshalJSON writes a list.
func (s StatusSet) MarshalJSON() ([]byte, error) {
	out := make([]any, len(s))
	for i, r := range s {
		if r.From == r.To {
			out[i] = r.From
		} else {
			out[i] = r.String()
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads a number, a string or a list of those.
func (s *StatusSet) UnmarshalJSON(b []byte) error {
	var one any
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	list, ok := one.([]any)
	if !ok {
		if one == nil {
			*s = nil
			return nil
		}
		list = []any{one}
	}
	out := make(StatusSet, 0, len(list))
	for _, v := range list {
		r, err := statusRange(v)
		if err != nil {
			return err
		}
		out = append(out, r)
	}
	*s = out
	return nil
}

func statusRange(v any) (StatusRange, error) {
	bad := fmt.Errorf("%v is not an HTTP status: use 200, \"2xx\" or \"200-204\"", v)
	var text string
	switch x := v.(type) {
	case float64:
		text = strconv.FormatFloat(x, 'f', -1, 64)
	case string:
		text = strings.ToLower(strings.TrimSpace(x))
	default:
		return StatusRange{}, bad
	}
	if len(text) == 3 && strings.HasSuffix(text, "xx") && text[0] >= '1' && text[0] <= '5' {
		n := int(text[0]-'0') * 100
		return StatusRange{n, n + 99}, nil
	}
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	a, err1 := strconv.Atoi(from)
	b, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil || a < 100 || b > 599 || a > b {
		return StatusRange{}, bad
	}
	return StatusRange{a, b}, nil
}
