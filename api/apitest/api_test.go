package apitest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/keys"
	"github.com/carillon-scheduler/carillon/job"
)

const spec = `{"name":"hello","type":"http","schedule":"@every 2s","payload":{"url":"http://127.0.0.1:1/"}}`

func serve(t testing.TB, b api.Backend, method, path string, header map[string]string, body string) *httptest.ResponseRecorder {
	t.Helper()
	return serveWith(t, b, api.Options{}, method, path, header, body)
}

func serveWith(t testing.TB, b api.Backend, o api.Options, method, path string, header map[string]string, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for k, v := range header {
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	api.New(b, o).ServeHTTP(w, r)
	return w
}

func TestRoutes(t *testing.T) {
	if testing.Short() {
		t.Skip("a matter of numbers, not of memory that is shared")
	}
	t.Parallel()
	long := strings.Repeat("x", 256)
	notUTF8 := `{"name":"raw","type":"queue","schedule":"@manual","payload":{"queue":"q","data":"` + "\xff" + `"}}`
	type header = map[string]string
	tests := []struct {
		name   string
		method string
		path   string // after /api/v1 unless it is one of the probes
		header header
		body   string
		status int
		code   job.Code // of an error
		want   string   // somewhere in the body
	}{
		{"create", "POST", "/jobs", nil, spec, 201, "", `"version":1`},
		{"create with media type", "POST", "/jobs", header{"Content-Type": "application/json; charset=utf-8"}, spec, 201, "", `"job_id":"j_4"`},
		{"create by curl -d", "POST", "/jobs", header{"Content-Type": "application/x-www-form-urlencoded"}, spec, 201, "", ""},
		{"create with other media type", "POST", "/jobs", header{"Content-Type": "text/xml"}, spec, 415, job.CodeUnsupportedMedia, "application/json"},
		{"create with latin-1", "POST", "/jobs", header{"Content-Type": "application/json; charset=latin1"}, spec, 415, job.CodeUnsupportedMedia, ""},
		{"create, empty", "POST", "/jobs", nil, "", 400, job.CodeMalformed, "empty"},
		{"create, not JSON", "POST", "/jobs", nil, "{", 400, job.CodeMalformed, ""},
		{"create, two values", "POST", "/jobs", nil, spec + spec, 400, job.CodeMalformed, ""},
		{"create, not an object", "POST", "/jobs", nil, "[]", 400, job.CodeInvalid, ""},
		{"create, null", "POST", "/jobs", nil, "null", 400, job.CodeInvalid, ""},
		{"create, unknown field", "POST", "/jobs", nil, `{"nam":"x"}`, 400, job.CodeUnknownField, `did you mean`},
		{"create, read-only field", "POST", "/jobs", nil, `{"job_id":"j_1","type":"http"}`, 400, job.CodeUnknownField, `Carillon sets this field itself`},
		{"create, unknown zone", "POST", "/jobs", nil, strings.Replace(spec, `"type"`, `"timezone":"Mars/Olympus","type"`, 1), 400, job.CodeInvalid, `"field":"timezone"`},
		{"create, impossible date", "POST", "/jobs", nil, strings.Replace(spec, "@every 2s", "0 0 31 2 *", 1), 400, job.CodeInvalid, `"field":"schedule"`},
		{"create, past one-off", "POST", "/jobs", nil, strings.Replace(spec, "@every 2s", "2020-01-01T00:00:00Z", 1), 201, "", ""},
		{"create, negative timeout", "POST", "/jobs", nil, strings.Replace(spec, `"type"`, `"timeout":"-1s","type"`, 1), 400, job.CodeInvalid, `"field":"timeout"`},
		{"create, invalid template", "POST", "/jobs", nil, strings.Replace(spec, `"type"`, `"idempotency_key":"{nope}","type"`, 1), 400, job.CodeInvalid, `"field":"idempotency_key"`},
		{"create, duplicate name", "POST", "/jobs", nil, strings.Replace(spec, "hello", "daily", 1), 409, job.CodeDuplicateName, `"field":"name"`},
		{"create, 2 MB", "POST", "/jobs", nil, `{"name":"` + strings.Repeat("x", 2<<20) + `"}`, 413, job.CodeTooLarge, "1048576"},
		{"create, payload above its limit", "POST", "/jobs", nil, `{"name":"x","type":"queue","schedule":"@hourly","payload":{"queue":"q","data":"` + strings.Repeat("x", 200<<10) + `"}}`, 400, job.CodeInvalid, `"field":"payload"`},
		{"create, key", "POST", "/jobs", header{"Idempotency-Key": "k 1"}, spec, 201, "", ""},
		{"create, empty key", "POST", "/jobs", header{"Idempotency-Key": ""}, spec, 400, job.CodeInvalid, "Idempotency-Key"},
		{"create, long key", "POST", "/jobs", header{"Idempotency-Key": long}, spec, 400, job.CodeInvalid, "Idempotency-Key"},
		{"create, key not ASCII", "POST", "/jobs", header{"Idempotency-Key": "ä"}, spec, 400, job.CodeInvalid, "Idempotency-Key"},
		{"create, cross-origin", "POST", "/jobs", header{"Sec-Fetch-Site": "cross-site"}, spec, 403, job.CodeForbidden, ""},

		{"list", "GET", "/jobs", nil, "", 200, "", `"next_cursor":""`},
		{"list, page", "GET", "/jobs?limit=1", nil, "", 200, "", `"next_cursor":"$cursor"`},
		{"list, next page", "GET", "/jobs?limit=1&cursor=$cursor&stale=true", nil, "", 200, "", `"hourly"`},
		{"list, filters", "GET", "/jobs?status=scheduled&type=http&prefix=da&tag=team=a", nil, "", 200, "", `"daily"`},
		{"list, nothing", "GET", "/jobs?prefix=zzz", nil, "", 200, "", `"jobs":[]`},
		{"list, unknown parameter", "GET", "/jobs?statsu=paused", nil, "", 400, job.CodeUnknownField, `did you mean \"status\"`},
		{"list, unknown status", "GET", "/jobs?status=pausd", nil, "", 400, job.CodeInvalid, `did you mean \"paused\"`},
		{"list, unknown type", "GET", "/jobs?type=htp", nil, "", 400, job.CodeInvalid, `\"http\"`},
		{"list, bad limit", "GET", "/jobs?limit=0", nil, "", 400, job.CodeInvalid, `"field":"limit"`},
		{"list, large limit", "GET", "/jobs?limit=1001", nil, "", 400, job.CodeInvalid, `1000`},
		{"list, bad cursor", "GET", "/jobs?cursor=x", nil, "", 400, job.CodeInvalid, `"field":"cursor"`},
		{"list, bad tag", "GET", "/jobs?tag=team", nil, "", 400, job.CodeInvalid, `"field":"tag"`},
		{"list, contradicting tags", "GET", "/jobs?tag=a=1&tag=a=2", nil, "", 400, job.CodeInvalid, `"field":"tag"`},
		{"list, status twice", "GET", "/jobs?status=paused&status=failed", nil, "", 400, job.CodeInvalid, `"field":"status"`},
		{"list, bad stale", "GET", "/jobs?stale=maybe", nil, "", 400, job.CodeInvalid, `"field":"stale"`},
		{"list, bad query", "GET", "/jobs?a=%zz", nil, "", 400, job.CodeMalformed, ""},

		{"get by name", "GET", "/jobs/daily", nil, "", 200, "", `"url":"https://example.com/?a=1&b=2"`},
		{"get by id", "GET", "/jobs/j_1?stale=true", nil, "", 200, "", `"daily"`},
		{"get, unknown", "GET", "/jobs/nope", nil, "", 404, job.CodeNotFound, ""},
		{"get, a verb that is none", "GET", "/jobs/daily:explode", nil, "", 404, job.CodeNotFound, "resume"},
		{"get of a verb", "GET", "/jobs/daily:run", nil, "", 405, job.CodeMethodNotAllowed, ""},

		{"put", "PUT", "/jobs/daily", nil, spec, 200, "", `"version":2`},
		{"put what get gave", "PUT", "/jobs/j_1", nil, `{"job_id":"j_1","status":"scheduled","type":"shell","schedule":"@hourly","payload":{"command":"date"},"next_run_at":null,"last_run_at":null,"open_runs":0,"runs_started":0,"version":1,"created_at":null,"updated_at":null}`, 200, "", `"version":2`},
		{"put another job's", "PUT", "/jobs/j_1", nil, `{"job_id":"j_2","type":"http"}`, 400, job.CodeInvalid, `"field":"job_id"`},
		{"put, old version in body", "PUT", "/jobs/daily", nil, strings.Replace(spec, `"type"`, `"version":9,"type"`, 1), 409, job.CodeVersionConflict, ""},
		{"put, If-Match", "PUT", "/jobs/daily", header{"If-Match": `"1"`}, spec, 200, "", ""},
		{"put, If-Match any", "PUT", "/jobs/daily", header{"If-Match": `*`}, spec, 200, "", ""},
		{"put, old If-Match", "PUT", "/jobs/daily", header{"If-Match": `"9"`}, spec, 412, job.CodeVersionConflict, ""},
		{"put, bad If-Match", "PUT", "/jobs/daily", header{"If-Match": `9`}, spec, 400, job.CodeInvalid, `If-Match`},
		{"put, weak If-Match", "PUT", "/jobs/daily", header{"If-Match": `W/"1"`}, spec, 400, job.CodeInvalid, `If-Match`},
		{"put, two versions", "PUT", "/jobs/daily", header{"If-Match": `"1"`}, strings.Replace(spec, `"type"`, `"version":9,"type"`, 1), 400, job.CodeInvalid, `"field":"version"`},
		{"put, unknown job", "PUT", "/jobs/nope", nil, spec, 404, job.CodeNotFound, ""},
		{"put, unknown field", "PUT", "/jobs/daily", nil, `{"zone":"UTC"}`, 400, job.CodeUnknownField, ""},

		{"patch", "PATCH", "/jobs/daily", header{"Content-Type": "application/merge-patch+json"}, `{"timeout":"7s","retry":{"max_retries":0},"tags":null}`, 200, "", `"timeout":"7s"`},
		{"patch keeps big numbers", "PATCH", "/jobs/daily", nil, `{"payload":{"method":"PUT"}}`, 200, "", `12345678901234567890`},
		{"patch, version", "PATCH", "/jobs/daily", nil, `{"version":1,"timeout":"7s"}`, 200, "", ""},
		{"patch, old version", "PATCH", "/jobs/daily", nil, `{"version":2,"timeout":"7s"}`, 409, job.CodeVersionConflict, ""},
		{"patch, old If-Match", "PATCH", "/jobs/daily", header{"If-Match": `"2"`}, `{"timeout":"7s"}`, 412, job.CodeVersionConflict, ""},
		{"patch, bad version", "PATCH", "/jobs/daily", nil, `{"version":"x"}`, 400, job.CodeInvalid, `"field":"version"`},
		{"patch, wrong case", "PATCH", "/jobs/daily", nil, `{"Timeout":"7s"}`, 400, job.CodeUnknownField, `did you mean \"timeout\"`},
		{"patch, wrong case inside", "PATCH", "/jobs/daily", nil, `{"retry":{"Base":"7s"}}`, 400, job.CodeUnknownField, `did you mean \"retry.base\"`},
		{"patch, unknown field", "PATCH", "/jobs/daily", nil, `{"timeot":"7s"}`, 400, job.CodeUnknownField, `timeout`},
		{"patch, read-only field", "PATCH", "/jobs/daily", nil, `{"status":"paused"}`, 400, job.CodeUnknownField, `Carillon sets this field itself`},
		{"patch, null", "PATCH", "/jobs/daily", nil, `null`, 400, job.CodeMalformed, ``},
		{"patch, list", "PATCH", "/jobs/daily", nil, `[]`, 400, job.CodeInvalid, ``},
		{"patch, unknown job", "PATCH", "/jobs/nope", nil, `{}`, 404, job.CodeNotFound, ``},
		{"patch, media type", "PATCH", "/jobs/daily", header{"Content-Type": "text/plain"}, `{}`, 415, job.CodeUnsupportedMedia, `merge-patch`},

		{"delete", "DELETE", "/jobs/daily", nil, "", 204, "", ""},
		{"delete, If-Match", "DELETE", "/jobs/daily", header{"If-Match": `"2"`}, "", 412, job.CodeVersionConflict, ""},
		{"delete, unknown", "DELETE", "/jobs/nope", nil, "", 404, job.CodeNotFound, ""},
		{"delete all", "DELETE", "/jobs", nil, "", 405, job.CodeMethodNotAllowed, ""},

		{"job runs", "GET", "/jobs/daily/runs", nil, "", 200, "", `"count":12`},
		{"job runs, page", "GET", "/jobs/daily/runs?limit=2&status=succeeded,running", nil, "", 200, "", `"next_cursor":"h4"`},
		{"job runs, none", "GET", "/jobs/idle/runs", nil, "", 200, "", `"runs":[]`},
		{"job runs, bad status", "GET", "/jobs/daily/runs?status=succeded", nil, "", 400, job.CodeInvalid, `\"succeeded\"`},
		{"job runs, unknown", "GET", "/jobs/nope/runs", nil, "", 404, job.CodeNotFound, ""},

		{"run", "POST", "/jobs/idle:run", nil, "", 200, "", `"origin":"manual"`},
		{"run, empty object", "POST", "/jobs/idle:run", nil, " {} ", 200, "", ``},
		{"run, one is open", "POST", "/jobs/daily:run", nil, "", 409, job.CodeOverlap, `overlap`},
		{"run, a body", "POST", "/jobs/daily:run", nil, `{"x":1}`, 400, job.CodeMalformed, ``},
		{"run, unknown", "POST", "/jobs/nope:run", nil, "", 404, job.CodeNotFound, ``},
		{"run, no job", "POST", "/jobs/:run", nil, "", 400, job.CodeInvalid, ``},
		{"pause", "POST", "/jobs/daily:pause", nil, "", 200, "", `"status":"paused"`},
		{"pause, unknown", "POST", "/jobs/nope:pause", nil, "", 404, job.CodeNotFound, ``},
		{"resume, not paused", "POST", "/jobs/daily:resume", nil, "", 200, "", `"status":"scheduled"`},
		{"cancel", "POST", "/jobs/j_1:cancel", nil, "", 200, "", `"canceled":1`},
		{"backfill", "POST", "/jobs/daily:backfill", nil, `{"from":"2026-10-01T00:00:00Z","to":"2026-10-03T23:00:00Z","dry_run":true}`, 200, "", `"times":["2026-10-01T09:00:00Z"`},
		{"backfill, nothing", "POST", "/jobs/daily:backfill", nil, `{"from":"2026-10-01T00:00:00Z","to":"2026-10-01T01:00:00Z"}`, 200, "", `"times":[],"skipped":[]`},
		{"backfill, no from", "POST", "/jobs/daily:backfill", nil, `{"to":"2026-10-01T01:00:00Z"}`, 400, job.CodeInvalid, `"field":"from"`},
		{"backfill, no to", "POST", "/jobs/daily:backfill", nil, `{"from":"2026-10-01T01:00:00Z"}`, 400, job.CodeInvalid, `"field":"to"`},
		{"backfill, backwards", "POST", "/jobs/daily:backfill", nil, `{"from":"2026-10-02T00:00:00Z","to":"2026-10-01T01:00:00Z"}`, 400, job.CodeInvalid, `"field":"to"`},
		{"backfill, too many", "POST", "/jobs/daily:backfill", nil, `{"from":"2026-10-02T00:00:00Z","to":"2026-10-03T01:00:00Z","max":1001}`, 400, job.CodeInvalid, `"field":"max"`},
		{"backfill, above max", "POST", "/jobs/daily:backfill", nil, `{"from":"2026-01-01T00:00:00Z","to":"2026-10-03T01:00:00Z"}`, 400, job.CodeInvalid, `"field":"max"`},
		{"backfill, bad time", "POST", "/jobs/daily:backfill", nil, `{"from":"yesterday"}`, 400, job.CodeInvalid, `RFC 3339`},

		{"bulk", "POST", "/jobs:bulk", header{"Content-Type": "application/x-ndjson"}, spec + "\n", 200, "", `"created"`},
		{"bulk, nothing", "POST", "/jobs:bulk", nil, "\n\n", 200, "", ``},
		{"create, not UTF-8", "POST", "/jobs", nil, notUTF8, 400, job.CodeMalformed, `"field":"payload.data"`},
		{"bulk, not UTF-8", "POST", "/jobs:bulk", nil, notUTF8, 200, "", `"field":"payload.data"`},
		{"apply, not UTF-8", "POST", "/jobs:apply", nil, notUTF8, 200, "", `"field":"payload.data"`},
		{"put, not UTF-8", "PUT", "/jobs/daily", nil, notUTF8, 400, job.CodeMalformed, `"field":"payload.data"`},
		{"patch, not UTF-8", "PATCH", "/jobs/daily", nil, `{"payload":{"body":["` + "\xff" + `"]}}`, 400, job.CodeMalformed, `"field":"payload.body"`},
		{"patch, half a character", "PATCH", "/jobs/daily", nil, `{"tags":{"a":"\ud800"}}`, 400, job.CodeMalformed, `"field":"tags.a"`},
		{"bulk, media type", "POST", "/jobs:bulk", header{"Content-Type": "text/csv"}, spec, 415, job.CodeUnsupportedMedia, ``},

		{"occurrences", "GET", "/jobs/daily/occurrences", nil, "", 200, "", `"unaccounted":0`},
		{"occurrences, a page", "GET", "/jobs/daily/occurrences?from=2026-10-01T00:00:00Z&to=2026-11-30T00:00:00Z&limit=1", nil, "", 200, "", `"fate":"upcoming"`},
		{"occurrences, stale", "GET", "/jobs/idle/occurrences?stale=true", nil, "", 200, "", `"upcoming":20`},
		{"occurrences, put together", "GET", "/jobs/daily/occurrences?from=2026-10-01T00:00:00Z&cells=2", nil, "", 200, "", `"next_cursor":""`},
		{"occurrences, no cells", "GET", "/jobs/daily/occurrences?cells=0", nil, "", 400, job.CodeInvalid, `"field":"cells"`},
		{"occurrences, cells and pages", "GET", "/jobs/daily/occurrences?cells=2&cursor=1", nil, "", 400, job.CodeInvalid, `"field":"cursor"`},
		{"occurrences, bad cursor", "GET", "/jobs/daily/occurrences?cursor=-?", nil, "", 400, job.CodeInvalid, `"field":"cursor"`},
		{"occurrences, bad time", "GET", "/jobs/daily/occurrences?from=noon", nil, "", 400, job.CodeInvalid, `"field":"from"`},
		{"occurrences, backwards", "GET", "/jobs/daily/occurrences?from=2026-10-02T00:00:00Z&to=2026-10-01T00:00:00Z", nil, "", 400, job.CodeInvalid, `"field":"to"`},
		{"occurrences, unknown", "GET", "/jobs/nope/occurrences", nil, "", 404, job.CodeNotFound, ``},
		{"why", "GET", "/jobs/daily:why", nil, "", 200, "", `{"check":"overlap","state":"blocked"`},
		{"why, stale", "GET", "/jobs/idle:why?stale=true", nil, "", 200, "", `"verdict"`},
		{"why, unknown", "GET", "/jobs/nope:why", nil, "", 404, job.CodeNotFound, ``},
		{"job stats", "GET", "/jobs/daily/stats", nil, "", 200, "", `"success_rate":`},
		{"job stats, none", "GET", "/jobs/idle/stats", nil, "", 200, "", `"success_rate":null`},
		{"job stats, unknown", "GET", "/jobs/nope/stats", nil, "", 404, job.CodeNotFound, ``},

		{"dead groups", "GET", "/dead:groups", nil, "", 200, "", `"scanned":`},
		{"dead groups, unknown job", "GET", "/dead:groups?job=nope", nil, "", 404, job.CodeNotFound, ``},
		{"redrive, no such group", "POST", "/dead:redrive", nil, `{"group":"x","max":3}`, 200, "", `"count":0`},
		{"redrive, group and all", "POST", "/dead:redrive?group=x&all=true", nil, "", 400, job.CodeInvalid, `ambiguous`},
		{"redrive, bad max", "POST", "/dead:redrive?group=x&max=0", nil, "", 400, job.CodeInvalid, `"field":"max"`},

		{"list, text", "GET", "/jobs?q=DAI", nil, "", 200, "", `"scanned":`},
		{"list, text of none", "GET", "/jobs?q=nothing-has-this", nil, "", 200, "", `"jobs":[]`},
		{"list, text too long", "GET", "/jobs?q=" + strings.Repeat("x", 300), nil, "", 400, job.CodeInvalid, `"field":"q"`},
		{"list, failing", "GET", "/jobs?failing=true", nil, "", 200, "", `"total":`},
		{"runs, error", "GET", "/runs?error=STATUS+500&status=dead", nil, "", 200, "", `"error":"status 500`},
		{"runs, no such worker", "GET", "/runs?worker=none", nil, "", 200, "", `"runs":[]`},
		{"runs, bad interval", "GET", "/runs?from=2027-03-01T09:00:00Z&to=2027-02-01T09:00:00Z", nil, "", 400, job.CodeInvalid, `"field":"to"`},
		{"run summary", "GET", "/runs:summary", nil, "", 200, "", `"by_status":{`},
		{"run summary of a job", "GET", "/runs:summary?job=daily&stale=true", nil, "", 200, "", `"longest":[`},
		{"run summary, unknown job", "GET", "/runs:summary?job=nope", nil, "", 404, job.CodeNotFound, ``},
		{"apply", "POST", "/jobs:apply", nil, spec + "\n", 200, "", `"status":"`},
		{"apply, nothing", "POST", "/jobs:apply", nil, "\n\n", 200, "", ``},
		{"apply, no name", "POST", "/jobs:apply?dry_run=true", nil, `{"type":"http","schedule":"@manual","payload":{"url":"http://x/"}}`, 200, "", `"field":"name"`},
		{"apply, empty set", "POST", "/jobs:apply?set=", nil, spec, 400, job.CodeInvalid, `"field":"set"`},
		{"apply, calendars", "POST", "/jobs:apply?calendars=x", nil, spec, 400, job.CodeInvalid, `"field":"calendars"`},
		{"act, dry run", "POST", "/jobs:act", nil, `{"filter":{"q":"dail"},"action":"pause","dry_run":true}`, 200, "", `"matched":1,"done":0`},
		{"act", "POST", "/jobs:act", nil, `{"filter":{"q":"dail"},"action":"pause"}`, 200, "", `"matched":1,"done":1,"failed":0`},
		{"act on ids", "POST", "/jobs:act", nil, `{"filter":{"ids":["j_1","j_999"]},"action":"jitter","args":{"jitter_ms":500}}`, 200, "", `"matched":1,"done":1,"failed":0`},
		{"act on all", "POST", "/jobs:act", nil, `{"filter":{"all":true},"action":"tag","args":{"tags":{"a":"b"}}}`, 200, "", `"finished":true`},
		{"act on nothing", "POST", "/jobs:act", nil, `{"filter":{},"action":"pause"}`, 400, job.CodeInvalid, `nothing is selected`},
		{"act on ids and a text", "POST", "/jobs:act", nil, `{"filter":{"q":"x","ids":["j_1"]},"action":"pause"}`, 400, job.CodeInvalid, `ambiguous`},
		{"act, no action", "POST", "/jobs:act", nil, `{"filter":{"all":true}}`, 400, job.CodeInvalid, `"field":"action"`},
		{"act, bad action", "POST", "/jobs:act", nil, `{"filter":{"all":true},"action":"puase"}`, 400, job.CodeInvalid, `did you mean \"pause\"`},
		{"act, no tags", "POST", "/jobs:act", nil, `{"filter":{"all":true},"action":"tag"}`, 400, job.CodeInvalid, `"field":"args.tags"`},
		{"act, no jitter", "POST", "/jobs:act", nil, `{"filter":{"all":true},"action":"jitter"}`, 400, job.CodeInvalid, `"field":"args.jitter_ms"`},
		{"act, delete unseen", "POST", "/jobs:act", nil, `{"filter":{"all":true},"action":"delete"}`, 400, job.CodeInvalid, `"field":"expect"`},
		{"act, delete too few", "POST", "/jobs:act", nil, `{"filter":{"q":"dail"},"action":"delete","expect":7}`, 409, job.CodeState, `1 jobs match`},
		{"act, delete", "POST", "/jobs:act", nil, `{"filter":{"q":"dail"},"action":"delete","expect":1}`, 200, "", `"done":1`},
		{"act, bad cursor", "POST", "/jobs:act", nil, `{"filter":{"all":true},"action":"pause","cursor":"?"}`, 400, job.CodeInvalid, `"field":"cursor"`},

		{"upcoming", "GET", "/upcoming", nil, "", 200, "", `"scheduled_at":`},
		{"upcoming of a job", "GET", "/upcoming?job=daily&limit=3&from=2030-01-01T00:00:00Z", nil, "", 200, "", `"scheduled_at":"2030-01-0`},
		{"upcoming of a tag", "GET", "/upcoming?tag=no=one", nil, "", 200, "", `"occurrences":[]`},
		{"upcoming, unknown job", "GET", "/upcoming?job=nope", nil, "", 404, job.CodeNotFound, ``},
		{"upcoming, bad cursor", "GET", "/upcoming?cursor=x", nil, "", 400, job.CodeInvalid, `"field":"cursor"`},
		{"load", "GET", "/upcoming:load?step=1h&bucket=2030-01-01T00:00:00Z&from=2030-01-01T00:00:00Z&to=2030-01-03T00:00:00Z", nil, "", 200, "", `"kind":"exact"`},
		{"load, bad step", "GET", "/upcoming:load?step=2m", nil, "", 400, job.CodeInvalid, `"field":"step"`},
		{"load, too long", "GET", "/upcoming:load?from=2030-01-01T00:00:00Z&to=2031-01-01T00:00:00Z", nil, "", 400, job.CodeInvalid, `"field":"to"`},
		{"put, dry run", "PUT", "/jobs/daily?dry_run=true", nil, spec, 200, "", `"next_after":[`},
		{"patch, dry run", "PATCH", "/jobs/daily?dry_run=true", nil, `{"timeout":"7s"}`, 200, "", `{"field":"timeout",`},
		{"patch, dry run of a mistake", "PATCH", "/jobs/daily?dry_run=true", nil, `{"schedule":"x"}`, 400, job.CodeInvalid, `"field":"schedule"`},
		{"patch, dry run of an old version", "PATCH", "/jobs/daily?dry_run=true", header{"If-Match": `"9"`}, `{"timeout":"7s"}`, 412, job.CodeVersionConflict, ``},

		{"preview in zones", "POST", "/schedule:preview", nil, `{"schedule":"0 9 * * *","timezone":"Europe/Berlin","from":"2027-03-27T00:00:00Z","until":"2027-03-28T12:00:00Z","zones":["America/New_York"],"sharing":true}`,
			200, "", `"times":[{"at":"2027-03-27T09:00:00+01:00","utc":"2027-03-27T08:00:00Z","fires":true,"zones":{"America/New_York":"2027-03-27T04:00:00-04:00"}},{"at":"2027-03-28T09:00:00+02:00"`},
		{"preview, bad zone", "POST", "/schedule:preview", nil, `{"schedule":"0 9 * * *","zones":["Mars"]}`, 400, job.CodeInvalid, `"field":"zones"`},
		{"kill", "POST", "/dev:kill", nil, `{"node_id":"n1"}`, 204, "", ``},
		{"kill, not for play", "POST", "/dev:kill", nil, `{"node_id":"n2"}`, 404, job.CodeNotFound, "not a `carillon dev` cluster"},
		{"kill nothing", "POST", "/dev:kill", nil, `{}`, 400, job.CodeInvalid, `"field":"node_id"`},

		{"stats", "GET", "/stats", nil, "", 200, "", `"step_ms":1000`},
		{"stats of a day", "GET", "/stats?window=24h&namespace=*&stale=true", nil, "", 200, "", `"step_ms":60000`},
		{"stats, bad window", "GET", "/stats?window=2h", nil, "", 400, job.CodeInvalid, `"field":"window"`},
		{"events", "GET", "/events?topics=stats,job:daily", nil, "", 200, "", `event: hello`},
		{"events, bad topic", "GET", "/events?topics=stat", nil, "", 400, job.CodeInvalid, `did you mean \"stats\"`},
		{"events, unknown job", "GET", "/events?topics=job:nope", nil, "", 404, job.CodeNotFound, ``},

		{"runs", "GET", "/runs?job=daily&status=running", nil, "", 200, "", `$run`},
		{"runs, finished", "GET", "/runs?status=succeeded", nil, "", 200, "", `"seq":3`},
		{"runs, unknown job", "GET", "/runs?job=nope", nil, "", 404, job.CodeNotFound, ``},
		{"run detail", "GET", "/runs/$run", nil, "", 200, "", `"attempts":[]`},
		{"run detail, unknown", "GET", "/runs/r_1.1.s", nil, "", 404, job.CodeNotFound, ``},
		{"run detail, a job's name", "GET", "/runs/daily", nil, "", 404, job.CodeNotFound, `not a run id`},
		{"run output", "GET", "/runs/$run/output?fence=1&after=0", nil, "", 200, "", `"text":""`},
		{"run output, not a number", "GET", "/runs/$run/output?after=x", nil, "", 400, job.CodeInvalid, `"after"`},
		{"run output, unknown", "GET", "/runs/r_1.1.s/output", nil, "", 404, job.CodeNotFound, ``},
		{"run cancel", "POST", "/runs/$run:cancel", nil, "", 200, "", `canceling`},
		{"run cancel, unknown", "POST", "/runs/r_1.1.s:cancel", nil, "", 404, job.CodeNotFound, ``},
		{"export", "GET", "/runs:export?after=1", nil, "", 200, "", `"seq":2`},
		{"export, limit", "GET", "/runs:export?limit=1", nil, "", 200, "", `"seq":1`},
		{"export, end", "GET", "/runs:export?after=99", nil, "", 200, "", ``},
		{"export, bad after", "GET", "/runs:export?after=-1", nil, "", 400, job.CodeInvalid, `"field":"after"`},

		{"dead", "GET", "/dead?job=daily&limit=5", nil, "", 200, "", `"dead_id":$dead1`},
		{"dead one", "GET", "/dead/$dead1", nil, "", 200, "", `status 500`},
		{"dead one, unknown", "GET", "/dead/77", nil, "", 404, job.CodeNotFound, ``},
		{"dead one, no number", "GET", "/dead/x", nil, "", 404, job.CodeNotFound, ``},
		{"redrive", "POST", "/dead:redrive", nil, `{"ids":[$dead1]}`, 200, "", `"count":1`},
		{"redrive, query", "POST", "/dead:redrive?all=true", nil, ``, 200, "", `"count":2`},
		{"redrive, nothing", "POST", "/dead:redrive", nil, ``, 400, job.CodeInvalid, `nothing is selected`},
		{"redrive, empty object", "POST", "/dead:redrive", nil, `{}`, 400, job.CodeInvalid, `nothing is selected`},
		{"redrive, two selections", "POST", "/dead:redrive", nil, `{"all":true,"job":"daily"}`, 400, job.CodeInvalid, `ambiguous`},
		{"redrive, query and body", "POST", "/dead:redrive?all=true", nil, `{"all":true}`, 400, job.CodeInvalid, `both`},
		{"redrive, unknown job", "POST", "/dead:redrive", nil, `{"job":"nope"}`, 404, job.CodeNotFound, ``},
		{"purge", "DELETE", "/dead?ids=$dead1,$dead2", nil, ``, 200, "", `"count":2`},
		{"purge, body", "DELETE", "/dead", nil, `{"job":"hourly"}`, 200, "", `"count":1`},
		{"purge, nothing", "DELETE", "/dead", nil, ``, 400, job.CodeInvalid, `nothing is selected`},
		{"purge, all=false", "DELETE", "/dead?all=false", nil, ``, 400, job.CodeInvalid, `nothing is selected`},
		{"purge, bad id", "DELETE", "/dead?ids=x", nil, ``, 400, job.CodeInvalid, `"field":"ids"`},
		{"purge, too many", "DELETE", "/dead?ids=1" + strings.Repeat(",1", 1000), nil, ``, 400, job.CodeInvalid, `"field":"ids"`},

		{"preview", "POST", "/schedule:preview", nil, `{"schedule":"30 2 * * *","timezone":"America/New_York","from":"2027-03-13T12:00:00Z","count":2}`, 200, "", `"at":"2027-03-14T03:00:00-04:00"`},
		{"preview with a calendar", "POST", "/schedule:preview", nil, `{"schedule":"0 0 25 12 *","calendars":["xmas"]}`, 200, "", `"fires":false`},
		{"preview, unknown calendar", "POST", "/schedule:preview", nil, `{"schedule":"@daily","calendars":["nope"]}`, 400, job.CodeInvalid, `"field":"calendars"`},
		{"preview, empty", "POST", "/schedule:preview", nil, `{}`, 400, job.CodeInvalid, `"field":"schedule"`},
		{"preview, count", "POST", "/schedule:preview", nil, `{"schedule":"@daily","count":1001}`, 400, job.CodeInvalid, `"field":"count"`},
		{"preview, zone", "POST", "/schedule:preview", nil, `{"schedule":"@daily","timezone":"Nope"}`, 400, job.CodeInvalid, `"field":"timezone"`},

		{"preview, too many calendars", "POST", "/schedule:preview", nil, `{"schedule":"@daily","calendars":["xmas"` + strings.Repeat(`,"xmas"`, 16) + `]}`, 400, job.CodeInvalid, `"field":"calendars"`},
		{"calendars", "GET", "/calendars", nil, "", 200, "", `"xmas"`},
		{"calendar", "GET", "/calendars/xmas", nil, "", 200, "", `12-25`},
		{"calendar, unknown", "GET", "/calendars/nope", nil, "", 404, job.CodeNotFound, ``},
		{"calendar put", "PUT", "/calendars/nights", nil, `{"daily":["22:00-06:00"],"windows":[{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z"}]}`, 200, "", `"name":"nights"`},
		{"calendar put, other name", "PUT", "/calendars/nights", nil, `{"name":"days"}`, 400, job.CodeInvalid, `"field":"name"`},
		{"calendar put, no name for a job either", "PUT", "/calendars/night%1b%5b2Js", nil, `{"dates":["12-25"]}`, 400, job.CodeInvalid, `"field":"name"`},
		{"calendar put, bad", "PUT", "/calendars/nights", nil, `{"daily":["25:00-06:00"]}`, 400, job.CodeInvalid, `"field":"daily"`},
		{"calendar put, unknown field", "PUT", "/calendars/nights", nil, `{"nightly":[]}`, 400, job.CodeUnknownField, ``},
		{"calendar delete", "DELETE", "/calendars/xmas", nil, ``, 204, "", ``},
		{"calendar delete, unknown", "DELETE", "/calendars/nope", nil, ``, 404, job.CodeNotFound, ``},
		{"secrets", "GET", "/secrets", nil, "", 200, "", `"api-key"`},
		{"secret", "GET", "/secrets/api-key", nil, "", 200, "", `"hosts":["api.example.com"]`},
		{"secret, unknown", "GET", "/secrets/nope", nil, "", 404, job.CodeNotFound, ``},
		{"secret put", "PUT", "/secrets/api-key", nil, `{"value":"another one"}`, 200, "", `"version":2`},
		{"secret put, new", "PUT", "/secrets/other", nil, `{"value":"another one","hosts":["h:8443"]}`, 200, "", `"version":1`},
		{"secret put, short", "PUT", "/secrets/other", nil, `{"value":"short"}`, 400, job.CodeInvalid, `"field":"value"`},
		{"secret put, many lines", "PUT", "/secrets/other", nil, `{"value":"` + strings.Repeat("a\\n", job.MaxSecretLines+1) + `"}`, 400, job.CodeInvalid,
			`has 257 lines, at most 256`},
		{"secret put, long", "PUT", "/secrets/other", nil, `{"value":"` + strings.Repeat("x", job.MaxSecretBytes+1) + `"}`, 400, job.CodeInvalid, `"field":"value"`},
		{"secret put, not text", "PUT", "/secrets/other", nil, `{"value":"with \u0000 byte"}`, 400, job.CodeInvalid, `"field":"value"`},
		{"secret put, a reference", "PUT", "/secrets/other", nil, `{"value":"secret://api-key"}`, 400, job.CodeInvalid, `"field":"value"`},
		{"secret put, host", "PUT", "/secrets/other", nil, `{"value":"another one","hosts":["h","https://h/"]}`, 400, job.CodeInvalid, `"field":"hosts[1]"`},
		{"secret put, name", "PUT", "/secrets/no.name", nil, `{"value":"another one"}`, 400, job.CodeInvalid, `"field":"name"`},
		{"secret delete", "DELETE", "/secrets/api-key", nil, ``, 204, "", ``},
		{"secret delete, unknown", "DELETE", "/secrets/nope?force=true", nil, ``, 404, job.CodeNotFound, ``},
		{"queues", "GET", "/queues", nil, "", 200, "", `"name":"mail"`},
		{"queues, a page", "GET", "/queues?limit=1", nil, "", 200, "", `"name":"mail"`},
		{"queues, bad limit", "GET", "/queues?limit=0", nil, "", 400, job.CodeInvalid, `"field":"limit"`},
		{"queues, bad cursor", "GET", "/queues?cursor=mail", nil, "", 400, job.CodeInvalid, `"field":"cursor"`},
		{"queue", "GET", "/queues/mail", nil, "", 200, "", `"concurrency":5`},
		{"queue, unknown", "GET", "/queues/nope", nil, "", 404, job.CodeUnknownQueue, `mail`},
		{"queue, bad name", "GET", "/queues/a%20b", nil, "", 400, job.CodeInvalid, `"field":"queue"`},
		{"queue put", "PUT", "/queues/video", nil, `{"concurrency":3,"paused":true}`, 200, "", `"paused":true`},
		{"queue put, nothing said", "PUT", "/queues/mail", nil, `{}`, 200, "", `"concurrency":0`},
		{"queue put, what get gave", "PUT", "/queues/mail", nil, `{"name":"mail","declared":true,"concurrency":6,"paused":false,"jobs":0,"running":0,"backlog":0,"workers":[],"version":$queue}`, 200, "", `"concurrency":6`},
		{"queue put, old version", "PUT", "/queues/mail", nil, `{"concurrency":6,"version":7}`, 409, job.CodeVersionConflict, ``},
		{"queue put, old If-Match", "PUT", "/queues/mail", header{"If-Match": `"7"`}, `{"concurrency":6}`, 412, job.CodeVersionConflict, ``},
		{"queue put, If-Match", "PUT", "/queues/mail", header{"If-Match": `"$queue"`}, `{"concurrency":6}`, 200, "", `"concurrency":6`},
		{"queue put, other name", "PUT", "/queues/mail", nil, `{"name":"video"}`, 400, job.CodeInvalid, `"field":"name"`},
		{"queue put, negative", "PUT", "/queues/mail", nil, `{"concurrency":-1}`, 400, job.CodeInvalid, `"field":"concurrency"`},
		{"queue put, too many", "PUT", "/queues/mail", nil, `{"concurrency":1000001}`, 400, job.CodeInvalid, `"field":"concurrency"`},
		{"queue put, unknown field", "PUT", "/queues/mail", nil, `{"limit":1}`, 400, job.CodeUnknownField, `"field":"limit"`},
		{"queue put, bad name", "PUT", "/queues/-x", nil, `{}`, 400, job.CodeInvalid, `"field":"queue"`},
		{"queue patch", "PATCH", "/queues/mail", nil, `{"paused":true}`, 200, "", `"concurrency":5,"paused":true`},
		{"queue patch to the default", "PATCH", "/queues/mail", nil, `{"concurrency":null}`, 200, "", `"concurrency":0`},
		{"queue patch, unknown", "PATCH", "/queues/nope", nil, `{"paused":true}`, 404, job.CodeUnknownQueue, ``},
		{"queue patch, nothing", "PATCH", "/queues/mail", nil, `{"version":1}`, 400, job.CodeMalformed, ``},
		{"queue patch, null", "PATCH", "/queues/mail", nil, `null`, 400, job.CodeMalformed, ``},
		{"queue patch, old version", "PATCH", "/queues/mail", nil, `{"paused":true,"version":9}`, 409, job.CodeVersionConflict, ``},
		{"queue patch, not a field", "PATCH", "/queues/mail", nil, `{"running":0}`, 400, job.CodeUnknownField, `"field":"running"`},
		{"queue pause", "POST", "/queues/mail:pause", nil, ``, 200, "", `"paused":true`},
		{"queue pause, unknown", "POST", "/queues/nope:pause", nil, ``, 404, job.CodeUnknownQueue, ``},
		{"queue resume", "POST", "/queues/mail:resume", nil, ``, 200, "", `"paused":false`},
		{"queue, unknown verb", "POST", "/queues/mail:stop", nil, ``, 404, job.CodeNotFound, ``},
		{"queue delete", "DELETE", "/queues/mail", nil, ``, 204, "", ``},
		{"queue delete, old version", "DELETE", "/queues/mail", header{"If-Match": `"7"`}, ``, 412, job.CodeVersionConflict, ``},
		{"queue delete, unknown", "DELETE", "/queues/nope", nil, ``, 404, job.CodeUnknownQueue, ``},

		{"worker opens a session", "POST", "/workers:poll", nil, `{"worker":"w2","secret":"s","types":["http"],"slots":1,"free":1,"later":1}`, 200, "", `"lease":"30s","runs":[]`},
		{"worker polls", "POST", "/workers:poll?group=0", nil, `{"session":$session,"types":["shell"],"free":2,"wait":"10s"}`, 200, "", `"run_id":"r_2.`},
		{"worker heartbeats", "POST", "/workers:heartbeat", nil, `{"session":$session,"runs":[{"fence":$fence}]}`, 200, "", `[{"fence":$fence,"status":"ok"}]`},
		{"worker heartbeats by claim", "POST", "/workers:heartbeat?queue=mail", nil, `{"runs":[{"claim":$claim},{"claim":"c_1.5.m.7"}]}`, 200, "", `[{"claim":$claim,"fence":$fence,"status":"ok"},{"claim":"c_1.5.m.7","fence":7,"status":"gone","why":"`},
		{"worker heartbeats without sense", "POST", "/workers:heartbeat", nil, `{"runs":[{"fence":$fence},{"claim":"r_1.5.m","fence":$fence}]}`, 200, "", `{"claim":"r_1.5.m","status":"invalid"`},
		{"worker heartbeats, another's session", "POST", "/workers:heartbeat", nil, `{"session":"mine","runs":[{"fence":$fence}]}`, 400, job.CodeInvalid, `"field":"session"`},
		{"worker reports", "POST", "/workers:report", nil, `{"session":$session,"results":[{"fence":$fence,"outcome":"succeeded"}]}`, 200, "", `{"results":[{"fence":$fence,"status":"ok"}]}`},
		{"worker reports by claim", "POST", "/workers:report?queue=mail&namespace=default", nil, `{"results":[{"claim":$claim,"outcome":"failed","error":"e","retry_after":"3s"}]}`, 200, "", `{"results":[{"claim":$claim,"fence":$fence,"status":"ok"}]}`},
		{"worker output", "POST", "/workers:output", nil, `{"session":$session,"fence":$fence,"offset":0,"data":"aGk="}`, 200, "", `"watched":false`},
		{"worker, empty", "POST", "/workers:poll", nil, ``, 400, job.CodeMalformed, ``},
		{"worker, two values", "POST", "/workers:poll", nil, `{}{}`, 400, job.CodeMalformed, ``},
		{"worker, wrong kind", "POST", "/workers:poll", nil, `{"session":{"term":"x"}}`, 400, job.CodeInvalid, `"field":"session"`},
		{"worker, bad duration", "POST", "/workers:poll", nil, `{"wait":10}`, 400, job.CodeInvalid, ``},
		{"worker, other media type", "POST", "/workers:poll", header{"Content-Type": "text/plain"}, `{}`, 415, job.CodeUnsupportedMedia, ``},
		{"worker, JSON as msgpack", "POST", "/workers:poll", header{"Content-Type": "application/msgpack"}, `{}`, 400, job.CodeMalformed, `msgpack`},
		{"worker, query", "POST", "/workers:poll?wait=1s", nil, `{}`, 400, job.CodeUnknownField, ``},
		{"worker, GET", "GET", "/workers:poll", nil, ``, 405, job.CodeMethodNotAllowed, ``},
		{"worker of a queue polls with nothing", "POST", "/workers:poll?queue=mail", nil, "", 200, "", `"runs":[]`},
		{"worker of a queue that is none", "POST", "/workers:poll?queue=nope", nil, `{}`, 404, job.CodeUnknownQueue, `mail`},
		{"worker of a queue of another namespace", "POST", "/workers:poll?queue=mail&namespace=other", nil, `{}`, 404, job.CodeUnknownQueue, ``},

		{"clock reset", "POST", "/cluster:clock-reset", nil, "", 204, "", ""},
		{"scrub", "POST", "/cluster:scrub", nil, "", 200, "", `"pass":1`},
		{"scrub status", "GET", "/cluster:scrub", nil, "", 200, "", `"missing":[]`},
		{"scrub, body", "POST", "/cluster:scrub", nil, `{"group":1}`, 400, job.CodeMalformed, ``},
		{"release", "POST", "/cluster:release", nil, "", 200, "", `"released":false`},
		{"release, body", "POST", "/cluster:release", nil, `{"now":true}`, 400, job.CodeMalformed, ``},
		{"backup", "GET", "/backup", nil, "", 200, "", ``},
		{"backup, head", "HEAD", "/backup", nil, "", 200, "", ``},
		{"note backup", "POST", "/backup:note", nil, `{"node_id":"n1"}`, 204, "", ``},
		{"note backup, no node", "POST", "/backup:note", nil, `{}`, 400, job.CodeInvalid, `node_id`},
		{"note backup, unknown node", "POST", "/backup:note", nil, `{"node_id":"n9"}`, 404, job.CodeNotFound, `n9`},
		{"audit", "GET", "/audit", nil, "", 200, "", `"action":"calendar.put"`},
		{"audit, filtered", "GET", "/audit?action=queue&object=mail&limit=1&stale=true", nil, "", 200, "", `"kind":"queue"`},
		{"audit, no such action", "GET", "/audit?action=jobs", nil, "", 400, job.CodeInvalid, `"field":"action"`},
		{"export audit", "GET", "/audit:export?limit=1", nil, "", 200, "", `"seq":1`},
		{"backup, query", "GET", "/backup?node=n2", nil, "", 400, job.CodeUnknownField, ``},
		{"join", "POST", "/cluster:join", nil, `{"node_id":"n2","instance_id":"i","address":"h:1","level":1,"later":1}`, 200, "", `"cluster_id":"c"`},
		{"join, no id", "POST", "/cluster:join", nil, `{"instance_id":"i","address":"h:1","level":1}`, 400, job.CodeInvalid, `node_id`},
		{"join, no instance", "POST", "/cluster:join", nil, `{"node_id":"n2","address":"h:1","level":1}`, 400, job.CodeInvalid, `instance_id`},
		{"join, no address", "POST", "/cluster:join", nil, `{"node_id":"n2","instance_id":"i"}`, 400, job.CodeInvalid, `address`},
		{"join, empty", "POST", "/cluster:join", nil, ``, 400, job.CodeMalformed, ``},
		{"join, follower", "POST", "/cluster:join", nil, `{"node_id":"elsewhere","instance_id":"i","address":"h:1"}`, 421, job.CodeNotLeader, ``},
		{"remove", "POST", "/cluster:remove", nil, `{"node_id":"n2"}`, 204, "", ""},
		{"remove, no node", "POST", "/cluster:remove", nil, `{}`, 400, job.CodeInvalid, `node_id`},
		{"remove, unknown", "POST", "/cluster:remove", nil, `{"node_id":"nope"}`, 404, job.CodeNotFound, ``},
		{"remove, has replicas", "POST", "/cluster:remove", nil, `{"node_id":"n7"}`, 202, "", `{"node_id":"n7","removed":false,"groups":[1,2]}`},
		{"move a group", "POST", "/cluster:move-group", nil, `{"group":1,"to":["n1"]}`, 200, "", `"leaving":["n2"]`},
		{"move a group, more", "POST", "/cluster:move-group", nil, `{"group":1,"to":["n1"],"now":true}`, 400, job.CodeUnknownField, `now`},
		{"move a group, no number", "POST", "/cluster:move-group", nil, `{"group":"x","to":["n1"]}`, 400, job.CodeInvalid, `group`},
		{"promote", "POST", "/cluster:promote", nil, `{"node_id":"n2"}`, 204, "", ""},
		{"demote", "POST", "/cluster:demote", nil, `{"node_id":"n2"}`, 204, "", ""},
		{"transfer", "POST", "/cluster:transfer", nil, ``, 204, "", ""},
		{"transfer to", "POST", "/cluster:transfer", nil, `{"node_id":"n2"}`, 204, "", ""},
		{"transfer, misspelled", "POST", "/cluster:transfer", nil, `{"node":"n2"}`, 400, job.CodeUnknownField, `node_id`},
		{"transfer, another case", "POST", "/cluster:transfer", nil, `{"Node_ID":"n2"}`, 400, job.CodeUnknownField, `node_id`},
		{"remove, twice", "POST", "/cluster:remove", nil, `{"node_id":"n2","node_id":"n3"}`, 400, "", `node_id`},
		{"promote, by force", "POST", "/cluster:promote", nil, `{"node_id":"n2","force":true}`, 400, job.CodeInvalid, `force`},
		{"transfer, wrong kind", "POST", "/cluster:transfer", nil, `{"node_id":2}`, 400, job.CodeInvalid, `node_id`},
		{"grow", "POST", "/cluster:grow-groups", nil, `{"groups":4}`, 200, "", `"want":4`},
		{"grow, more", "POST", "/cluster:grow-groups", nil, `{"groups":4,"now":true}`, 400, job.CodeUnknownField, ``},
		{"grow, wrong kind", "POST", "/cluster:grow-groups", nil, `{"groups":"4"}`, 400, job.CodeInvalid, `groups`},
		{"grow, empty", "POST", "/cluster:grow-groups", nil, ``, 400, job.CodeMalformed, ``},
		{"rotate the CA", "POST", "/cluster:rotate-ca", nil, ``, 200, "", `"next":"n"`},
		{"rotate the CA, distrust", "POST", "/cluster:rotate-ca", nil, `{"distrust_old":true}`, 200, "", `"distrust_old":true`},
		{"rotate the CA, abort", "POST", "/cluster:rotate-ca", nil, `{"abort":true}`, 200, "", `{"ca":"c"}`},
		{"rotate the CA, both", "POST", "/cluster:rotate-ca", nil, `{"abort":true,"distrust_old":true}`, 400, job.CodeInvalid, `"field":"abort"`},
		{"rotate the CA, more", "POST", "/cluster:rotate-ca", nil, `{"now":true}`, 400, job.CodeUnknownField, ``},
		{"node", "GET", "/node", nil, "", 200, "", `"node_id":"n1"`},
		{"log hash", "GET", "/node/log-hash?group=2&index=7", nil, "", 200, "", `"index":7,"hash":"00000000000000ff"`},
		{"log hash of no entry", "GET", "/node/log-hash?index=x", nil, "", 400, "invalid", `is none`},
		{"status", "GET", "/status", nil, "", 200, "", `"state":"leader"`},
		{"the schema of job files", "GET", "/schemas/job.json", nil, "", 200, "", `"$schema"`},
		{"openapi", "GET", "/openapi.json", nil, "", 200, "", `"3.1.0"`},
		{"healthz", "GET", "/healthz", nil, "", 200, "", `ok`},
		{"readyz", "GET", "/readyz", nil, "", 200, "", `ok`},
		{"metrics", "GET", "/metrics?name[]=x", nil, "", 200, "", `carillon_leader`},
		{"metrics of jobs", "GET", "/metrics/jobs?prefix=hello", nil, "", 200, "", `carillon_leader`},
		{"metrics of jobs, unknown parameter", "GET", "/metrics/jobs?name=x", nil, "", 400, job.CodeUnknownField, `name`},
		{"no route", "GET", "/nothing", nil, "", 404, job.CodeNotFound, `openapi.json`},
		{"create token", "POST", "/tokens", nil, `{"name":"bob","role":"operator","namespace":"default","shell":true,"ttl":"720h"}`, 201, "", `"token":"ct1.`},
		{"create worker's token", "POST", "/tokens", nil, `{"name":"w1","role":"worker","queues":["mail"],"types":["queue"],"tags":{"a":"b"},"slots":5}`, 201, "", `"slots":5`},
		{"create join token", "POST", "/join-tokens", nil, `{"ttl":"2h","uses":3}`, 201, "", `"token":"cj1.`},
		{"create join token, defaults", "POST", "/join-tokens", nil, ``, 201, "", `"uses":1`},
		{"create join token, ttl", "POST", "/join-tokens", nil, `{"ttl":"1ms"}`, 400, job.CodeInvalid, `"field":"ttl"`},
		{"create join token, uses", "POST", "/join-tokens", nil, `{"uses":-1}`, 400, job.CodeInvalid, `"field":"uses"`},
		{"join tokens", "GET", "/join-tokens", nil, "", 200, "", `"tokens":[`},
		{"revoke join token", "POST", "/join-tokens/abcdefghijkm:revoke", nil, "", 200, "", `"status":"revoked"`},
		{"create token, empty", "POST", "/tokens", nil, `{}`, 400, job.CodeInvalid, `"field":"name"`},
		{"create token, bad name", "POST", "/tokens", nil, `{"name":"a/b","role":"viewer"}`, 400, job.CodeInvalid, `"field":"name"`},
		{"create token, name taken", "POST", "/tokens", nil, `{"name":"ci","role":"viewer"}`, 409, job.CodeDuplicateName, `revoke that token first`},
		{"create token, no role", "POST", "/tokens", nil, `{"name":"x","role":"veiwer"}`, 400, job.CodeInvalid, `did you mean \"viewer\"`},
		{"create token, bad namespace", "POST", "/tokens", nil, `{"name":"x","role":"viewer","namespace":"a b"}`, 400, job.CodeInvalid, `"field":"namespace"`},
		{"create token, shell viewer", "POST", "/tokens", nil, `{"name":"x","role":"viewer","shell":true}`, 400, job.CodeInvalid, `"field":"shell"`},
		{"create token, negative ttl", "POST", "/tokens", nil, `{"name":"x","role":"viewer","ttl":"-1s"}`, 400, job.CodeInvalid, `"field":"ttl"`},
		{"create token, short ttl", "POST", "/tokens", nil, `{"name":"x","role":"viewer","ttl":"1ms"}`, 400, job.CodeInvalid, `"field":"ttl"`},
		{"create token, slots of an admin", "POST", "/tokens", nil, `{"name":"x","role":"admin","slots":1}`, 400, job.CodeInvalid, `"field":"role"`},
		{"create token, many slots", "POST", "/tokens", nil, `{"name":"x","role":"worker","slots":1000000}`, 400, job.CodeInvalid, `"field":"slots"`},
		{"create token, bad queue", "POST", "/tokens", nil, `{"name":"x","role":"worker","queues":["a b"]}`, 400, job.CodeInvalid, `queues[0]`},
		{"create token, bad type", "POST", "/tokens", nil, `{"name":"x","role":"worker","types":["htp"]}`, 400, job.CodeInvalid, `types[0]`},
		{"create token, bad tag", "POST", "/tokens", nil, `{"name":"x","role":"worker","tags":{"queue":"x"}}`, 400, job.CodeInvalid, `"field":"tags"`},
		{"list tokens", "GET", "/tokens?stale=true", nil, "", 200, "", `"name":"ci"`},
		{"revoke token", "POST", "/tokens/ci:revoke", nil, "", 200, "", `"status":"revoked"`},
		{"resume token", "POST", "/tokens/abcdefghijkm:resume", nil, "", 200, "", `"status":"active"`},
		{"resume token, unknown", "POST", "/tokens/aaaaaaaaaaaa:resume", nil, "", 404, job.CodeNotFound, `token list`},
		{"revoke token, unknown", "POST", "/tokens/nope:revoke", nil, "", 404, job.CodeNotFound, `carillon token list`},
		{"whoami", "GET", "/whoami", nil, "", 200, "", `"secure":false`},

		{"no route deeper", "GET", "/jobs/a/b/c", nil, "", 404, job.CodeNotFound, ``},
		{"trailing slash", "GET", "/jobs/", nil, "", 404, job.CodeNotFound, ``},
	}
	reached := map[string]bool{}
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintln(w, "carillon_leader 1")
	})
	unchanged := world(t) // for what only reads or is refused
	harmless := regexp.MustCompile(`/schedule:|/cluster:|/workers:heartbeat`)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := unchanged
			route := routeOf(tt.method, "/api/v1"+tt.path)
			if tt.code == "" && tt.method != "GET" && tt.method != "HEAD" && !harmless.MatchString(route) {
				f = world(t)
			}
			path, headers := f.names.Replace(tt.path), header{}
			for k, v := range tt.header {
				headers[k] = f.names.Replace(v)
			}
			tt.body, tt.want = f.names.Replace(tt.body), f.names.Replace(tt.want)
			if path != "/healthz" && path != "/readyz" && !strings.HasPrefix(path, "/metrics") {
				path = "/api/v1" + path
			}
			w := serveWith(t, someJoins{f.Backend}, api.Options{Metrics: metrics, JobMetrics: metrics, Workers: f.Options.Workers, Cluster: someCluster{}, Leader: func() string { return "h:2" }}, tt.method, path, headers, tt.body)
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
				t.Fatalf("%d, want %d with %q:\n%s", w.Code, tt.status, tt.want, w.Body)
			}
			media, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";")
			if tt.code != "" {
				checkProblem(t, w, tt.code)
			}
			route = routeOf(tt.method, path)
			if route == "" {
				return
			}
			if tt.code == "" {
				reached[tt.method+" "+route] = true
			}
			if err := conforms(t, tt.method, route, w.Code, media, w.Body.Bytes()); err != nil {
				t.Errorf("the OpenAPI document says otherwise: %v\n%s", err, w.Body)
			}
		})
	}
	for _, rt := range api.Routes() {
		if !reached[rt.Method+" "+rt.Path] {
			t.Errorf("no test reaches %s %s", rt.Method, rt.Path)
		}
	}
}

