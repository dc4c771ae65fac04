package jobfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/jsontext"
)

// ToYAML writes JSON as YAML for an editor: fields in the order they have, scripts as blocks, and every text that YAML
// could take for something else in quotes. (The library's own encoder loses tabs and other things that a payload may
// contain.)
func ToYAML(raw []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	v, err := readOrdered(dec)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	writeYAML(&b, v, "")
	return []byte(strings.TrimPrefix(b.String(), "\n") + "\n"), nil
}

type member struct {
	key   string
	value any
}

// readOrdered reads one JSON value; an object becomes []member.
func readOrdered(dec *json.Decoder) (any, error) {
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch tok {
	case json.Delim('{'):
		out := []member{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			v, err := readOrdered(dec)
			if err != nil {
				return nil, err
			}
			out = append(out, member{key.(string), v})
		}
		_, err := dec.Token()
		return out, err
	case json.Delim('['):
		out := []any{}
		for dec.More() {
			v, err := readOrdered(dec)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		_, err := dec.Token()
		return out, err
	}
	return tok, nil
}

// writeYAML writes what stands after a key or a dash, which for a collection begins with a line end.
func writeYAML(b *strings.Builder, v any, indent string) {
	switch v := v.(type) {
	case []member:
		if len(v) == 0 {
			b.WriteString(" {}")
		}
		for _, m := range v {
			b.WriteString("\n" + indent + scalar(m.key) + ":")
			writeYAML(b, m.value, indent+"  ")
		}
	case []any:
		if len(v) == 0 {
			b.WriteString(" []")
		}
		for _, e := range v {
			b.WriteString("\n" + indent + "-")
			writeYAML(b, e, indent+"  ")
		}
	case string:
		if block, ok := literal(v, indent); ok {
			b.WriteString(block)
			return
		}
		b.WriteString(" " + scalar(v))
	case json.Number:
		b.WriteString(" " + numberYAML(v.String()))
	case nil:
		b.WriteString(" null")
	default: // a truth
		fmt.Fprintf(b, " %v", v)
	}
}

// numberYAML writes a number so that every reader of YAML takes it for one: 1e3 is a text to those of version 1.1,
// which want a point in front of the exponent and a sign behind it.
func numberYAML(s string) string {
	mantissa, exponent, ok := strings.Cut(strings.ToLower(s), "e")
	if !ok {
		return s
	}
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	if !strings.HasPrefix(exponent, "-") && !strings.HasPrefix(exponent, "+") {
		exponent = "+" + exponent
	}
	return mantissa + "e" + exponent
}

var (
	plainRE = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9 ._/@+=-]*$`)
	// wordRE are plain words that some reader of YAML takes for a truth, nothing or a number.
	wordRE     = regexp.MustCompile(`(?i)^(y|n|yes|no|on|off|true|false|null|nan|inf)$`)
	durationRE = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$`)
	literalRE  = regexp.MustCompile(`^[^\s][ -~\n]*[!-~]\n?$`)
)

// scalar writes a text without quotes where that is beyond doubt, otherwise as JSON, which is YAML too.
func scalar(s string) string {
	if plainRE.MatchString(s) && !wordRE.MatchString(s) && !strings.HasSuffix(s, " ") || durationRE.MatchString(s) {
		return s
	}
	if isCron(s) {
		return "'" + s + "'"
	}
	b, err := jsontext.Marshal(s)
	if err != nil { // cannot be
		return strconv.Quote(s)
	}
	return string(b)
}

// isCron recognises what is read most often: a schedule looks better in single quotes, which change nothing in it.
func isCron(s string) bool {
	return s != "" && strings.Trim(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz*/,-#?@: +") == ""
}

// literal writes a text of several lines as a block, as one wants to edit a script.
func literal(s, indent string) (string, bool) {
	if !strings.Contains(strings.TrimSuffix(s, "\n"), "\n") || !literalRE.MatchString(s) || strings.Contains(s, " \n") {
		return "", false
	}
	indent = cmp.Or(indent, "  ")
	head := " |-"
	if strings.HasSuffix(s, "\n") {
		head, s = " |", strings.TrimSuffix(s, "\n")
	}
	var b strings.Builder
	b.WriteString(head)
	for line := range strings.SplitSeq(s, "\n") {
		b.WriteString("\n")
		if line != "" {
			b.WriteString(indent + line)
		}
	}
	return b.String(), true
}
