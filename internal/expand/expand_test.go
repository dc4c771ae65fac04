package expand_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/carillon-scheduler/carillon/internal/expand"
)

type inner struct {
	A, B, C, D, E uint64
	Name          string `json:"name"`
}

type outer struct {
	List  []inner           `json:"list"`
	Refs  []*inner          `json:"refs"`
	Words []string          `json:"words"`
	Tags  map[string]string `json:"tags"`
	Raw   json.RawMessage   `json:"raw"`
	Bytes []byte            `json:"bytes"`
	Any   any               `json:"any"`
	One   *inner            `json:"one"`
	N     int               `json:"n"`
}

var handle = func() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true}
	h.TypeInfos = codec.NewTypeInfos([]string{"json"})
	return h
}()

// Messages as programs write them pass in both codecs, large as they may be.
func TestUsualMessagesPass(t *testing.T) {
	m := outer{Raw: json.RawMessage("[" + strings.Repeat("1,", 50_000) + "1]"), Bytes: make([]byte, 9999), One: &inner{Name: "ü"}}
	m.Tags = map[string]string{}
	for i := range 5000 {
		e := inner{uint64(i), 1 << 40, 3, 4, 5, fmt.Sprintf("name-%d", i)}
		m.List, m.Refs, m.Words = append(m.List, e), append(m.Refs, &e), append(m.Words, "word-"+e.Name)
		m.Tags[e.Name] = "the value of " + e.Name
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := expand.JSON(text, &m); err != nil {
		t.Errorf("JSON of %d bytes: %v", len(text), err)
	}
	var packed []byte
	if err := codec.NewEncoderBytes(&packed, handle).Encode(m); err != nil {
		t.Fatal(err)
	}
	if err := expand.Msgpack(packed, &m); err != nil {
		t.Errorf("msgpack of %d bytes: %v", len(packed), err)
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestBombsAreRefused(t *testing.T) {
	many := func(e string) string { return "[" + strings.Repeat(e+",", 100_000) + e + "]" }
	entries := func(e string) string {
		var s strings.Builder
		for i := range 50_000 {
			fmt.Fprintf(&s, `"%x":%s,`, i, e)
		}
		return "{" + s.String() + `"x":` + e + "}"
	}
	list := func(field string, n int, e ...byte) []byte {
		b := append([]byte{0x81, 0xa0 | byte(len(field))}, field...)
		return append(binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n)), bytes.Repeat(e, n)...)
	}
	for _, c := range []struct {
		field string
		text  string
		pack  []byte
	}{
		{"list", `{"list":` + many("{}") + "}", list("list", 100_000, 0x80)},
		{"list", `{"LI\u0053T":` + many("null") + "}", list("list", 100_000, 0xc0)},
		{"refs", `{"refs":` + many("{}") + "}", list("refs", 100_000, 0x80)},
		{"words", `{"words":` + many(`""`) + "}", list("words", 100_000, 0xa0)},
		{"words", `{"words":` + many("[]") + "}", nil},
		{"tags", `{"tags":` + entries(`""`) + "}", nil},
		{"any", `{"any":` + many("{}") + "}", list("any", 100_000, 0x80)},
		{"any", `{"any":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "}",
			append([]byte{0x81, 0xa3, 'a', 'n', 'y'}, append(bytes.Repeat([]byte{0x91}, 5000), 0x90)...)},
	} {
		for name, check := range map[string]func() error{
			"JSON":    func() error { return expand.JSON([]byte(c.text), &outer{}) },
			"msgpack": func() error { return expand.Msgpack(c.pack, &outer{}) },
		} {
			if name == "msgpack" && c.pack == nil {
				continue
			}
			var err error
			took := allocated(func() { err = check() })
			var much *expand.TooMuch
			if !errors.As(err, &much) || !strings.EqualFold(much.Field, c.field) {
				t.Errorf("%s, %.30s: %v", name, c.text, err)
			}
			if took > 1<<20 {
				t.Errorf("%s, %.30s: the look itself took %d bytes", name, c.text, took)
			}
		}
	}
}

// Whatever the bytes are, the walk ends, and what it lets through does not expand much.
func FuzzMsgpack(f *testing.F) {
	f.Add([]byte("\x81\xa4list\x92\x80\x80"))
	f.Add([]byte("\x81\xa4tags\x81\xa1a\xa1b"))
	f.Add([]byte("\xdd\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if expand.Msgpack(data, &outer{}) != nil {
			return
		}
		var m outer
		codec.NewDecoderBytes(data, handle).Decode(&m) //nolint:errcheck // it may be refused
	})
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"list":[{"name":"x"},{}],"any":{"a":[1,null,"\\u00fc"]},"one":null}`))
	f.Add([]byte(`{"list":[}`))
	f.Add([]byte(`{"a"`))
	f.Fuzz(func(_ *testing.T, data []byte) { expand.JSON(data, &outer{}) }) //nolint:errcheck // that it ends is enough
}