func checkProblem(t testing.TB, w *httptest.ResponseRecorder, code job.Code) {
	t.Helper()
	var p wire.Problem
	if err := job.DecodeStrict(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("not a problem: %v\n%s", err, w.Body)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	if p.Status != w.Code || p.Message == "" || p.Title == "" || p.Type != "urn:carillon:error:"+string(p.Code) {
		t.Errorf("an incomplete problem: %+v", p)
	}
	if code != "" && p.Code != code {
		t.Errorf("code %q, want %q", p.Code, code)
	}
}

func TestPauseResumeAndHeaders(t *testing.T) {
	f := world(t).Backend
	h := map[string]string{}
	if w := serve(t, f, "POST", "/api/v1/jobs/daily:pause", h, ""); w.Code != 200 || w.Header().Get("ETag") != `"1"` {
		t.Fatal(w.Code, w.Header())
	}
	if w := serve(t, f, "POST", "/api/v1/jobs/daily:resume", h, ""); w.Code != 200 || w.Header().Get("ETag") != `"1"` {
		t.Fatal(w.Code, w.Header())
	}
	w := serve(t, f, "POST", "/api/v1/jobs", h, spec)
	if w.Header().Get("Location") != "/api/v1/jobs/j_4" || w.Header().Get("ETag") != `"1"` {
		t.Error(w.Header())
	}
	if w := serve(t, f, "PATCH", "/api/v1/jobs", h, ""); w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD, OPTIONS, POST" {
		t.Error(w.Code, w.Header())
	}
	if w := serve(t, f, "OPTIONS", "/api/v1/jobs/daily:run", h, ""); w.Code != 204 || w.Header().Get("Allow") != "OPTIONS, POST" {
		t.Error(w.Code, w.Header())
	}
}

