package job

import (
	"slices"
	"testing"
)

// A secret that is for some hosts goes to those only: by the URL, and by the header that says which site at that
// address is meant.
func TestTargets(t *testing.T) {
	for _, c := range []struct {
		typ     Type
		payload string
		want    []string // nil: the job does not say
	}{
		{TypeHTTP, `{"url":"https://a/x"}`, []string{"a:443"}},
		{TypeHTTP, `{"url":"http://a:8080/x"}`, []string{"a:8080"}},
		{TypeHTTP, `{"url":"https://a/x","headers":{"hOST":"b"}}`, []string{"a:443", "b:443"}},
		{TypeHTTP, `{"url":"http://a:8080/x","headers":{"Host":"b"}}`, []string{"a:8080", "b:8080"}},
		{TypeHTTP, `{"url":"http://a:8080/x","headers":{"Host":"b:81"}}`, []string{"a:8080", "b:81"}},
		{TypeHTTP, `{"url":"http://a/x","headers":{"Host":""}}`, nil},
		{TypeMessage, `{"broker":"nats://a:4222,b:4223","subject":"s"}`, []string{"a:4222", "b:4223"}},
		{TypeMessage, `{"broker":"kafka://a:9092","topic":"t"}`, nil},
		{TypeMessage, `{"broker":"main","topic":"t"}`, nil},
		{TypeShell, `{"command":"x"}`, nil},
	} {
		s := &Spec{Type: c.typ, Payload: []byte(c.payload)}
		got, ok := s.Targets()
		if ok != (c.want != nil) || ok && !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.payload, got, ok, c.want)
		}
	}
}
