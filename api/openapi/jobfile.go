package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

// duration is what time.ParseDuration takes and is not negative.
const duration = `^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

type object = map[string]any

// JobFile is the JSON Schema of a document in a job file, made of the schemas of the API's document: a job, or with
// kind a calendar or a queue. Editors mark by it what a node would refuse, as far as a schema can say that.
func JobFile(document []byte) []byte {
	var doc struct {
		Components struct {
			Schemas map[string]object `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		panic(err) // it is embedded
	}
	all := doc.Components.Schemas
	defs := object{}
	for _, name := range []string{"Spec", "Retry", "Missed", "Notify", "JobType", "Calendar", "Window"} {
		defs[name] = local(all[name])
	}
	spec := defs["Spec"].(object)
	var byType []any
	for _, k := range job.Kinds() {
		var schema object
		if err := json.Unmarshal([]byte(k.Schema), &schema); err != nil {
			panic(fmt.Sprintf("the schema of %s payloads: %v", k.Type, err))
		}
		name := schema["title"].(string)
		defs[name] = local(schema)
		byType = append(byType, object{"if": is("type", string(k.Type)),
			"then": object{"properties": object{"payload": object{"$ref": "#/$defs/" + name}}}})
	}
	spec["allOf"] = byType
	spec["properties"].(object)["payload"] = object{"type": "object", "description": all["Payload"]["description"]}
	calendar := defs["Calendar"].(object)
	calendar["required"] = []string{"name"}
	defs["Queue"] = object{"type": "object", "description": "A queue and how many of its runs may be in progress at " +
		"a time.",
		"properties": object{
			"name": object{"type": "string", "pattern": `^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`,
				"description": "Its name."},
			"namespace": object{"type": "string",
				"description": "The namespace it is in; the command may name it instead."},
			"concurrency": object{"type": "integer", "minimum": 0,
				"description": "How many of its runs workers may have at once; 0 for no limit."},
		}, "additionalProperties": false, "required": []string{"name"}}
	kind := object{"type": "string", "enum": []string{"job", "calendar", "queue"}, "default": "job",
		"description": "What the document is."}
	for _, name := range []string{"Spec", "Calendar", "Queue"} {
		defs[name].(object)["properties"].(object)["kind"] = kind
	}
	schema := object{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Carillon job file", "type": "object",
		"description": "A job, a calendar or a queue, for carillon submit and carillon apply.",
		"if":          is("kind", "calendar"),
		"then":        object{"$ref": "#/$defs/Calendar"},
		"else": object{"if": is("kind", "queue"), "then": object{"$ref": "#/$defs/Queue"},
			"else": object{"$ref": "#/$defs/Spec"}},
		"$defs": defs,
	}
	text, err := json.MarshalIndent(schema, "", " ")
	if err != nil {
		panic(err) // it was read from JSON
	}
	return append(text, '\n')
}

// is holds for an object whose field has a value.
func is(field, value string) object {
	return object{"properties": object{field: object{"const": value}}, "required": []string{field}}
}

// local is a schema whose references are those of the job file, and whose durations are checked.
func local(v any) any {
	switch v := v.(type) {
	case object:
		out := object{}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out[k] = local(v[k])
		}
		if ref, ok := v["$ref"].(string); ok {
			out["$ref"] = strings.Replace(ref, "#/components/schemas/", "#/$defs/", 1)
		}
		if about, _ := v["description"].(string); v["type"] == "string" && strings.Contains(about, "A Go duration") {
			out["pattern"] = duration
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = local(v[i])
		}
		return out
	}
	return v
}
