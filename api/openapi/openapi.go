// Package openapi completes the description of the API with what packages register themselves.
package openapi

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

// WithJobTypes is the document with the types of job that this binary has, and the schemas of their payloads. It has
// empty lists in their places.
func WithJobTypes(document string) []byte {
	types, err := json.Marshal(job.Types())
	if err != nil {
		panic(err) // strings can always be written
	}
	var refs, schemas []string
	for _, k := range job.Kinds() {
		var schema struct {
			Title string `json:"title"`
		}
		if err := json.Unmarshal([]byte(k.Schema), &schema); err != nil || schema.Title == "" {
			panic(fmt.Sprintf("the schema of %s payloads has no title: %v", k.Type, err))
		}
		refs = append(refs, `{"$ref": "#/components/schemas/`+schema.Title+`"}`)
		schemas = append(schemas, ",\n   \""+schema.Title+"\": "+strings.ReplaceAll(k.Schema, "\n", "\n   "))
	}
	return []byte(strings.NewReplacer(
		`"enum": []`, `"enum": `+string(types),
		`"anyOf": []}`, `"anyOf": [`+strings.Join(refs, ", ")+`]}`+strings.Join(schemas, ""),
	).Replace(document))
}
