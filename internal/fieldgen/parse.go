package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// declared are the structs that are read, written and stored; Job is what the API answers with, and is only written.
var declared = []string{"Spec", "Retry", "Missed", "Notify"}

const answer = "Job"

// declaration is what package job says of the fields of jobs.
type declaration struct {
	structs map[string][]field
	strings map[string]bool // the types that are strings under another name
}

// field is one field of a struct.
type field struct {
	name     string // in Go; "" if the struct is embedded
	typ      string // as it is written in package job
	doc      string
	json     string
	omit     bool   // left out of the JSON when empty
	key      string // in the stored form
	def      string
	implied  string
	enum     []string
	min, max string
}

// words says whether the field has the same few values in most jobs.
func (f *field) words() bool { return len(f.enum) > 0 || f.def != "" }

func parse(dir string) (*declaration, error) {
	d := &declaration{map[string][]field{}, map[string]bool{}}
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_gen.go") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			switch t := spec.Type.(type) {
			case *ast.Ident:
				d.strings[spec.Name.Name] = t.Name == "string"
			case *ast.StructType:
				if name := spec.Name.Name; name == answer || slices.Contains(declared, name) {
					d.structs[name] = fieldsOf(t)
				}
			}
			return false
		})
	}
	return d, d.check()
}

func fieldsOf(t *ast.StructType) (out []field) {
	for _, f := range t.Fields.List {
		tag := reflect.StructTag("")
		if f.Tag != nil {
			raw, _ := strconv.Unquote(f.Tag.Value) // what the parser took has quotes
			tag = reflect.StructTag(raw)
		}
		one := field{typ: types.ExprString(f.Type), key: tag.Get("codec"), def: tag.Get("default"),
			implied: tag.Get("implied"), min: tag.Get("min"), max: tag.Get("max"),
			doc: strings.Join(strings.Fields(f.Doc.Text()), " ")}
		if enum := tag.Get("enum"); enum != "" {
			one.enum = strings.Split(enum, ",")
		}
		var how string
		one.json, how, _ = strings.Cut(tag.Get("json"), ",")
		one.omit = how != ""
		if len(f.Names) == 0 {
			out = append(out, one)
		}
		for _, n := range f.Names {
			one.name = n.Name
			out = append(out, one)
		}
	}
	return out
}

// check refuses a declaration of which only a part would be done.
func (d *declaration) check() error {
	for _, s := range declared {
		keys := map[string]bool{}
		if n := len(d.structs[s]); n == 0 || n > 64 {
			return fmt.Errorf("%s has %d fields, not 1 to 64", s, n)
		}
		for _, f := range d.structs[s] {
			where := s + "." + f.name
			switch {
			case f.name == "" || f.json == "" || f.key == "" || keys[f.key]:
				return fmt.Errorf("%s needs a name, a json tag and a codec tag of its own", where)
			case f.typ[0] == '*' && !d.isStruct(f.typ[1:]) && f.def == "":
				return fmt.Errorf("%s: a pointer needs a default", where)
			}
			keys[f.key] = true
			if _, err := d.kind(&f); err != nil {
				return fmt.Errorf("%s: %w", where, err)
			}
			if _, err := literal(&f); err != nil {
				return fmt.Errorf("%s: the default: %w", where, err)
			}
		}
	}
	return nil
}

func (d *declaration) isStruct(typ string) bool { return slices.Contains(declared, typ) }

// literal is the default as a Go expression, in the type that it is stored as.
func literal(f *field) (string, error) {
	switch f.typ {
	case "Duration":
		if f.def == "" {
			return "0", nil
		}
		v, err := time.ParseDuration(f.def)
		return strconv.FormatInt(int64(v), 10), err
	case "int", "Instant", "*int", "*float64":
		if f.def == "" {
			return "0", nil
		}
		_, err := strconv.ParseFloat(f.def, 64)
		return f.def, err
	case "string":
		return strconv.Quote(f.def), nil
	}
	if f.def != "" {
		return "", fmt.Errorf("a %s cannot have one", f.typ)
	}
	return `""`, nil
}
