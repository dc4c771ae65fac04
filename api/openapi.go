package api

import (
	_ "embed" // the OpenAPI document
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/carillon-scheduler/carillon/job"
)

// openapiJSON is the document without the types of job, which register themselves.
//
//go:embed openapi.json
var openapiJSON string

// openapiDocument is the document with the types of job that this binary has.
var openapiDocument = sync.OnceValue(func() []byte {
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
	).Replace(openapiJSON))
})

func (c *call) openapi() error {
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Write(openapiDocument()) //nolint:errcheck // the client hung up
	return nil
}
