package mergepatch

import "testing"

// The examples of RFC 7386, appendix A, and what must come through untouched.
func TestMergePatch(t *testing.T) {
	for _, tt := range []struct{ target, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"u":"a&b<c"}`, `{"v":{"w":"d>e"}}`, `{"u":"a&b<c","v":{"w":"d>e"}}`},
		{`{"n":12345678901234567890,"f":1.10}`, `{"m":0.30}`, `{"f":1.10,"m":0.30,"n":12345678901234567890}`},
	} {
		got, err := merge([]byte(tt.target), []byte(tt.patch))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s + %s = %s (%v), want %s", tt.target, tt.patch, got, err, tt.want)
		}
	}
}