// GET, edit, PUT: what one answers the other takes, and a second PUT of the same text is refused.
func TestGetEditPut(t *testing.T) {
	f := world(t).Backend
	got := serve(t, f, "GET", "/api/v1/jobs/daily", nil, "").Body.String()
	edited := strings.Replace(got, `"0 9 * * *"`, `"0 10 * * *"`, 1)
	if w := serve(t, f, "PUT", "/api/v1/jobs/daily", nil, edited); w.Code != 200 || !strings.Contains(w.Body.String(), "0 10 * * *") {
		t.Fatal(w.Code, w.Body)
	}
	w := serve(t, f, "PUT", "/api/v1/jobs/daily", nil, edited)
	checkProblem(t, w, job.CodeVersionConflict)
}

func TestIdempotencyKey(t *testing.T) {
	f := &noted{Backend: world(t).Backend}
	h := map[string]string{"Idempotency-Key": "once"}
	first := serve(t, f, "POST", "/api/v1/jobs", h, spec)
	if first.Header().Get("Idempotent-Replay") != "" {
		t.Error("the first answer is no replay")
	}
	again := serve(t, f, "POST", "/api/v1/jobs", h, spec)
	if again.Code != 201 || again.Body.String() != first.Body.String() || again.Header().Get("Idempotent-Replay") != "true" {
		t.Error(again.Code, again.Header(), again.Body)
	}
	checkProblem(t, serve(t, f, "POST", "/api/v1/jobs", h, strings.Replace(spec, "hello", "other", 1)), job.CodeKeyReused)
	checkProblem(t, serve(t, f, "DELETE", "/api/v1/dead?all=true", h, ""), job.CodeKeyReused)

	h["Idempotency-Key"] = "twice"
	serve(t, f, "POST", "/api/v1/jobs/hello:run", h, "")
	if w := serve(t, f, "POST", "/api/v1/jobs/hello:run", h, ""); w.Header().Get("Idempotent-Replay") != "true" {
		t.Error("a replayed run does not say so")
	}
	serve(t, f, "POST", "/api/v1/jobs/daily:pause", nil, "")
	serve(t, f, "POST", "/api/v1/jobs/daily:resume", nil, "")
	if len(f.requests) != 2 {
		t.Fatalf("%+v", f.requests)
	}
	a, b := f.requests[0], f.requests[1]
	if a.Client || a.Key == "" || a.Key == b.Key || a.Fingerprint == b.Fingerprint {
		t.Errorf("%+v and %+v", a, b)
	}
}

