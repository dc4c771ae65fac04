package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
)

// DecodeStrict reads one JSON value into v and refuses unknown fields (naming the nearest known one), values of the wrong
// kind and anything after the value. Nothing the caller can see has changed unless it returns nil.
func DecodeStrict(data []byte, v any) error {
	if !json.Valid(data) {
		var x any
		err := json.Unmarshal(data, &x)
		return Errorf(CodeMalformed, "send one JSON object", "this is not JSON: %v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return explain(err, v)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Errorf(CodeMalformed, "send one JSON object", "there is something after the JSON value")
	}
	return nil
}

func explain(err error, v any) *Error {
	msg := err.Error()
	if _, name, ok := strings.Cut(msg, "json: unknown field "); ok {
		name = strings.Trim(name, `"`)
		known := fieldNames(reflect.TypeOf(v), nil)
		return &Error{Code: CodeUnknownField, Field: name, Message: "there is no such field" + suggest(name, known),
			Remedy: "remove it; the fields are " + strings.Join(known, ", ")}
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return Invalid(wrong.Field, "", "want %s, not a JSON %s", kindName(wrong.Type), wrong.Value)
	}
	return Errorf(CodeInvalid, "", "%s", strings.TrimPrefix(msg, "json: "))
}

func kindName(t reflect.Type) string {
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
		if f.Type.Kind() == reflect.Struct && f.Type.NumField() > 0 && f.Type.PkgPath() == t.PkgPath() {
			for _, inner := range fieldNames(f.Type, nil) {
				out = append(out, name+"."+inner)
			}
		}
	}
	return out
}

// suggest names the known word nearest to a wrong one, or nothing if none is near.
func suggest(word string, known []string) string {
	if len(word) > 64 {
		return "" // nothing known is that long, and the comparison costs as much as the word is long
	}
	best, bestAt := "", 1+len(word)/2
	if bestAt > 4 {
		bestAt = 4
	}
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

// distance is the Levenshtein distance; words here are short.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
