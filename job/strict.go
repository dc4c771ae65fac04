package job

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/expand"
)

// DecodeStrict reads one JSON value into v and refuses unknown fields (naming the nearest known one), fields that are
// given twice or in another case, values of the wrong kind, text that is not UTF-8 and anything after the value, and
// before it makes any value, a text that has too many of them. Nothing the caller can see has changed unless it returns
// nil.
func DecodeStrict(data []byte, v any) error { return decodeStrict(data, v, "") }

// CheckSize refuses a JSON text whose values would take too much memory if it were read into v.
func CheckSize(data []byte, v any) error { return TooManyValues(expand.JSON(data, v), "") }

// TooManyValues is what a caller is told of an error of package expand; others stay as they are.
func TooManyValues(err error, prefix string) error {
	var much *expand.TooMuch
	if !errors.As(err, &much) {
		return err
	}
	return &Error{Code: CodeTooLarge, Field: join(prefix, much.Field), Message: much.Error(),
		Remedy: fmt.Sprintf("send it in parts: in memory, its values would take more than %d bytes", much.Most)}
}

// smallText is up to what size a text is decoded without a look at how many values it has.
const smallText = 1 << 10

// decodeStrict is DecodeStrict of a value whose own field is called prefix.
func decodeStrict(data []byte, v any, prefix string) error {
	if len(data) > smallText {
		if err := TooManyValues(expand.JSON(data, v), prefix); err != nil {
			return err
		}
	}
	// The decoder writes what it has read before it finds what it refuses, so it gets a value of its own first.
	target := reflect.ValueOf(v).Elem()
	scratch := reflect.New(target.Type())
	err := json.Unmarshal(data, scratch.Interface())
	if errors.As(err, new(*json.SyntaxError)) && !json.Valid(data) { // not one from inside a type that reads itself
		return &Error{Code: CodeMalformed, Field: prefix, Message: fmt.Sprintf("this is not JSON: %v", err),
			Remedy: "send one JSON object"}
	}
	if bad := checkText(data, prefix); bad != nil {
		return bad
	}
	// It also takes a field whose name differs in case, and the last of two: only a look at the text itself tells.
	if bad := checkFields(data, target.Type(), prefix); bad != nil {
		return bad
	}
	if err == nil && !target.IsZero() {
		err = json.Unmarshal(data, v) // what is there already and is not mentioned stays
	} else if err == nil {
		target.Set(scratch.Elem())
	}
	if err != nil {
		return explain(err, data, target.Type(), prefix)
	}
	return nil
}

// CheckFields refuses what DecodeStrict would refuse because of the names of fields alone, as if data were to be read
// into v.
func CheckFields(data []byte, v any) error {
	if !json.Valid(data) {
		return DecodeStrict(data, v)
	}
	if err := checkFields(data, reflect.TypeOf(v), ""); err != nil {
		return err
	}
	return nil
}

// Decode reads one JSON value into v, where the sender may be newer or older: it passes over fields that it does not
// know.
func Decode(data []byte, v any) error {
	if err := CheckSize(data, v); err != nil {
		return err
	}
	err := json.Unmarshal(data, v)
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*json.SyntaxError)):
		return Errorf(CodeMalformed, "send one JSON object", "this is not JSON: %v", err)
	}
	return explain(err, data, reflect.TypeOf(v), "")
}

func explain(err error, data []byte, t reflect.Type, prefix string) *Error {
	at := blame(data, t)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		at = cmp.Or(at, wrong.Field)
		remedy := ""
		if wrong.Type.Kind() == reflect.String && wrong.Value != "object" && wrong.Value != "array" {
			remedy = "put it in quotes"
		}
		return Invalid(join(prefix, at), remedy, "want %s, not %s", kindName(wrong.Type), valueName(wrong.Value))
	}
	// A type that reads itself does not know which field it is the value of.
	return Invalid(join(prefix, at), "", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

func join(prefix, name string) string {
	if prefix == "" || name == "" {
		return prefix + name
	}
	return prefix + "." + name
}

// valueName says what package json found, for people who may have written YAML.
func valueName(v string) string {
	switch v {
	case "object":
		return "an object"
	case "array":
		return "a list"
	case "bool":
		return "true or false"
	case "string", "number":
		return "a " + v
	}
	return strings.TrimPrefix(v, "number ")
}

// blame finds the field whose value cannot be read, by its path from the root; "" if that is the value as a whole.
func blame(data []byte, t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var raw map[string]json.RawMessage
	if (t.Kind() != reflect.Struct && t.Kind() != reflect.Map) || json.Unmarshal(data, &raw) != nil {
		return ""
	}
	if t.Kind() == reflect.Map {
		for _, key := range slices.Sorted(maps.Keys(raw)) {
			if json.Unmarshal(raw[key], reflect.New(t.Elem()).Interface()) != nil {
				return join(key, blame(raw[key], t.Elem()))
			}
		}
		return ""
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		value, ok := raw[name]
		if !ok || f.Anonymous || json.Unmarshal(value, reflect.New(f.Type).Interface()) == nil {
			continue
		}
		return join(name, blame(value, f.Type))
	}
	return ""
}

func kindName(t reflect.Type) string {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "a string"
	}
	switch t.Kind() {
	case reflect.Map, reflect.Struct:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Uint, reflect.Int32, reflect.Uint32:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	}
	return t.String()
}

// fieldNames lists the JSON names of a struct, in order of declaration.
func fieldNames(t reflect.Type, out []string) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return out
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			out = fieldNames(f.Type, out)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			out = append(out, name)
		}
		inside := f.Type
		if inside.Kind() == reflect.Pointer {
			inside = inside.Elem()
		}
		if inside.Kind() == reflect.Struct && inside.NumField() > 0 && inside.PkgPath() == t.PkgPath() {
			for _, inner := range fieldNames(inside, nil) {
				out = append(out, name+"."+inner)
			}
		}
	}
	return out
}

// Suggest names the known word nearest to a wrong one, or nothing if none is near: one letter in three may be wrong.
func Suggest(word string, known []string) string {
	if len(word) > 64 {
		return "" // nothing known is that long, and the comparison costs as much as the word is long
	}
	best, bestAt := "", min(4, (len(word)+1)/3+1)
	for _, k := range known {
		last := k[strings.LastIndexByte(k, '.')+1:]
		if d := distance(strings.ToLower(word), last); d < bestAt {
			best, bestAt = k, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + `"` + best + `"?`
}

// distance is how many letters must be changed, added, dropped or swapped with their neighbour; words here are short.
func distance(a, b string) int {
	var before []int // the row before the last one
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := row[j-1]
			if a[i-1] != b[j-1] {
				cost++
			}
			next[j] = min(cost, row[j]+1, next[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
