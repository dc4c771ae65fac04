package job

import (
	"cmp"
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxFields is how many fields of a struct are watched for being given twice.
const maxFields = 128

// shape is what is known of the fields of a type: of a struct its fields, of a list or map what its elements are. nil
// is anything.
type shape struct {
	fields map[string]field
	names  []string
	elem   *shape
}

type field struct {
	n     int
	shape *shape
}

var (
	shapes sync.Map // reflect.Type to *shape

	readsJSON = reflect.TypeFor[json.Unmarshaler]()
	readsText = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	s := newShape(t)
	shapes.Store(t, s)
	return s
}

func newShape(t reflect.Type) *shape {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if p := reflect.PointerTo(t); p.Implements(readsJSON) || p.Implements(readsText) {
		return nil
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		if elem := newShape(t.Elem()); elem != nil {
			return &shape{elem: elem}
		}
	case reflect.Struct:
		s := &shape{fields: map[string]field{}}
		s.add(t)
		return s
	}
	return nil
}

func (s *shape) add(t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			s.add(f.Type)
		case f.IsExported() && name != "-":
			name = cmp.Or(name, f.Name)
			s.fields[name] = field{len(s.names), newShape(f.Type)}
			s.names = append(s.names, name)
		}
	}
}

// fieldWalk goes through a text that is known to be JSON, beside the type that it is to be read into.
type fieldWalk struct {
	data []byte
	at   int
	root reflect.Type
	top  string // the prefix of every path
}

func checkFields(data []byte, t reflect.Type, prefix string) *Error {
	s := shapeOf(t)
	if s == nil {
		return nil
	}
	w := fieldWalk{data: data, root: t, top: prefix}
	return w.value(s, prefix)
}

func (w *fieldWalk) space() {
	for w.at < len(w.data) {
		switch w.data[w.at] {
		case ' ', '\t', '\r', '\n', ',', ':': // the text is valid: these need not be told apart
			w.at++
		default:
			return
		}
	}
}

func (w *fieldWalk) value(s *shape, path string) *Error {
	w.space()
	switch c := w.data[w.at]; {
	case s == nil:
		w.skip()
	case c == '{' && (s.fields != nil || s.elem != nil):
		return w.object(s, path)
	case c == '[' && s.elem != nil:
		w.at++
		for {
			if w.space(); w.data[w.at] == ']' {
				w.at++
				return nil
			}
			if err := w.value(s.elem, path); err != nil {
				return err
			}
		}
	default:
		w.skip() // of the wrong kind: the decoder says so
	}
	return nil
}

func (w *fieldWalk) object(s *shape, path string) *Error {
	var seen [maxFields / 64]uint64
	w.at++
	for {
		if w.space(); w.data[w.at] == '}' {
			w.at++
			return nil
		}
		key := w.text()
		inner := s.elem
		if s.fields != nil {
			f, ok := s.fields[string(key)]
			if !ok {
				return w.unknown(s, path, name(key))
			}
			if f.n < maxFields {
				bit := uint64(1) << (f.n % 64)
				if seen[f.n/64]&bit != 0 {
					return &Error{Code: CodeMalformed,
						Field: join(path, name(key)), Message: "the field is given twice", Remedy: "give it once"}
				}
				seen[f.n/64] |= bit
			}
			inner = f.shape
		}
		if inner == nil {
			w.space()
			w.skip()
			continue
		}
		if err := w.value(inner, join(path, name(key))); err != nil {
			return err
		}
	}
}

func name(key []byte) string { return strings.ToValidUTF8(string(key), string(utf8.RuneError)) }

func (w *fieldWalk) unknown(s *shape, path, name string) *Error {
	known := make([]string, 0, len(s.names))
	for _, n := range s.names {
		known = append(known, join(path, n))
	}
	all := fieldNames(w.root, nil)
	for i := range all {
		all[i] = join(w.top, all[i])
	}
	hint := Suggest(name, known) // the neighbours first
	if hint == "" {
		hint = Suggest(name, all)
	}
	return &Error{Code: CodeUnknownField, Field: join(path, name), Message: "there is no such field" + hint,
		Remedy: "remove it; the fields are " + strings.Join(all, ", ")}
}

// text reads the string that begins here.
func (w *fieldWalk) text() []byte {
	begin := w.at
	w.skipText()
	raw := w.data[begin+1 : w.at-1]
	for _, c := range raw {
		if c == '\\' {
			var s string
			if json.Unmarshal(w.data[begin:w.at], &s) == nil {
				return []byte(s)
			}
		}
	}
	return raw
}

func (w *fieldWalk) skipText() {
	for w.at++; w.data[w.at] != '"'; w.at++ {
		if w.data[w.at] == '\\' {
			w.at++
		}
	}
	w.at++
}

// skip goes over the value that begins here.
func (w *fieldWalk) skip() {
	depth := 0
	for w.at < len(w.data) {
		switch w.data[w.at] {
		case '"':
			w.skipText()
			if depth == 0 {
				return
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return // the end of what a number or word stands in
			}
			if depth--; depth == 0 {
				w.at++
				return
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return
			}
		}
		w.at++
	}
}
