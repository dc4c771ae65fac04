// Package expand says before a message is decoded how much memory its values will take. A list of empty objects has a
// byte or three for each on the wire, and a whole struct for each in memory: a bound on the bytes that are read does
// not bound what becomes of them.
package expand

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

const (
	// Factor is how many bytes of memory each byte of a message may take. Messages as programs write them, in which
	// every element has its fields, stay below it.
	Factor = 4
	// Slack is what any message may take besides: in a small one, short elements are no harm.
	Slack = 16 << 10
)

// Most is how many bytes the values of a message may take.
func Most(size int) int64 { return Factor*int64(size) + Slack }

type kind uint8

const (
	plain   kind = iota // in the place of its owner: numbers, and what no field is for
	text                // a string
	opaque              // bytes, or a type that reads itself
	pointer             // to elem
	list                // of elem
	table               // a map with elem
	record              // a struct
	free                // an interface
)

// shape is what is known of a type.
type shape struct {
	kind   kind
	size   int64 // in a list, or behind a pointer
	entry  int64 // of a map: what each entry takes
	elem   *shape
	fields map[string]*shape
}

// format is what differs between the codecs: in JSON, a type may read itself.
type format struct {
	readsItself bool
	shapes      sync.Map // reflect.Type to *shape
}

var (
	asJSON    = &format{readsItself: true}
	asMsgpack = &format{}

	readsJSON = reflect.TypeFor[json.Unmarshaler]()
	readsText = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func (f *format) of(v any) *shape {
	t := reflect.TypeOf(v)
	if s, ok := f.shapes.Load(t); ok {
		return s.(*shape)
	}
	s := f.shape(t, map[reflect.Type]*shape{})
	f.shapes.Store(t, s)
	return s
}

// shape makes the one of a type. seen has those under way, for types that contain themselves.
func (f *format) shape(t reflect.Type, seen map[reflect.Type]*shape) *shape {
	if s := seen[t]; s != nil {
		return s
	}
	s := &shape{size: int64(t.Size())}
	seen[t] = s
	if p := reflect.PointerTo(t); f.readsItself && t.Kind() != reflect.Pointer &&
		(p.Implements(readsJSON) || p.Implements(readsText)) {
		s.kind = opaque
		return s
	}
	switch t.Kind() {
	case reflect.String:
		s.kind = text
	case reflect.Pointer:
		s.kind, s.elem = pointer, f.shape(t.Elem(), seen)
	case reflect.Interface:
		s.kind = free
	case reflect.Slice:
		if s.kind, s.elem = list, f.shape(t.Elem(), seen); t.Elem().Kind() == reflect.Uint8 {
			s.kind = opaque
		}
	case reflect.Array:
		s.kind, s.elem = list, f.shape(t.Elem(), seen)
	case reflect.Map:
		s.kind, s.elem, s.entry = table, f.shape(t.Elem(), seen), entry(int64(t.Key().Size()+t.Elem().Size()))
	case reflect.Struct:
		s.kind, s.fields = record, map[string]*shape{}
		f.add(s, t, seen)
	}
	return s
}

func (f *format) add(s *shape, t reflect.Type, seen map[reflect.Type]*shape) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "" && field.Type.Kind() == reflect.Struct:
			f.add(s, field.Type, seen)
		case field.IsExported() && name != "-":
			s.fields[cmp.Or(name, field.Name)] = f.shape(field.Type, seen)
		}
	}
}

// entry is what one entry of a map takes whose key and value have size bytes: maps that have grown are half empty.
func entry(size int64) int64 { return 2*size + 16 }

// field finds a field as encoding/json does, in whichever case it is written.
func (s *shape) field(name []byte) *shape {
	if f, ok := s.fields[string(name)]; ok {
		return f
	}
	for known, f := range s.fields {
		if len(known) <= len(name) && strings.EqualFold(known, string(name)) {
			return f
		}
	}
	return nil
}

// anything is what an interface holds: lists and maps of interfaces again.
var anything = &shape{kind: free, size: 16, entry: entry(16 + 16)}

const (
	anyValue = 48  // of a list or map in an interface, beyond its elements
	maxDepth = 512 // what is nested deeper is refused: the text does not decide how deep the recursion is
	escaped  = 3   // a byte that is no UTF-8 becomes three in a string
	// complaint is the error that the decoder makes of a value of the wrong kind: one of each, of which it keeps the
	// first.
	complaint = 96
	ofItself  = 32 // what a type that reads itself makes besides its text
)

// TooMuch is the error of a message whose values would take too much memory.
type TooMuch struct {
	Field string // in which it came to that; empty: the message as a whole
	Most  int64
	Deep  bool // it is nested too deeply
}

func (e *TooMuch) Error() string {
	if e.Deep {
		return "the values are nested too deeply"
	}
	return "the message has too many values for its size"
}

// count is what is left of the memory that a message may take.
type count struct {
	left int64
	most int64
	path [][]byte
	err  *TooMuch
}

func newCount(size int) count { return count{left: Most(size), most: Most(size)} }

// spend notes that memory is taken.
func (c *count) spend(n int64) {
	if c.left -= n; c.left < 0 {
		c.fail(false)
	}
}

func (c *count) fail(deep bool) {
	if c.err == nil {
		field := strings.ToValidUTF8(string(bytes.Join(c.path, []byte{'.'})), "?")
		c.err = &TooMuch{Field: field, Most: c.most, Deep: deep}
	}
}

func (c *count) enter(name []byte) { c.path = append(c.path, name) }
func (c *count) leave()            { c.path = c.path[:len(c.path)-1] }

func (c *count) result() error {
	if c.err == nil {
		return nil
	}
	return c.err
}
