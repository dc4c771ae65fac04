package apitest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/apitest"
)

// An editor that goes by the schema of job files marks what a node refuses, and nothing that it takes.
func TestSchemaJudgesAsTheNodeDoes(t *testing.T) {
	n := apitest.Start(t)
	var schema dict
	if err := json.Unmarshal(serve(t, n.Backend, "GET", "/api/v1/schemas/job.json", nil, "").Body.Bytes(), &schema); err != nil {
		t.Fatal(err)
	}
	const queue = `{"name":"a","type":"queue","schedule":"@manual","payload":{"queue":"q"}%s}`
	const http = `{"name":"a","type":"http","schedule":"0 1 * * *","payload":{"url":"https://example.com/"%s}}`
	good := []string{fmt.Sprintf(queue, ""), fmt.Sprintf(http, ""),
		fmt.Sprintf(http, `,"method":"PUT","headers":{"A":"b"},"body":{"x":[1]},"expect_status":"200-299"`),
		fmt.Sprintf(http, `,"body":"text","retry_client_errors":true`),
		`{"name":"a","type":"shell","schedule":"@manual","payload":{"command":"true"}}`}
	for _, more := range []string{
		`"timeout":"90s"`, `"timeout":"1h30m"`, `"timeout":"1.5h"`, `"timeout":"+5m"`, `"jitter":"0"`, `"priority":"high"`, `"overlap":"allow","concurrency":10`,
		`"retry":{"max_retries":0}`, `"retry":{"backoff":"linear","base":"2s","cap":"1m","jitter":0.5}`, `"missed":{"policy":"run_all","window":"2h","max":3}`,
		`"tags":{"team":"x"}`, `"start_at":"2027-01-01T00:00:00Z"`, `"notify":{"webhook":"https://example.com/","on":["failure"]}`, `"dst_overlap":"both"`, `"max_runs":5`,
	} {
		good = append(good, fmt.Sprintf(queue, ","+more))
	}
	bad := []string{`{"name":"a"}`, `[]`, `{"name":"a","type":"queue","schedule":"@manual"}`, `{"name":"a","type":"quue","schedule":"@manual","payload":{"queue":"q"}}`,
		`{"name":"a","type":"queue","payload":{"queue":"q"}}`, `{"name":"a","type":"queue","schedule":5,"payload":{"queue":"q"}}`,
		`{"name":"a","type":"queue","schedule":"@manual","payload":{}}`, `{"name":"a","type":"queue","schedule":"@manual","payload":{"url":"https://x/"}}`,
		`{"name":"a","type":"http","schedule":"@manual","payload":{"queue":"q"}}`, `{"name":"a","type":"shell","schedule":"@manual","payload":{"comand":"true"}}`,
		fmt.Sprintf(http, `,"methd":"PUT"`), fmt.Sprintf(http, `,"headers":{"A":1}`), fmt.Sprintf(http, `,"retry_client_errors":"yes"`)}
	for _, more := range []string{
		`"timeout":"5 minutes"`, `"timeout":"5"`, `"timeout":5`, `"timeout":"-5s"`, `"timeot":"5s"`, `"priority":"hgih"`, `"overlap":"never"`, `"concurrency":-1`,
		`"concurrency":20000`, `"concurrency":1.5`, `"retry":{"max_retries":1001}`, `"retry":{"jitter":2}`, `"retry":{"tries":2}`, `"retry":3`, `"missed":{"policy":"all"}`,
		`"tags":{"team":1}`, `"tags":["a"]`, `"calendars":"x"`, `"start_at":"tomorrow"`, `"notify":{"on":["success"],"webhook":"https://example.com/"}`, `"max_runs":-1`,
		`"job_id":"j_1"`, `"delivery":"once"`, `"dst_gap":"run"`,
	} {
		bad = append(bad, fmt.Sprintf(queue, ","+more))
	}
	judge := func(text string, want bool) {
		t.Helper()
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if err := conform(schema, schema, v, "job"); (err == nil) != want {
			t.Errorf("the schema judges %s: %v", text, err)
		}
		if got := apply(t, n.Backend, "?dry_run=true", text)[0]; (got.Error == nil) != want {
			t.Errorf("the node judges %s: %v", text, got.Error)
		}
	}
	for _, text := range good {
		judge(text, true)
	}
	for _, text := range bad {
		judge(text, false)
	}
	// What the command line applies besides jobs.
	for text, want := range map[string]bool{
		strings.Replace(good[0], "{", `{"kind":"job",`, 1): true, `{"kind":"queue","name":"q","concurrency":3}`: true, `{"kind":"calendar","name":"c","dates":["12-25"]}`: true,
		strings.Replace(good[0], "{", `{"kind":"jobs",`, 1): false, `{"kind":"queue","name":"q","paused":true}`: false, `{"kind":"queue"}`: false,
		`{"kind":"calendar","name":"c","date":["12-25"]}`: false, `{"kind":"calendar","dates":["12-25"]}`: false, strings.Replace(good[0], "{", `{"kind":"queue",`, 1): false,
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if err := conform(schema, schema, v, "document"); (err == nil) != want {
			t.Errorf("the schema judges %s: %v", text, err)
		}
	}
}
