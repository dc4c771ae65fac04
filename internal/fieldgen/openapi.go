package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/jsontext"
)

// document puts the declared fields into the schemas of an OpenAPI document. The rest of it stays as it is.
func (d *declaration) document(text []byte) ([]byte, error) {
	for _, name := range append([]string{answer}, declared...) {
		begin, end, err := properties(text, name)
		if err != nil {
			return nil, err
		}
		have, err := jsontext.Members(append(append([]byte("{"), text[begin:end]...), '}'))
		if err != nil {
			return nil, fmt.Errorf("the schema %s: %w", name, err)
		}
		var out []jsontext.Member
		if name == answer { // its own fields are described by hand
			out = slices.DeleteFunc(slices.Clone(have), func(m jsontext.Member) bool {
				return !slices.ContainsFunc(d.structs[answer], func(f field) bool { return f.json == m.Key })
			})
			out = append(out, d.schemas("Spec", have)...)
		} else {
			out = d.schemas(name, have)
		}
		var b bytes.Buffer
		for i, m := range out {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString("\n     " + encoded(m.Key) + ": ")
			if err := json.Indent(&b, m.Value, "     ", " "); err != nil {
				return nil, fmt.Errorf("the schema of %s.%s: %w", name, m.Key, err)
			}
		}
		text = slices.Concat(text[:begin], b.Bytes(), []byte("\n    "), text[end:])
	}
	return text, nil
}

// properties is where the properties of a schema are in the text, without their brackets.
func properties(text []byte, name string) (begin, end int, err error) {
	_, rest, ok1 := bytes.Cut(text, []byte("\n   \""+name+"\": {\n"))
	_, rest, ok2 := bytes.Cut(rest, []byte("\n    \"properties\": {"))
	begin = len(text) - len(rest)
	size := bytes.Index(rest, []byte("\n    }"))
	if !ok1 || !ok2 || size < 0 {
		return 0, 0, fmt.Errorf("the document has no schema %s with properties", name)
	}
	return begin, begin + size + len("\n    "), nil
}

// schemas are the properties of a struct. What has any form is described by hand, as have says.
func (d *declaration) schemas(name string, have []jsontext.Member) (out []jsontext.Member) {
	for _, f := range d.structs[name] {
		k, _ := d.kind(&f)
		m := jsontext.Member{Key: f.json}
		typ := strings.TrimPrefix(f.typ, "*")
		switch {
		case d.isStruct(typ):
			m.Value = json.RawMessage(`{"$ref": "#/components/schemas/` + typ + `"}`)
		case k.schema != "":
			m.Value = schema(&f, k)
		default:
			for _, h := range have {
				if h.Key == f.json {
					m.Value = h.Value
				}
			}
		}
		out = append(out, m)
	}
	return out
}

func schema(f *field, k kind) json.RawMessage {
	text := f.doc
	if f.typ == "Duration" {
		text += ` A Go duration such as "90s" or "1h30m".`
	}
	out := `{"type": ` + encoded(k.schema)
	enum := ""
	if len(f.enum) > 0 {
		enum = `, "enum": ["` + strings.Join(f.enum, `", "`) + `"]`
	}
	switch k.schema {
	case "array":
		out += `, "items": {"type": "string"` + enum + `}`
		enum = ""
	case "object":
		out += `, "additionalProperties": {"type": "string"}`
	}
	out += `, "description": ` + encoded(text) + enum
	if f.typ == "Instant" {
		out += `, "format": "date-time"`
	}
	for _, bound := range [][2]string{{"minimum", f.min}, {"maximum", f.max}} {
		if bound[1] != "" {
			out += fmt.Sprintf(", %q: %s", bound[0], bound[1])
		}
	}
	if def := f.def + f.implied; def != "" {
		if k.schema == "string" {
			def = encoded(def)
		}
		out += `, "default": ` + def
	}
	return json.RawMessage(out + "}")
}

func encoded(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string can always be written
	return strings.TrimSuffix(b.String(), "\n")
}
