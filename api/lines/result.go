package lines

import (
	"bytes"
	"encoding/json"
)

// AppendJSON writes a line of JSON without the escapes that only HTML needs.
func AppendJSON(b []byte, v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return append(b, buf.Bytes()...), err
}