// A patch that renames a job is answered as before when it is repeated, although there is no job of the old name any
// more, or another one.
func TestRepeatedRename(t *testing.T) {
	f := world(t).Backend
	patch := func(key, body string) *httptest.ResponseRecorder {
		return serve(t, f, "PATCH", "/api/v1/jobs/daily", map[string]string{"Idempotency-Key": key}, body)
	}
	const rename = `{"name":"nightly"}`
	first := patch("once", rename)
	if first.Code != 200 || !strings.Contains(first.Body.String(), `"nightly"`) {
		t.Fatal(first.Code, first.Body)
	}
	for _, there := range []string{"none", "another"} {
		again := patch("once", rename)
		if again.Code != 200 || again.Body.String() != first.Body.String() ||
			again.Header().Get("Idempotent-Replay") != "true" {
			t.Errorf("%s of the old name: %d %v %s", there, again.Code, again.Header(), again.Body)
		}
		if there == "none" {
			made := serve(t, f, "POST", "/api/v1/jobs", nil, strings.Replace(spec, `"hello"`, `"daily"`, 1))
			if made.Code != 201 {
				t.Fatal(made.Code, made.Body)
			}
		}
	}
	checkProblem(t, patch("once", `{"name":"weekly"}`), job.CodeKeyReused)
	// The other one can be patched, and a dry run is about what is there.
	if w := patch("second", `{"name":"weekly"}`); w.Code != 200 || !strings.Contains(w.Body.String(), `"weekly"`) {
		t.Error(w.Code, w.Body)
	}
	dry := serve(t, f, "PATCH", "/api/v1/jobs/daily?dry_run=true", map[string]string{"Idempotency-Key": "once"}, rename)
	checkProblem(t, dry, job.CodeNotFound)
}

