package jsontext

import (
	"bytes"
	"encoding/json"
)

// Member is one of an object, as it stands in the text.
type Member struct {
	Key   string
	Value json.RawMessage
}

// Members are those of an object, in the order of the text.
func Members(text []byte) (out []Member, err error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := Member{Key: key.(string)}
		if err := dec.Decode(&m.Value); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}
