package job

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestNotify(t *testing.T) {
	for _, c := range []struct {
		text, field, says string
	}{
		{`{}`, "notify", "there is nobody to notify"},
		{`{"on":["failure"]}`, "notify", "there is nobody to notify"},
		{`{"webhook":"ops","on":["success"]}`, "notify.on", `"success" is not allowed`},
		{`{"webhook":"ops","on":["recover"]}`, "notify.on", `did you mean "recovery"?`},
		{`{"webhook":"ftp://example.com/secret"}`, "notify.webhook", "neither"},
		{`{"webhook":"https://"}`, "notify.webhook", "neither"},
		{`{"webhook":"no name"}`, "notify.webhook", "neither"},
		{`{"webhook":"https://h/` + strings.Repeat("x", 3000) + `"}`, "notify.webhook", "3010 bytes"},
		{`{"email":["nobody"]}`, "notify.email", `"nobody" is not an e-mail address`},
		{`{"email":["a@example.com\r\nBcc: b@example.com"]}`, "notify.email", "is not an e-mail address"},
		{`{"email":["Ops <ops@example.com>"]}`, "notify.email", "is not an e-mail address"},
		{`{"email":["1@e.de","2@e.de","3@e.de","4@e.de","5@e.de","6@e.de","7@e.de","8@e.de","9@e.de","10@e.de","11@e.de","12@e.de","13@e.de","14@e.de","15@e.de","16@e.de","17@e.de"]}`, "notify.email", "17 addresses"},
		{`{"webhook":"ops"}`, "", ""},
		{`{"webhook":"https://hooks.example.com/services/T0/B0/x?y=z"}`, "", ""},
		{`{"email":["ops@example.com","ops@example.com"],"on":["recovery","failure","recovery"]}`, "", ""},
	} {
		s := Spec{Type: TypeHTTP, Schedule: "@manual", Payload: json.RawMessage(`{"url":"http://localhost/"}`)}
		if err := DecodeStrict([]byte(`{"notify":`+c.text+`}`), &s); err != nil {
			t.Fatal(err)
		}
		s.Normalize()
		err := s.Validate()
		if c.field == "" {
			if err != nil {
				t.Errorf("%s: %v", c.text, err)
			}
			continue
		}
		var e *Error
		if !errors.As(err, &e) || e.Field != c.field || !strings.Contains(e.Message, c.says) || e.Remedy == "" {
			t.Errorf("%s: %+v", c.text, err)
		}
		if e != nil && strings.Contains(e.Error(), "secret") {
			t.Errorf("%s: the URL is in the error", c.text)
		}
	}
}

func TestNormalizeNotify(t *testing.T) {
	mine := &Notify{Webhook: " ops ", Email: []string{"b@e.de", "a@e.de", "b@e.de"}, On: []string{"recovery", "failure", "recovery"}}
	s := Spec{Notify: mine}
	s.Normalize()
	want := &Notify{Webhook: "ops", Email: []string{"b@e.de", "a@e.de"}, On: []string{"failure", "recovery"}}
	if !reflect.DeepEqual(s.Notify, want) || len(mine.On) != 3 || mine.On[0] != "recovery" {
		t.Errorf("%+v %+v", s.Notify, mine)
	}
	s = Spec{Notify: &Notify{Webhook: "ops"}}
	s.Normalize()
	if !s.Notify.Wants("failure") || !s.Notify.Wants("recovery") || len(s.Notify.On) != 2 {
		t.Errorf("%+v", s.Notify)
	}
	if s = (Spec{}); s.Notify.Wants("failure") {
		t.Error("a job without notify tells nothing")
	}
	for text, is := range map[string]bool{"ops": true, "https://x/": false, "": false} {
		if _, named := (&Notify{Webhook: text}).WebhookName(); named != is {
			t.Errorf("%q", text)
		}
	}
}