// A fingerprint is stored for a day and may be compared by another version of the binary.
func TestFingerprintIsStable(t *testing.T) {
	f := &noted{Backend: empty(t).Backend}
	serve(t, f, "POST", "/api/v1/jobs/x:pause", map[string]string{"Idempotency-Key": "k"}, "")
	if got, want := f.requests[0], (api.Request{Key: "k", Client: true, Fingerprint: 0xf586c24db4649bf4,
		Space: api.Space{Namespace: "default", All: true}}); got != want {
		t.Errorf("%#v, want %#v", got, want)
	}
}

// A patch without a version is put onto the job as it stands, however often that changes; one with a version is not.
func TestPatchRace(t *testing.T) {
	b := world(t).Backend
	races := 0
	f := hooked{b, func(ctx context.Context, method string) error {
		if method != "UpdateJob" || races == 3 {
			return nil
		}
		races++ // another request is faster
		j, err := b.GetJob(ctx, "daily", api.Read{})
		if err != nil {
			return err
		}
		j.Spec.Timeout = job.Duration(time.Duration(races) * time.Minute)
		_, err = b.UpdateJob(ctx, "daily", j.Spec, j.Version, api.Request{Key: fmt.Sprint("race ", races)})
		return err
	}}
	if w := serve(t, f, "PATCH", "/api/v1/jobs/daily", nil, `{"timeout":"9s"}`); w.Code != 200 || !strings.Contains(w.Body.String(), `"timeout":"9s"`) {
		t.Error(w.Code, w.Body)
	}
	checkProblem(t, serve(t, f, "PATCH", "/api/v1/jobs/daily", nil, `{"timeout":"8s","version":2}`), job.CodeVersionConflict)
}

