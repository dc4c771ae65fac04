package job

import (
	"cmp"
	"slices"
)

// Kind is what is known of a type of job without carrying one out. Package executor registers the kinds, each beside
// its runner: a program that validates jobs has to import it.
type Kind struct {
	Type Type
	// Check says what is wrong with a payload.
	Check func(payload []byte) *Error
	// Secrets are the fields of the payload that may refer to secrets; nil: it has none.
	Secrets map[string]SecretPlace
	// Schema is the JSON Schema of the payload, for the OpenAPI document, which has it under its title.
	Schema string
}

// kinds are those that were registered, ordered by type. It is written only while packages are initialized.
var kinds []Kind

// RegisterKind adds a type of job. It is called while packages are initialized.
func RegisterKind(k Kind) {
	i, found := slices.BinarySearchFunc(kinds, k.Type, func(have Kind, t Type) int { return cmp.Compare(have.Type, t) })
	if found {
		panic("the job type " + string(k.Type) + " is registered twice")
	}
	kinds = slices.Insert(kinds, i, k)
}

// Kinds are the types of job there are, ordered by name.
func Kinds() []Kind { return kinds }

// Types are the names of the types of job there are, ordered.
func Types() []string {
	names := make([]string, len(kinds))
	for i := range kinds {
		names[i] = string(kinds[i].Type)
	}
	return names
}

// TypeOf is the type of a name, without a copy of the name where the type is registered.
func TypeOf(name []byte) Type {
	for i := range kinds {
		if string(kinds[i].Type) == string(name) {
			return kinds[i].Type
		}
	}
	return Type(name)
}

func checkType(s *Spec) *Error {
	if kindOf(s.Type) != nil {
		return nil
	}
	return oneOf("type", string(s.Type), Types()...)
}

func kindOf(t Type) *Kind {
	for i := range kinds {
		if kinds[i].Type == t {
			return &kinds[i]
		}
	}
	return nil
}
