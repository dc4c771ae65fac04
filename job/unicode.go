package job

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// checkText refuses a JSON text that is not UTF-8, or that names half of a character (an escape \ud800 to \udfff
// without its other half). A payload is stored and handed out as it was written, and readers of it differ: Go puts
// U+FFFD in the place, Python refuses the whole answer that it is in. Strings outside of a payload would be changed
// without a word.
func checkText(data []byte, prefix string) *Error {
	if whole(data) {
		return nil
	}
	at, raw := firstBroken(data)
	e := &Error{Code: CodeMalformed, Field: Head(join(prefix, at), MaxName), Message: "this is not UTF-8",
		Remedy: "send text as UTF-8, and other bytes as text, such as base64"}
	if utf8.Valid(raw) {
		e.Message = `an escape between \ud800 and \udfff stands alone: it is half of a character`
		e.Remedy = "send both halves, or the character itself"
	}
	return e
}

// whole says that a JSON text has whole characters only.
func whole(data []byte) bool {
	if !utf8.Valid(data) {
		return false
	}
	for {
		i := bytes.IndexByte(data, '\\')
		if i < 0 || i+1 >= len(data) {
			return true
		}
		if data = data[i:]; data[1] != 'u' {
			data = data[2:]
			continue
		}
		switch half := halfOf(data); {
		case half == 'l' || half == 'h' && halfOf(data[6:]) != 'l':
			return false
		case half == 'h':
			data = data[12:]
		default:
			data = data[2:]
		}
	}
}

// halfOf says of what begins with an escape whether that is the first half of a character ('h'), the second ('l') or
// neither (0).
func halfOf(data []byte) byte {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' || data[2] != 'd' && data[2] != 'D' {
		return 0
	}
	switch c := data[3]; {
	case c == '8' || c == '9' || c|0x20 == 'a' || c|0x20 == 'b':
		return 'h'
	case c|0x20 >= 'c' && c|0x20 <= 'f':
		return 'l'
	}
	return 0
}

// firstBroken is the first string of a text that has not only whole characters, and the field that it is in, by its
// path from the root.
func firstBroken(data []byte) (field string, raw []byte) {
	type level struct {
		key   string
		named bool // the next string is a value
		list  bool
	}
	var in []level
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		before := dec.InputOffset()
		tok, err := dec.Token()
		if err != nil {
			return "", data
		}
		top := len(in) - 1
		isKey := top >= 0 && !in[top].list && !in[top].named
		if s, ok := tok.(string); ok {
			if raw := data[before:dec.InputOffset()]; !whole(raw) {
				var path []string
				for i, l := range in {
					if !l.list && (i < top || !isKey) {
						path = append(path, l.key)
					}
				}
				return strings.Join(path, "."), raw
			}
			if isKey {
				in[top].key, in[top].named = s, true
				continue
			}
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			in = append(in, level{list: tok == json.Delim('[')})
			continue
		case json.Delim('}'), json.Delim(']'):
			in = in[:top]
		}
		if n := len(in) - 1; n >= 0 {
			in[n].named = false // a value is over
		}
	}
}
