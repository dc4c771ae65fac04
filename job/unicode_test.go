package job

import (
	"errors"
	"strings"
	"testing"
)

// What a job says is text of whole characters, in its payload too, and what is not is refused with its field.
func TestTextIsOfWholeCharacters(t *testing.T) {
	const begin, end = `{"type":"queue","schedule":"@manual","payload":`, `}`
	for text, field := range map[string]string{
		begin + `{"queue":"q","data":"` + "\xff" + `"}` + end:                         "payload.data",
		begin + `{"queue":"q","data":{"a":[1,{"b":"ü"},"` + "\xc3\x28" + `"]}}` + end: "payload.data.a",
		begin + `{"queue":"q","data":{"a":1,"` + "\xed\xa0\x80" + `":2}}` + end:       "payload.data",
		begin + `{"queue":"q","data":"\ud800"}` + end:                                 "payload.data",
		begin + `{"queue":"q","data":["\ud83d","\ude00"]}` + end:                      "payload.data",
		begin + `{"queue":"q","data":"\uDE00\uD83D"}` + end:                           "payload.data",
		begin + `{"queue":"q","data":"\ud83d\n"}` + end:                               "payload.data",
		`{"name":"` + "\xff" + `"}`:                                                   "name",
		`{"name":"\udfff"}`:                                                           "name",
		`{"tags":{"a":"b","c":"` + "\xff" + `"}}`:                                     "tags.c",
		`{"tags":{"` + "\xff" + `":"b"}}`:                                             "tags",
		`{"calendars":["a","` + "\xff" + `"]}`:                                        "calendars",
		`{"retry":{"base":"1s"},"notify":{"email":["` + "\xff" + `"]}}`:               "notify.email",
		"{\"\xff\":1}": "",
		begin + `{"queue":"q","data":"` + strings.Repeat("x", 5<<10) + "\xff" + `"}` + end:           "payload.data",
		begin + `{"queue":"q","data":"\\ud800 \ud83d\ude00 \u00fc 😀"}` + end:                         "-",
		begin + `{"queue":"q","data":"` + strings.Repeat(`\ud83d\ude00`, 1000) + `\\\\ud800"}` + end: "-",
	} {
		_, err := DecodeSpec([]byte(text))
		var e *Error
		if errors.As(err, &e); field == "-" && err != nil ||
			field != "-" && (e == nil || e.Code != CodeMalformed || e.Field != field || e.Remedy == "") {
			t.Errorf("%.120q: %+v, want the field %q", text, err, field)
		}
	}
}