func TestBackendErrors(t *testing.T) {
	for _, tt := range []struct {
		err    error
		method string
		status int
		code   job.Code
	}{
		{job.Errorf(job.CodeNoLeader, "", "no leader"), "GET", 503, job.CodeNoLeader},
		{fmt.Errorf("wrapped: %w", job.Errorf(job.CodeStorageFull, "", "full")), "PUT", 507, job.CodeStorageFull},
		{job.Errorf(job.CodeNotLeader, "", "not me"), "PUT", 421, job.CodeNotLeader},
		{errors.New("secret detail"), "GET", 500, job.CodeInternal},
		{context.DeadlineExceeded, "GET", 503, job.CodeUnavailable},
		{context.DeadlineExceeded, "PUT", 503, job.CodeOutcomeUnknown},
		{job.Errorf("new_code", "", "from the future"), "GET", 500, "new_code"},
	} {
		f := hooked{empty(t).Backend, func(context.Context, string) error { return tt.err }}
		w := serve(t, f, tt.method, "/api/v1/jobs/daily", nil, spec)
		if w.Code != tt.status {
			t.Errorf("%v: %d", tt.err, w.Code)
		}
		checkProblem(t, w, tt.code)
		if strings.Contains(w.Body.String(), "secret") {
			t.Error("an internal error tells what it should not")
		}
	}
}

