package apitest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/apitest"
	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

// An action that is sent again with its key does nothing twice, and says the same. Its jobs are done side by side.
func TestActionIsRepeated(t *testing.T) {
	t.Parallel()
	const many = 100
	n := apitest.Start(t, apitest.Secure)
	token := n.Token(t, wire.TokenRequest{Role: job.RoleOperator})
	for i := range many {
		body := fmt.Sprintf(`{"name":"j%d","type":"queue","schedule":"@manual","payload":{"queue":"q"}}`, i)
		if status, p := ask(t, n, "POST", "/api/v1/jobs", token, body); status != 201 {
			t.Fatalf("%d %+v", status, p)
		}
	}
	for range 2 {
		res := send(t, t.Context(), n, "POST", "/api/v1/jobs:act", token, strings.NewReader(`{"filter":{"all":true},"action":"run"}`),
			"Content-Type", "application/json", "Idempotency-Key", "once")
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 || !strings.Contains(string(text), fmt.Sprintf(`"matched":%d,"done":%d,"failed":0`, many, many)) {
			t.Fatalf("%v %s %s", err, res.Status, text)
		}
	}
	res := send(t, t.Context(), n, "GET", "/api/v1/runs?limit=1000", token, nil)
	defer res.Body.Close()
	var page wire.RunPage
	if err := json.NewDecoder(res.Body).Decode(&page); err != nil || len(page.Runs) != many {
		t.Errorf("%d runs of %d jobs that were told to run once (%v, %s)", len(page.Runs), many, err, res.Status)
	}
}

// late lets jobs match that were not there when they were counted: one is created before the first page is acted on.
type late struct {
	api.Backend
	lists  atomic.Int32
	create func()
}

func (l *late) ListJobs(ctx context.Context, q wire.JobQuery, rd api.Read) (wire.JobPage, error) {
	if l.lists.Add(1) == 2 { // the first one counts
		l.create()
	}
	return l.Backend.ListJobs(ctx, q, rd)
}

// More jobs match by now than were expected: so many are acted on, and the cursor is that before their page, because the
// rest of it was not. Who goes on from there acts on each of them, and on none twice.
func TestActionStopsBeforeThePageThatHasTooMany(t *testing.T) {
	t.Parallel()
	const many, page = 600, 500
	n := apitest.Start(t)
	var lines strings.Builder
	for i := range many {
		fmt.Fprintf(&lines, `{"name":"j%03d","type":"queue","schedule":"@manual","payload":{"queue":"q"}}`+"\n", i)
	}
	post := func(path, media, body string) (was wire.JobActionProgress, before string) {
		t.Helper()
		rq := httptest.NewRequest("POST", path, strings.NewReader(body))
		rq.Header.Set("Content-Type", media)
		rq.Header.Set("Idempotency-Key", "once")
		w := httptest.NewRecorder()
		n.Handler().ServeHTTP(w, rq)
		if w.Code >= 300 {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		for dec := json.NewDecoder(w.Body); ; {
			var last wire.JobActionProgress
			switch err := dec.Decode(&last); {
			case errors.Is(err, io.EOF):
				return was, before
			case err != nil:
				t.Fatal(err)
			}
			if last.Done == page {
				before = last.Cursor
			}
			was = last
		}
	}
	post("/api/v1/jobs:bulk", "application/x-ndjson", lines.String())
	backend := n.Backend
	n.Backend = &late{Backend: backend, create: func() {
		spec := job.Spec{Name: "late", Type: job.TypeQueue, Schedule: job.ScheduleManual, Payload: []byte(`{"queue":"q"}`)}
		if _, _, err := backend.CreateJob(t.Context(), spec, api.Request{}); err != nil {
			t.Error(err)
		}
	}}
	run := func(cursor string, expect int) (last wire.JobActionProgress, before string) {
		return post("/api/v1/jobs:act", "application/json",
			fmt.Sprintf(`{"filter":{"all":true},"action":"run","expect":%d,"cursor":%q}`, expect, cursor))
	}
	last, before := run("", many)
	if last.Error == nil || last.Finished || last.Done != many {
		t.Fatalf("one more than expected: %+v", last)
	}
	if before == "" || last.Cursor != before {
		t.Fatalf("the cursor is %q, that before the last page was %q", last.Cursor, before)
	}
	last, _ = run(last.Cursor, many-page+1)
	if last.Error != nil || !last.Finished || last.Done != many-page+1 {
		t.Fatalf("what was left: %+v", last)
	}
	res := send(t, t.Context(), n, "GET", "/api/v1/runs?limit=1000", "", nil)
	defer res.Body.Close()
	var runs wire.RunPage
	if err := json.NewDecoder(res.Body).Decode(&runs); err != nil || len(runs.Runs) != many+1 {
		t.Errorf("%d runs of %d jobs that were told to run once (%v, %s)", len(runs.Runs), many+1, err, res.Status)
	}
}
