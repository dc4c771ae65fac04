//go:build unix

package executor_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

func withPayload(t job.Type, payload string) *job.Spec {
	s := &job.Spec{Type: t, Schedule: "@manual", Payload: json.RawMessage(payload)}
	s.Normalize()
	return s
}

func TestExpandSecrets(t *testing.T) {
	values := map[string]string{"A": `a"b\c`, "B-1": "x/y z?&=", "C": "plain"}
	for _, tt := range []struct {
		typ             job.Type
		payload, expect string
		refs            []string
	}{
		{job.TypeHTTP, `{"url":"https://h/a/secret://B-1?q=secret://B-1&r=1"}`, `{"url":"https://h/a/x/y%20z%3F%26%3D?q=x%2Fy%20z%3F%26%3D&r=1"}`, []string{"B-1"}},
		{job.TypeHTTP, `{"url":"https://h/", "headers":{"A":"Bearer secret://C, secret://C."}, "body": {"n":1.50,"s":["secret://A"]}}`,
			`{"url":"https://h/", "headers":{"A":"Bearer plain, plain."}, "body": {"n":1.50,"s":["a\"b\\c"]}}`, []string{"A", "C"}},
		{job.TypeHTTP, `{"url":"https://h/","body":"text secret://A"}`, `{"url":"https://h/","body":"text a\"b\\c"}`, []string{"A"}},
		{job.TypeShell, `{"command":"x","env":{"K":"secret://A"}}`, `{"command":"x","env":{"K":"a\"b\\c"}}`, []string{"A"}},
		{job.TypeMessage, `{"broker":"b","subject":"s","headers":{"H":"secret://C"},"data":{"k":"\u0073ecret:\/\/C"}}`,
			`{"broker":"b","subject":"s","headers":{"H":"plain"},"data":{"k":"plain"}}`, []string{"C"}},
		{job.TypeQueue, `{"queue":"q","data":["secret://C",{"secret://C":"\u00e4\/"}]}`, `{"queue":"q","data":["plain",{"plain":"\u00e4\/"}]}`, []string{"C"}},
		{job.TypeQueue, `{"queue":"q","data":"\u00e4\/"}`, `{"queue":"q","data":"\u00e4\/"}`, nil},
	} {
		s := withPayload(tt.typ, tt.payload)
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", tt.payload, err)
			continue
		}
		got, err := s.ExpandSecrets(func(name string) string { return values[name] })
		if err != nil || string(got) != tt.expect {
			t.Errorf("%s\n got %s, %v\nwant %s", tt.payload, got, err, tt.expect)
		}
		if refs := s.SecretRefs(); !slices.Equal(refs, tt.refs) {
			t.Errorf("%s refers to %q", tt.payload, refs)
		}
		class := job.ParseClass(s.Class())
		if !slices.Equal(class.Secrets, tt.refs) || class.String() != s.Class() || class.Type != tt.typ {
			t.Errorf("%s: %+v of %q", tt.payload, class, s.Class())
		}
	}
	c := job.Class{Namespace: "team-a", Type: job.TypeQueue, Queue: "q", Selector: map[string]string{"a": "b"}, Secrets: []string{"x", "y"}}
	if got := job.ParseClass(c.String()); !reflect.DeepEqual(got, c) {
		t.Errorf("%+v", got)
	}
}

func TestExpandSecretsRefuses(t *testing.T) {
	s := withPayload(job.TypeHTTP, `{"url":"https://h/","headers":{"A":"secret://K"}}`)
	if _, err := s.ExpandSecrets(func(string) string { return "two\nlines" }); err == nil || strings.Contains(err.Error(), "two") || !strings.Contains(err.Error(), `"K"`) {
		t.Errorf("%v", err)
	}
	many := withPayload(job.TypeQueue, `{"queue":"q","data":["`+strings.Repeat("secret://K ", 1000)+`"]}`)
	if _, err := many.ExpandSecrets(func(string) string { return strings.Repeat("v", job.MaxSecretBytes) }); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("%v", err)
	}
	var refs []string
	for i := range job.MaxSecretRefs + 1 {
		refs = append(refs, "secret://K"+strings.Repeat("x", i))
	}
	if err := withPayload(job.TypeQueue, `{"queue":"q","data":"`+strings.Join(refs, " ")+`"}`).Validate(); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("%v", err)
	}
}

func TestSecretHosts(t *testing.T) {
	for host, good := range map[string]bool{"example.com": true, "example.com:8443": true, "10.0.0.1": true, "::1": true, "[::1]:80": true,
		"": false, "https://x": false, "a b": false, "a:": false, "a:0": false, "a:b:c": false, "*.x": false, "a/b": false, "u@h": false} {
		if job.CheckSecretHost(host) != good {
			t.Errorf("%q: %v", host, !good)
		}
	}
	for target, hosts := range map[string]map[string]bool{
		"api.example.com:443": {"": true, "api.example.com": true, "API.example.com:443": true, "api.example.com:80": false, "example.com": false, "pi.example.com": false},
		"[::1]:80":            {"::1": true, "[::1]:80": true, "[::1]:81": false}} {
		for host, may := range hosts {
			var list []string
			if host != "" {
				list = []string{host}
			}
			if job.SecretMayGoTo(list, target) != may {
				t.Errorf("%q to %s: %v", host, target, !may)
			}
		}
	}
}

func TestWarnings(t *testing.T) {
	for payload, want := range map[string]string{
		`{"url":"https://h/","headers":{"authorization":"Bearer abc"}}`:       "payload.headers.authorization",
		`{"url":"https://u:p@h/"}`:                                            "payload.url",
		`{"url":"http://h/","headers":{"Authorization":"secret://K"}}`:        "without TLS",
		`{"url":"https://h/","headers":{"Authorization":"Basic secret://K"}}`: "",
		`{"url":"https://u@h/"}`:                                              "",
	} {
		got := withPayload(job.TypeHTTP, payload).Warnings()
		if text := strings.Join(got, "; "); (want == "") != (text == "") || !strings.Contains(text, want) || strings.Contains(text, "abc") {
			t.Errorf("%s: %q", payload, got)
		}
	}
}

func FuzzSecretRefs(f *testing.F) {
	for _, seed := range []string{`{"url":"https://h/secret://A"}`, `{"a":"\u0073ecret:\/\/A"}`, `["secret://`, `{"secret://x":{"secret://y":"secret://z-"}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		s := withPayload(job.TypeHTTP, payload)
		if s.Class() != withPayload(job.TypeHTTP, string(s.Payload)).Class() {
			t.Error("a normalized payload has another class")
		}
		if s.Validate() != nil {
			return
		}
		got, err := s.ExpandSecrets(func(string) string { return "value" })
		if err != nil {
			t.Fatalf("%q: %v", payload, err)
		}
		if !json.Valid(got) {
			t.Errorf("%q became %q", payload, got)
		}
	})
}