// sick is a node that should neither live on nor get traffic.
type sick struct{ api.Backend }

func (sick) Ready() error { return errors.New("the scheduling loop has not moved for 9s") }
func (sick) Live() error  { return job.Errorf(job.CodeInternal, "", "the store is gone") }

func TestProbes(t *testing.T) {
	f := sick{empty(t).Backend}
	for _, path := range []string{"/readyz", "/healthz"} {
		w := serve(t, f, "GET", path, nil, "")
		if w.Code != 503 {
			t.Error(path, w.Code)
		}
		checkProblem(t, w, job.CodeNotReady)
	}
	if w := serve(t, f, "GET", "/readyz", nil, ""); !strings.Contains(w.Body.String(), "has not moved for 9s") {
		t.Error(w.Body)
	}
	if w := serve(t, f, "GET", "/metrics", nil, ""); w.Code != 404 {
		t.Error(w.Code)
	}
	if w := serve(t, f, "GET", "/debug/pprof/", nil, ""); w.Code != 404 {
		t.Error("pprof is on without being asked for")
	}
	if w := serveWith(t, f, api.Options{DebugPprof: true}, "GET", "/debug/pprof/", nil, ""); w.Code != 200 {
		t.Error(w.Code)
	}
}

func TestPanic(t *testing.T) {
	f := hooked{empty(t).Backend, func(context.Context, string) error { panic("boom") }}
	w := serve(t, f, "GET", "/api/v1/jobs/daily", nil, "")
	if w.Code != 500 {
		t.Fatal(w.Code)
	}
	checkProblem(t, w, job.CodeInternal)
}

