package main

import (
	"fmt"
	"strconv"
	"strings"
)

// kind is what is done with the fields of one type. In the code, $v is the field, $T its type, $n and $k its names in
// JSON and in the stored form, $d its default.
type kind struct {
	some      string // whether it is in the JSON, if it is left out when empty
	readJSON  string // from t, a jsontext.Reader
	writeJSON string // to w, a jsontext.Writer
	differs   string // whether it is stored
	read      string // from r, a pack.Reader
	write     string // to f, a pack.Fields
	schema    string // the type in the OpenAPI document; "" if it is described there
}

// kinds are the types that a field can have.
var kinds = map[string]kind{
	"string": {
		some: `$v != ""`, readJSON: `$v = string(t.Str())`, writeJSON: `w.Str($n, $v)`,
		differs: `$v != $d`, read: `$v = r.Str()`, write: `f.Str($k, $v)`, schema: "string",
	},
	"word": { // a string that has the same few values in most jobs
		some: `$v != ""`, readJSON: `$v = Word(t.Str())`, writeJSON: `w.Str($n, $v)`,
		differs: `$v != $d`, read: `$v = job.Word(r.Raw())`, write: `f.Str($k, $v)`, schema: "string",
	},
	"named": { // the same, in a type of its own
		some: `$v != ""`, readJSON: `$v = $T(Word(t.Str()))`, writeJSON: `w.Str($n, string($v))`,
		differs: `$v != $d`, read: `$v = job.$T(job.Word(r.Raw()))`, write: `f.Str($k, string($v))`, schema: "string",
	},
	"Type": { // the types register themselves, so that neither the code nor the schema lists them
		some: `$v != ""`, readJSON: `$v = TypeOf(t.Str())`, writeJSON: `w.Str($n, string($v))`,
		differs: `$v != $d`, read: `$v = job.TypeOf(r.Raw())`, write: `f.Str($k, string($v))`,
	},
	"int": {
		some: `$v != 0`, readJSON: `$v = t.Int()`, writeJSON: `w.Int($n, int64($v))`,
		differs: `$v != $d`, read: `$v = int(r.Int())`, write: `f.Int($k, int64($v))`, schema: "integer",
	},
	"bool": {
		some: `$v`, readJSON: `$v = t.Bool()`, writeJSON: `w.Bool($n, $v)`,
		differs: `$v`, read: `$v = r.Bool()`, write: `f.Bool($k, $v)`, schema: "boolean",
	},
	"Duration": {
		some: `$v != 0`, readJSON: `$v = readDuration(t)`, writeJSON: `w.Str($n, $v.String())`,
		differs: `$v != $d`, read: `$v = job.Duration(r.Int())`, write: `f.Int($k, int64($v))`, schema: "string",
	},
	"Instant": {
		some: `$v != 0`, readJSON: `$v = readInstant(t)`, writeJSON: `writeInstant(w, $n, $v)`,
		differs: `$v != $d`, read: `$v = job.Instant(r.Int())`, write: `f.Int($k, int64($v))`, schema: "string",
	},
	"json.RawMessage": {
		some: `len($v) > 0`, readJSON: `$v = append([]byte{}, t.Raw()...)`, writeJSON: `w.Raw($n, $v)`,
		differs: `$v != nil`, read: `$v = r.Bin()`, write: `f.Bin($k, $v)`,
	},
	"*int": {
		some: `$v != nil`, readJSON: "n := t.Int()\n$v = &n", writeJSON: `w.Int($n, int64(*$v))`,
		differs: `$v == nil || *$v != $d`, schema: "integer",
		read:  "if $v = nil; !r.Nil() {\nn := int(r.Int())\n$v = &n\n}",
		write: "if $v == nil {\nf.Nil($k)\n} else {\nf.Int($k, int64(*$v))\n}",
	},
	"*float64": {
		some: `$v != nil`, readJSON: "n := t.Float()\n$v = &n", writeJSON: `w.Float($n, *$v)`,
		differs: `$v == nil || *$v != $d`, schema: "number",
		read:  "if $v = nil; !r.Nil() {\nn := r.Float()\n$v = &n\n}",
		write: "if $v == nil {\nf.Nil($k)\n} else {\nf.Float($k, *$v)\n}",
	},
	"struct": {
		readJSON: `read$T(t, &$v)`, writeJSON: "w.Key($n)\nw.Begin()\nwrite$T(w, &$v)\nw.End()",
		differs: `differs$T(&$v)`, read: `read$T(r, &$v)`, write: `store$T(f, $k, &$v)`,
	},

	// A job with one of these is left to encoding/json when it is written.
	"[]string": {
		readJSON: `$v = t.Strings()`, writeJSON: `w.Leave(len($v) == 0)`,
		differs: `len($v) > 0`, read: `$v = r.List()`, write: `f.List($k, $v)`, schema: "array",
	},
	"[]word": {
		readJSON: `$v = readWords(t)`, writeJSON: `w.Leave(len($v) == 0)`,
		differs: `len($v) > 0`, read: `$v = readWords(r)`, write: `f.List($k, $v)`, schema: "array",
	},
	"map[string]string": {
		readJSON: `$v = t.Map()`, writeJSON: `w.Leave(len($v) == 0)`,
		differs: `len($v) > 0`, read: `$v = r.Strs()`, write: `f.Map($k, $v)`, schema: "object",
	},
	"*struct": {
		readJSON: "$v = &$T{}\nread$T(t, $v)", writeJSON: `w.Leave($v == nil)`,
		differs: `$v != nil`, read: "$v = &job.$T{}\nread$T(r, $v)", write: `store$T(f, $k, $v)`,
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
