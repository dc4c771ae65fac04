package main

import (
	"fmt"
	"strconv"
	"strings"
)

// kind is what is done with the fields of one type. In the code, $v is the field, $T its type, $n and $k its names in
// JSON and in the stored form, $d its default.
type kind struct {
	readJSON  string // from t, a jsontext.Reader
	writeJSON string // to w, a jsontext.Writer
	someJSON  string // likewise, unless it is empty
	differs   string // whether it is stored
	read      string // from r, a pack.Reader
	write     string // to f, a pack.Fields, if it differs
	schema    string // the type in the OpenAPI document; "" if it is described there
}

// kinds are the types that a field can have.
var kinds = map[string]kind{
	"string": {
		readJSON: `$v = string(t.Str())`, writeJSON: `w.Str($n, $v)`, someJSON: `w.SomeStr($n, $v)`,
		differs: `$v != $d`, read: `$v = r.Str()`, write: `f.SomeStr($k, $v)`, schema: "string",
	},
	"word": { // a string that has the same few values in most jobs
		readJSON: `$v = Word(t.Str())`, writeJSON: `w.Str($n, $v)`, someJSON: `w.SomeStr($n, $v)`,
		differs: `$v != $d`, read: `$v = job.Word(r.Raw())`, write: "if $v != $d {\nf.Str($k, $v)\n}", schema: "string",
	},
	"named": { // the same, in a type of its own
		readJSON: `$v = $T(Word(t.Str()))`, writeJSON: `w.Str($n, string($v))`, someJSON: `w.SomeStr($n, string($v))`,
		differs: `$v != $d`, read: `$v = job.$T(job.Word(r.Raw()))`, write: `f.SomeStr($k, string($v))`,
		schema: "string",
	},
	"Type": { // the types register themselves, so that neither the code nor the schema lists them
		readJSON: `$v = TypeOf(t.Str())`, writeJSON: `w.Str($n, string($v))`, someJSON: `w.SomeStr($n, string($v))`,
		differs: `$v != $d`, read: `$v = job.TypeOf(r.Raw())`, write: `f.SomeStr($k, string($v))`,
	},
	"int": {
		readJSON: `$v = t.Int()`, writeJSON: `w.Int($n, int64($v))`, someJSON: `w.SomeInt($n, int64($v))`,
		differs: `$v != $d`, read: `$v = int(r.Int())`, write: `f.IntUnless($k, int64($v), $d)`, schema: "integer",
	},
	"bool": {
		readJSON: `$v = t.Bool()`, writeJSON: `w.Bool($n, $v)`, someJSON: "if $v {\nw.Bool($n, $v)\n}",
		differs: `$v`, read: `$v = r.Bool()`, write: "if $v {\nf.Bool($k, $v)\n}", schema: "boolean",
	},
	"Duration": {
		readJSON: `$v = readDuration(t)`, writeJSON: `w.Str($n, $v.String())`, someJSON: `someDuration(w, $n, $v)`,
		differs: `$v != $d`, read: `$v = job.Duration(r.Int())`, write: `f.IntUnless($k, int64($v), $d)`, schema: "string",
	},
	"Instant": {
		readJSON: `$v = readInstant(t)`, writeJSON: `writeInstant(w, $n, $v)`, someJSON: `someInstant(w, $n, $v)`,
		differs: `$v != $d`, read: `$v = job.Instant(r.Int())`, write: `f.IntUnless($k, int64($v), $d)`, schema: "string",
	},
	"json.RawMessage": {
		readJSON: `$v = append([]byte{}, t.Raw()...)`, writeJSON: `w.Raw($n, $v)`,
		someJSON: "if len($v) > 0 {\nw.Raw($n, $v)\n}",
		differs:  `$v != nil`, read: `$v = r.Bin()`, write: "if $v != nil {\nf.Bin($k, $v)\n}",
	},
	"*int": {
		readJSON: "v := t.Int()\n$v = &v", writeJSON: `w.Int($n, int64(*$v))`,
		someJSON: "if $v != nil {\nw.Int($n, int64(*$v))\n}",
		differs:  `$v == nil || *$v != $d`, schema: "integer",
		read:  "if $v = nil; !r.Nil() {\nn := int(r.Int())\n$v = &n\n}",
		write: "if $v == nil {\nf.Nil($k)\n} else {\nf.IntUnless($k, int64(*$v), $d)\n}",
	},
	"*float64": {
		readJSON: "v := t.Float()\n$v = &v", writeJSON: `w.Float($n, *$v)`,
		someJSON: "if $v != nil {\nw.Float($n, *$v)\n}",
		differs:  `$v == nil || *$v != $d`, schema: "number",
		read:  "if $v = nil; !r.Nil() {\nn := r.Float()\n$v = &n\n}",
		write: "if $v == nil {\nf.Nil($k)\n} else if *$v != $d {\nf.Float($k, *$v)\n}",
	},
	"struct": {
		readJSON: `read$T(t, &$v)`, writeJSON: "w.Key($n)\nw.Begin()\nwrite$T(w, &$v)\nw.End()",
		differs: `differs$T(&$v)`, read: `read$T(r, &$v)`, write: "if differs$T(&$v) {\nstore$T(f, $k, &$v)\n}",
	},

	// A job with one of these is left to encoding/json when it is written.
	"[]string": {
		readJSON: `$v = t.Strings()`, writeJSON: `w.Leave(len($v) == 0)`,
		differs: `len($v) > 0`, read: `$v = r.List()`, write: "if len($v) > 0 {\nf.List($k, $v)\n}", schema: "array",
	},
	"[]word": {
		readJSON: `$v = readWords(t)`, writeJSON: `w.Leave(len($v) == 0)`,
		differs: `len($v) > 0`, read: `$v = readWords(r)`, write: "if len($v) > 0 {\nf.List($k, $v)\n}", schema: "array",
	},
	"map[string]string": {
		readJSON: `$v = t.Map()`, writeJSON: `w.Leave(len($v) == 0)`,
		differs: `len($v) > 0`, read: `$v = r.Strs()`, write: "if len($v) > 0 {\nf.Map($k, $v)\n}", schema: "object",
	},
	"*struct": {
		readJSON: "$v = &$T{}\nread$T(t, $v)", writeJSON: `w.Leave($v == nil)`,
		differs: `$v != nil`, read: "$v = &job.$T{}\nread$T(r, $v)",
		write: "if $v != nil {\nstore$T(f, $k, $v)\n}",
	},

	// Only Job has these, which is only written as JSON.
	"ID":            {writeJSON: `w.Str($n, $v.String())`},
	"uint64":        {writeJSON: `w.Uint($n, $v)`},
	"RunStatus":     {writeJSON: `w.Leave($v == 0)`},
	"*Notification": {writeJSON: `w.Leave($v == nil)`},
}

func (d *declaration) kind(f *field) (kind, error) {
	name := f.typ
	switch {
	case d.isStruct(name):
		name = "struct"
	case d.isStruct(strings.TrimPrefix(name, "*")):
		name = "*struct"
	case name != "Type" && d.strings[name]:
		name = "named"
	case name == "string" && f.words():
		name = "word"
	case name == "[]string" && f.words():
		name = "[]word"
	}
	k, ok := kinds[name]
	if !ok || f.key != "" && k.read == "" {
		return k, fmt.Errorf("there is no kind of field for a %s: add it to kinds", f.typ)
	}
	return k, nil
}

// fill puts a field into the code of its kind.
func fill(code string, f *field) string {
	d, _ := literal(f) // check has seen it
	return strings.NewReplacer("$v", "s."+f.name, "$T", strings.TrimPrefix(f.typ, "*"), "$n", strconv.Quote(f.json),
		"$k", strconv.Quote(f.key), "$d", d).Replace(code)
}