// Who finds a request that panics does not fill the log with stacks.
func TestPanicsAreLoggedNowAndThen(t *testing.T) {
	backend := hooked{empty(t).Backend, func(context.Context, string) error { panic("boom") }}
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := api.New(backend, api.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		ask := func(times int) int {
			log.Reset()
			for range times {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/api/v1/jobs/daily", nil))
			}
			return strings.Count(log.String(), "panic in a request")
		}
		if n := ask(1000); n == 0 || n > 20 {
			t.Errorf("%d of 1000 panics are logged", n)
		}
		time.Sleep(10 * time.Second)
		if n := ask(1); n != 1 {
			t.Error("a later panic is not logged")
		}
	})
}

func TestExportStreamsInChunks(t *testing.T) {
	f := lines{empty(t).Backend, 1234}
	w := serve(t, f, "GET", "/api/v1/runs:export?after=3", nil, "")
	if n := strings.Count(w.Body.String(), "\n"); n != 1231 {
		t.Errorf("%d lines", n)
	}
	w = serve(t, f, "GET", "/api/v1/runs:export?limit=777", nil, "")
	if n := strings.Count(w.Body.String(), "\n"); n != 777 {
		t.Errorf("%d lines", n)
	}
}

// someJoins stands for the join tokens of a cluster with TLS.
type someJoins struct{ api.Backend }

func (someJoins) RotateCA(_ context.Context, r wire.RotateRequest, _ api.Request) (wire.Rotation, error) {
	if r.Abort {
		return wire.Rotation{CA: "c"}, nil
	}
	return wire.Rotation{CA: "c", Next: "n", DistrustOld: r.DistrustOld, Missing: []string{"n2"}}, nil
}

// ResumeToken knows one token that a restore suspended.
func (s someJoins) ResumeToken(ctx context.Context, id string, rq api.Request) (wire.Token, error) {
	if id == "abcdefghijkm" {
		return wire.Token{ID: id, Name: "ci", Role: job.RoleViewer, Status: "active", CreatedAt: 1}, nil
	}
	return s.Backend.ResumeToken(ctx, id, rq)
}

func (someJoins) CreateJoinToken(_ context.Context, t wire.JoinTokenRequest,
	_ api.Request) (wire.JoinTokenCreated, error) {
	made := keys.NewToken(keys.JoinToken, keys.Hash{1})
	return wire.JoinTokenCreated{Text: made.Text(), JoinToken: wire.JoinToken{ID: made.ID, Status: "active",
		Uses: t.Uses, CreatedAt: 1, ExpiresAt: 2}}, nil
}

// DevKill has one node that may be killed.
func (s someJoins) DevKill(ctx context.Context, rq wire.DevKillRequest) (func(), error) {
	if rq.NodeID == "n1" {
		return func() {}, nil
	}
	return s.Backend.DevKill(ctx, rq)
}

func (someJoins) RevokeJoinToken(_ context.Context, id string, _ api.Request) (wire.JoinToken, error) {
	return wire.JoinToken{ID: id, Status: "revoked", CreatedAt: 1, ExpiresAt: 2, RevokedAt: 3}, nil
}
