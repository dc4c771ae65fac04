package apitest_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
)

// bomb is a body that is all elements: something before them, one of them over and over, something after them.
type bomb struct {
	what, before, after string
	element             func(i int) string
	between             string
}

func (b bomb) text(size int) string {
	var s strings.Builder
	s.WriteString(b.before)
	for i := 0; s.Len() < size; i++ {
		if i > 0 {
			s.WriteString(b.between)
		}
		s.WriteString(b.element(i))
	}
	s.WriteString(b.after)
	return s.String()
}

func same(s string) func(int) string { return func(int) string { return s } }

// bombs are the bodies of a schema in which one list or map has as many elements as fit.
func bombs(doc dict, schema any, before, after, name string, depth int) (out []bomb) {
	s, _ := schema.(dict)
	if ref, ok := s["$ref"].(string); ok {
		return bombs(doc, resolve(doc, ref), before, after, name, depth)
	}
	if depth == 0 {
		return nil
	}
	for _, k := range []string{"anyOf", "allOf", "oneOf"} {
		all, _ := s[k].([]any)
		for _, one := range all {
			out = append(out, bombs(doc, one, before, after, name, depth)...)
		}
	}
	properties, _ := s["properties"].(dict)
	for key, inner := range properties {
		out = append(out, bombs(doc, inner, before+fmt.Sprintf("{%q:", key), "}"+after, name+"."+key, depth-1)...)
	}
	isA := func(kind string) bool {
		list, _ := s["type"].([]any)
		return s["type"] == kind || slices.Contains(list, any(kind)) || s["type"] == nil && properties == nil
	}
	if isA("array") {
		for _, e := range []string{"{}", `""`, "0"} {
			out = append(out, bomb{name + " of " + e, before + "[", "]" + after, same(e), ","})
		}
		if s["items"] != nil {
			out = append(out, bombs(doc, s["items"], before+"[", "]"+after, name+"[]", depth-1)...)
		}
	}
	if isA("object") {
		for _, e := range []string{"{}", `""`} {
			out = append(out, bomb{name + " with " + e, before + "{", "}" + after,
				func(i int) string { return fmt.Sprintf(`"%x":%s`, i, e) }, ","})
		}
	}
	return out
}

// packed are the same for msgpack, of the fields of a schema that are lists or maps.
func packed(doc dict, schema any, size int) map[string][]byte {
	out := map[string][]byte{}
	s, _ := schema.(dict)
	if ref, ok := s["$ref"].(string); ok {
		return packed(doc, resolve(doc, ref), size)
	}
	properties, _ := s["properties"].(dict)
	for key := range properties {
		head := append([]byte{0x81, 0xa0 | byte(len(key))}, key...)
		for what, e := range map[string][]byte{"{}": {0x80}, `""`: {0xa0}, "0": {0}, "[]": {0x90}, "nil": {0xc0}} {
			list := binary.BigEndian.AppendUint32(append(slices.Clone(head), 0xdd), uint32(size))
			out[key+" of "+what] = append(list, bytes.Repeat(e, size)...)
			list = binary.BigEndian.AppendUint32(append(slices.Clone(head), 0xdf), uint32(size/5))
			for i := range size / 5 {
				list = append(append(list, 0xa3, byte('a'+i&15), byte('a'+i>>4&15), byte(i>>8)), e...)
			}
			out[key+" with "+what] = list
		}
	}
	return out
}

// What a body becomes in memory is within a small factor of its size, which is what the budget of memory counts: at
// every route that reads one, whatever its lists and maps are filled with. All that is allocated counts here, with what
// lists that grow leave behind.
func TestBodiesDoNotExpand(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	const size, factor = 32 << 10, 24
	n := apitest.Start(t)
	h := api.New(n.Backend, api.Options{Workers: n.Options.Workers, Cluster: someCluster{}})
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	if w := serveWith(t, n.Backend, api.Options{}, "POST", "/api/v1/jobs", nil,
		`{"name":"there","type":"queue","schedule":"@hourly","payload":{"queue":"q","data":{}}}`); w.Code != 201 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	worst := 0.0
	post := func(rt api.Route, media, what string, body []byte) {
		path := strings.NewReplacer("{ref}", "there", "{name}", "x", "{queue}", "x").Replace(rt.Path)
		r := httptest.NewRequest(rt.Method, path, bytes.NewReader(body))
		r.Header.Set("Content-Type", media)
		w := httptest.NewRecorder()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		h.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		took := after.TotalAlloc - before.TotalAlloc
		worst = max(worst, float64(took)/float64(len(body)))
		if took > factor*uint64(len(body)) {
			t.Errorf("%s %s, %s (%s): %d bytes took %d, %.0f times as many; answer %d %.150s", rt.Method, rt.Path, media, what, len(body),
				took, float64(took)/float64(len(body)), w.Code, w.Body)
		}
	}
	tried := 0
	for _, rt := range api.Routes() {
		content, _ := at(doc, "paths", rt.Path, strings.ToLower(rt.Method), "requestBody", "content").(dict)
		if rt.Method == http.MethodGet || content == nil {
			continue
		}
		for media, c := range content {
			schema := at(c, "schema")
			if media == wire.MediaMsgpack {
				for what, body := range packed(doc, schema, size) {
					post(rt, media, what, body)
					tried++
				}
				continue
			}
			all := append(bombs(doc, schema, "", "", "", 4), bomb{"fields", "{", "}",
				func(i int) string { return fmt.Sprintf(`"%x":0`, i) }, ","}, bomb{"a list", "[", "]", same("{}"), ","})
			for _, b := range all {
				post(rt, media, b.what, []byte(b.text(size)))
				tried++
			}
		}
	}
	t.Logf("%d bodies, and at most %.1f times their size", tried, worst)
	if tried < 100 {
		t.Errorf("only %d bodies were tried", tried)
	}
}
