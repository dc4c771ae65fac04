package job

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// usual are jobs that must not need reflection, if that is to be worth anything.
var usual = []string{
	string(createLine),
	`{"name":"a","type":"http","schedule":"@daily","payload":{"url":"https://example.com"}}`,
	`{"type":"http","schedule":"@daily","payload":{"url":"https://example.com:8443/a/b?c=d&e=f","method":"PUT","body":"text with \"quotes\" and \n","retry_client_errors":true,"insecure_skip_verify":false}}`,
	`{"type":"queue","schedule":"@every 90s","payload":{"queue":"mail.out","data":{"a":[1,-2.5e+10,true,false,null,{"b":"ü"}]}},"tags":{"a":"b","c":""},"workers":{"gpu":"yes"}}`,
	" {\t\"type\" : \"queue\" ,\r\n \"schedule\":\"0 9 * * MON-FRI\",\"timezone\":\"Europe/Berlin\",\"payload\": {\"queue\":\"q\",\"data\": [ ] } , \"name\":\"größe\" } \n",
	`{"name":"full","type":"http","schedule":"@daily","timezone":"UTC","payload":{"url":"http://x"},"retry":{"max_retries":0,"backoff":"linear","base":"1s","cap":"1h30m","jitter":0.25},"timeout":"90s","deadline":"1h",
	  "missed":{"policy":"run_all","window":"2h","max":7,"grace":"5s"},"overlap":"queue","delivery":"at_least_once","priority":"high","concurrency":1,"jitter":"30s","start_at":"2027-01-01T00:00:00+01:00","end_at":"",
	  "max_runs":12,"calendars":["a","b"],"tags":{},"workers":{"w":"x"},"idempotency_key":"{run_id}","retention":"24h","dst_gap":"skip","dst_overlap":"both","notify":{"on":["failure"],"webhook":"ops","email":["a@example.com","b@example.com"]}}`,
	`{"type":"http","schedule":"@daily","payload":{"url":"http://x"},"retry":{},"missed":{},"calendars":[]}`,
}

// unusual are texts that are right or wrong in ways that only package json may judge.
var unusual = []string{
	``, ` `, `null`, `[]`, `{`, `{}x`, `{} {}`, `{"name":"a"`, `{"name":"a",}`, `{"name" "a"}`, `{,}`, `{"name":"a\u0041"}`, `{"Name":"a"}`, `{"name":null}`,
	`{"name":"a","name":"b"}`, `{"nam":"a"}`, `{"name":1}`, "{\"name\":\"\xff\"}", "{\"name\":\"a\nb\"}", `{"payload":null}`, `{"payload":01}`, `{"payload":-}`, `{"payload":1.}`,
	`{"payload":1e}`, `{"payload":tru}`, `{"payload":"\x"}`, `{"payload":"\u00e9"}`, `{"payload":{"a"}}`, `{"payload":{"a":1,}}`, `{"payload":[1,]}`, `{"payload":"`,
	`{"payload":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, `{"concurrency":-1}`, `{"concurrency":1.0}`, `{"concurrency":99999999999999999999}`,
	`{"timeout":"soon"}`, `{"timeout":5}`, `{"start_at":"soon"}`, `{"start_at":null}`, `{"retry":{"base":"1s","base":"2s"}}`, `{"retry":{"jitter":1e999}}`, `{"retry":null}`,
	`{"tags":{"a":1}}`, `{"tags":null}`, `{"tags":{"a":"1","a":"2"}}`, `{"calendars":[null]}`, `{"notify":{"webhook":"ops"}}`, "\ufeff{}", "{\"name\":\"a\"}\x00",
	"{\"payload\":{\"data\":\"\xff\"}}", "{\"payload\":{\"\xc3\":1}}", `{"payload":"\ud800"}`,
}

func agree(t *testing.T, data []byte) bool {
	t.Helper()
	var want Spec
	err := DecodeStrict(data, &want)
	got, ok := plainSpec(data)
	if ok && (err != nil || !reflect.DeepEqual(got, want)) {
		t.Errorf("%q is read as\n%+v and not\n%+v, %v", data, got, want, err)
	}
	var payload struct {
		Payload json.RawMessage `json:"payload"`
	}
	if json.Unmarshal(data, &payload) == nil {
		data = payload.Payload // else the text itself may be one
	}
	if err := checkHTTP(data); err != nil && plainHTTP(data) {
		t.Errorf("%q is a payload of http without a fault: %v", data, err)
	}
	var q QueuePayload
	if err := decodePayload(data, &q); plainQueue(data) && (err != nil || !QueueName(q.Queue)) {
		t.Errorf("%q is a payload of queue without a fault: %v", data, err)
	}
	return ok
}

func TestReadsUsualJobsByItself(t *testing.T) {
	for _, line := range usual {
		if !agree(t, []byte(line)) {
			t.Errorf("%s needs package json", line)
		}
		s, err := DecodeSpec([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if s.Type == TypeHTTP && !plainHTTP(s.Payload) || s.Type == TypeQueue && !plainQueue(s.Payload) {
			t.Errorf("the payload %s needs package json", s.Payload)
		}
	}
	for _, line := range unusual {
		agree(t, []byte(line))
	}
	for _, payload := range []string{
		`{"url":"http://x","headers":{"Carillon-Job":"1"}}`, `{"url":"http://x","headers":{"cOntent-length":"1"}}`, `{"url":"http://x","headers":{"a b":"1"}}`, `{"url":"http://x","headers":{"":"1"}}`,
		`{"url":"http://x","method":"get"}`, `{"url":"http://"}`, `{"url":"http://:80"}`, `{"url":"ftp://x"}`, `{"url":"http://x:y"}`, `{"url":"http://x/%zz"}`, `{"url":"http://x y"}`,
		`{"url":"http://x","url":"http://y"}`, `{"method":"GET"}`, `{"queue":""}`, `{"queue":"-a"}`, `{"queue":"a b"}`, `{"queue":"a","queue":"b"}`, `{"data":1}`,
	} {
		if plainHTTP([]byte(payload)) || plainQueue([]byte(payload)) {
			t.Errorf("%s is without a fault", payload)
		}
	}
}

// The memory that is read from may be used again.
func TestReadSpecKeepsNothing(t *testing.T) {
	data := []byte(usual[0])
	s, err := DecodeSpec(data)
	if err != nil {
		t.Fatal(err)
	}
	clear(data)
	if s.Name != "9e3779b97f4a7c15-idle-0" || !json.Valid(s.Payload) {
		t.Errorf("%+v", s)
	}
}

// FuzzReadSpec: what is read without package json is what that reads.
func FuzzReadSpec(f *testing.F) {
	for _, line := range append(usual, unusual...) {
		f.Add([]byte(line))
		s, err := DecodeSpec([]byte(line))
		if err == nil {
			f.Add([]byte(s.Payload))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { agree(t, data) })
}
