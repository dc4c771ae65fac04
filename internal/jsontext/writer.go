package jsontext

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Writer writes the fields of JSON objects, byte by byte as encoding/json would without its escapes for HTML. Once Bad
// is set, there was a value that only that package can write, and B is worthless.
type Writer struct {
	B   []byte
	Bad bool
}

// Begin begins an object: the outermost one, or the value of a key.
func (w *Writer) Begin() { w.B = append(w.B, '{') }

// End ends it.
func (w *Writer) End() { w.B = append(w.B, '}') }

// Key begins a field.
func (w *Writer) Key(name string) {
	if w.B[len(w.B)-1] != '{' {
		w.B = append(w.B, ',')
	}
	w.B = append(append(append(w.B, '"'), name...), '"', ':')
}

// Str writes a field with a string.
func (w *Writer) Str(name, v string) {
	w.Key(name)
	w.Bad = w.Bad || !Plain(v)
	w.B = append(append(append(w.B, '"'), v...), '"')
}

// SomeStr writes a field with a string that is not empty.
func (w *Writer) SomeStr(name, v string) {
	if v != "" {
		w.Str(name, v)
	}
}

// SomeInt writes a field with a whole number that is not 0.
func (w *Writer) SomeInt(name string, v int64) {
	if v != 0 {
		w.Int(name, v)
	}
}

// Int writes a field with a whole number.
func (w *Writer) Int(name string, v int64) {
	w.Key(name)
	w.B = strconv.AppendInt(w.B, v, 10)
}

// Uint writes a field with a whole number that is not negative.
func (w *Writer) Uint(name string, v uint64) {
	w.Key(name)
	w.B = strconv.AppendUint(w.B, v, 10)
}

// Bool writes a field with true or false.
func (w *Writer) Bool(name string, v bool) {
	w.Key(name)
	w.B = strconv.AppendBool(w.B, v)
}

// Float writes a field with a number between 0 and 1; others may have an exponent.
func (w *Writer) Float(name string, v float64) {
	w.Key(name)
	w.Bad = w.Bad || v != 0 && (v < 1e-6 || v > 1)
	w.B = strconv.AppendFloat(w.B, v, 'f', -1, 64)
}

// Null writes a field without a value.
func (w *Writer) Null(name string) {
	w.Key(name)
	w.B = append(w.B, "null"...)
}

// Raw writes a field with a value that is known to be JSON.
func (w *Writer) Raw(name string, v []byte) {
	w.Key(name)
	w.Bad = w.Bad || !compact(v)
	w.B = append(w.B, v...)
}

// Leave gives up unless a field that this package does not write is empty.
func (w *Writer) Leave(empty bool) { w.Bad = w.Bad || !empty }

// Marshal is json.Marshal without the escapes that only HTML needs: the & of a payload stays one.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Plain says that a string looks the same in JSON.
func Plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// compact says that a text, which is known to be JSON, has no space that encoding/json would take out.
func compact(text []byte) bool {
	inside := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			inside = !inside
		case c == '\\':
			i++
		case c <= ' ' && !inside:
			return false
		}
	}
	return len(text) > 0
}
