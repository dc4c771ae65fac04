package router_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/job"
)

func TestWhatIsAddedUp(t *testing.T) {
	w := newWorld(1, 2)
	a, b := w.groups[1], w.groups[2]
	a.stats = wire.Stats{From: 10, To: 20, CompleteFrom: 12, Buckets: []wire.StatsBucket{
		{At: 11, StatsCounts: wire.StatsCounts{Succeeded: 1}, LagMS: []uint32{1}}, {At: 13}}}
	b.stats = wire.Stats{From: 9, To: 21, CompleteFrom: 14, Buckets: []wire.StatsBucket{
		{At: 11, StatsCounts: wire.StatsCounts{Succeeded: 2}, LagMS: []uint32{1, 4}}, {At: 12}}}
	var st wire.Stats
	call(t, w, "GET", "/stats", "", &st)
	if st.From != 9 || st.To != 21 || st.CompleteFrom != 14 || len(st.Buckets) != 3 || st.Buckets[0].Succeeded != 3 ||
		!slices.Equal(st.Buckets[0].LagMS, []uint32{2, 4}) || st.Buckets[1].At != 12 {
		t.Errorf("stats: %+v", st)
	}

	a.load = wire.UpcomingLoad{ExactUntil: 9, Scanned: 1, Total: 5, Buckets: []wire.LoadBucket{{At: 1, Count: 2, Kind: "exact"}},
		Top: []wire.LoadTop{{At: 1, Schedules: []wire.LoadSchedule{{Schedule: "a", Count: 2, Jobs: 1}}}}}
	b.load = wire.UpcomingLoad{ExactUntil: 7, Scanned: 2, Total: 6, Sampled: true, Buckets: []wire.LoadBucket{
		{At: 0, Count: 1, Kind: "exact"}, {At: 1, Count: 3, Kind: "projected"}},
		Top: []wire.LoadTop{{At: 1, Schedules: []wire.LoadSchedule{{Schedule: "b", Count: 3, Jobs: 1}, {Schedule: "a", Count: 2, Jobs: 2}}}}}
	var ld wire.UpcomingLoad
	call(t, w, "GET", "/upcoming:load", "", &ld)
	want := []wire.LoadBucket{{At: 0, Count: 1, Kind: "exact"}, {At: 1, Count: 5, Kind: "projected"}}
	if ld.ExactUntil != 7 || ld.Scanned != 3 || ld.Total != 11 || !ld.Sampled || !slices.Equal(ld.Buckets, want) ||
		ld.Top[0].Schedules[0] != (wire.LoadSchedule{Schedule: "a", Count: 4, Jobs: 3}) {
		t.Errorf("load: %+v", ld)
	}

	a.summary = wire.RunSummary{CountedFrom: 3, ByStatus: map[string]int64{"dead": 1}, Scanned: 1, Longest: []wire.LongRun{{Run: job.Run{JobID: 1, Status: job.RunRunning}, RunningMS: 5}}}
	b.summary = wire.RunSummary{CountedFrom: 4, ByStatus: map[string]int64{"dead": 2, "lost": 1}, Scanned: 2, Longest: []wire.LongRun{{Run: job.Run{JobID: 1, Status: job.RunRunning}, RunningMS: 9}}}
	var sum wire.RunSummary
	call(t, w, "GET", "/runs:summary", "", &sum)
	if sum.CountedFrom != 4 || sum.Scanned != 3 || sum.ByStatus["dead"] != 3 || sum.Longest[0].RunningMS != 9 {
		t.Errorf("summary: %+v", sum)
	}

	a.letters = wire.DeadGroupPage{Scanned: 9, Total: 9, LeftOut: 1, Groups: []wire.DeadGroup{
		{Key: "x", Count: 5, Jobs: 2, First: 1, Last: 8, JobNames: []string{"a", "b"}, Sample: job.DeadLetter{Seq: 8, Run: job.Run{JobID: 1, Status: job.RunDead}}}}}
	b.letters = wire.DeadGroupPage{Scanned: 8, Total: 8, NextCursor: "3", Groups: []wire.DeadGroup{
		{Key: "y", Count: 7, Last: 3, Sample: job.DeadLetter{Run: job.Run{JobID: 1, Status: job.RunDead}}}, {Key: "x", Count: 4, Jobs: 1, First: 0, Last: 9, JobNames: []string{"c"}, Sample: job.DeadLetter{Seq: 7, Run: job.Run{JobID: 1, Status: job.RunDead}}}}}
	var dg wire.DeadGroupPage
	call(t, w, "GET", "/dead:groups?limit=1", "", &dg)
	if x := dg.Groups[0]; len(dg.Groups) != 1 || x.Key != "x" || x.Count != 9 || x.Jobs != 3 || x.Last != 9 ||
		x.Sample.Seq != 2<<46|7 || dg.LeftOut != 8 || dg.Scanned != 17 || dg.Total != 17 || dg.NextCursor != "gc~1_~2.3" {
		t.Errorf("groups of dead letters: %+v", dg)
	}

	a.queues = []wire.Queue{{Namespace: "a", Name: "y"}, {Namespace: "b", Name: "x"}}
	b.queues = []wire.Queue{{Namespace: "a", Name: "z"}}
	for _, limit := range []int{1, 2, 3, 1000} {
		var names []string
		for cursor := ""; ; {
			var ql wire.QueueList
			call(t, w, "GET", fmt.Sprintf("/queues?namespace=*&limit=%d&cursor=%s", limit, cursor), "", &ql)
			for _, q := range ql.Queues {
				names = append(names, q.Namespace+"/"+q.Name)
			}
			if cursor = ql.NextCursor; cursor == "" {
				break
			}
		}
		if !slices.Equal(names, []string{"a/y", "a/z", "b/x"}) {
			t.Errorf("queues, %d at a time: %v", limit, names)
		}
	}

	w.groups[0].status = wire.Status{Node: "n1", Ready: true, Level: 3}
	a.status = wire.Status{Ready: true, Jobs: 2, NextDueAt: 9, Workers: []wire.WorkerStatus{{Worker: "w", Slots: 4, Busy: 1, LastHeard: 5}}}
	b.status = wire.Status{Ready: true, Jobs: 3, NextDueAt: 7, Workers: []wire.WorkerStatus{{Worker: "w", Slots: 4, Busy: 2, LastHeard: 3}, {Worker: "v"}}}
	var status wire.Status
	call(t, w, "GET", "/status", "", &status)
	if status.Node != "n1" || status.Jobs != 5 || status.NextDueAt != 7 || len(status.Workers) != 2 || status.Workers[0].Slots != 4 || status.Workers[0].Busy != 3 {
		t.Errorf("status: %+v", status)
	}

	if rec := call(t, w, "POST", "/cluster:clock-reset", "", nil); rec.Code != 204 || len(w.groups[0].acted)+len(a.acted)+len(b.acted) != 3 {
		t.Errorf("clock reset: %d %s", rec.Code, rec.Body)
	}
	for _, method := range []string{"POST", "GET"} {
		var scrubs wire.ScrubStatus
		call(t, w, method, "/cluster:scrub", "", &scrubs)
		if g := scrubs.Groups; len(g) != 3 || g[0].Group != 0 || g[1].Group != 1 || g[2].Group != 2 || g[0].Done != (method == "GET") {
			t.Errorf("%s scrub: %+v", method, scrubs)
		}
	}
}

// Letters of two groups with one number are two letters.
func TestDeadLettersByNumber(t *testing.T) {
	w := newWorld(0, 1, 2)
	for _, g := range w.numbers {
		for n := uint64(9); n > 0; n-- {
			w.groups[g].dead = append(w.groups[g].dead, job.DeadLetter{Seq: n, Run: job.Run{JobID: idIn(g, n), Status: job.RunDead}})
		}
	}
	var d job.DeadLetter
	call(t, w, "GET", fmt.Sprintf("/dead/%d", 2<<46|3), "", &d)
	if d.Seq != 2<<46|3 || d.JobID != idIn(2, 3) {
		t.Errorf("the letter is %+v", d)
	}
	if call(t, w, "GET", "/dead/3", "", &d); d.Seq != 3 || d.JobID.Group() != 0 {
		t.Errorf("that of group 0 is %+v", d)
	}
	for _, n := range []int{2<<46 | 99, 7<<46 | 1} {
		if rec := call(t, w, "GET", fmt.Sprintf("/dead/%d", n), "", nil); rec.Code != 404 {
			t.Errorf("%d is answered with %d", n, rec.Code)
		}
	}
	var res wire.DeadResult
	call(t, w, "POST", fmt.Sprintf("/dead:redrive?ids=%d,%d,%d,4,%d", 2<<46|3, 1<<46|1, 2<<46|5, 7<<46|1), "", &res)
	if res.Count != 1 || !slices.Equal(res.Unknown, []uint64{7<<46 | 1, 4, 1<<46 | 1, 2<<46 | 3}) ||
		!slices.Equal(w.groups[2].redriven[0].IDs, []uint64{3, 5}) {
		t.Errorf("redrive by ids: %+v", res)
	}
	call(t, w, "POST", "/dead:redrive", `{"all":true,"max":12}`, &res)
	if res.Count != 12 || w.groups[1].redriven[1].Max != 3 || len(w.groups[2].redriven) != 1 || w.groups[0].keys[1] != "k1" {
		t.Errorf("redrive of 12: %+v, group 1 %+v", res, w.groups[1].redriven)
	}
	w.down[1] = true
	if rec := call(t, w, "POST", "/dead:redrive", `{"all":true}`, nil); rec.Code != 503 ||
		!strings.Contains(rec.Body.String(), "9 were done before this: group 1") {
		t.Errorf("a part done: %d %s", rec.Code, rec.Body)
	}
}

// An export has the lines of all groups by time. With the last number of each group the next one goes on.
func TestExports(t *testing.T) {
	w := newWorld(1, 2)
	const n = 1300
	for i := n; i > 0; i-- {
		g := uint32(1 + i%3%2)
		f := w.groups[g]
		seq := uint64(0)
		for k := 1; k <= i; k++ {
			if uint32(1+k%3%2) == g {
				seq++
			}
		}
		f.runs = append(f.runs, job.Run{JobID: 1, Seq: seq, FinishedAt: job.Instant(i), Status: job.RunSucceeded})
		f.audit = append(f.audit, wire.AuditRecord{Seq: seq, At: job.Instant(i)})
	}
	all := lines[job.Run](t, call(t, w, "GET", "/runs:export", "", nil).Body)
	if len(all) != n {
		t.Fatalf("%d lines", len(all))
	}
	for i, r := range all {
		if r.FinishedAt != job.Instant(i+1) {
			t.Fatalf("line %d is of time %d", i, r.FinishedAt)
		}
	}
	last := map[uint64]uint64{}
	for _, r := range all[:700] {
		last[r.Seq>>46] = r.Seq
	}
	for _, path := range []string{"/runs:export", "/audit:export"} {
		rest := lines[struct{ Seq uint64 }](t, call(t, w, "GET", fmt.Sprintf("%s?after=%d,%d&limit=50", path, last[1], last[2]), "", nil).Body)
		if len(rest) != 50 || rest[0].Seq != all[700].Seq {
			t.Errorf("%s: %d lines, the first %+v", path, len(rest), rest[0])
		}
	}
	w.fails = func(g uint32, r *http.Request) bool { return g == 1 && r.URL.Query().Get("after") != "" }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("an export that lost a group on its way looks complete")
			}
		}()
		call(t, w, "GET", "/runs:export?stale=true", "", nil)
	}()
	w.fails = nil
	if rec := call(t, w, "GET", "/runs:export?after=x", "", nil); rec.Code != 400 {
		t.Errorf("after=x: %d", rec.Code)
	}
	rest := walk(t, w, fmt.Sprintf("/audit?after=%d,%d", last[1], last[2]), func() int { return 100 }, auditOf)
	if len(rest) != n-700 {
		t.Errorf("%d records of the audit behind a place", len(rest))
	}
}

// The lines of a bulk create go to their groups under their own numbers, and are answered in their order.
func TestBulkIsSplit(t *testing.T) {
	w := newWorld(1, 2, 3)
	w.place = func(_, name, _, _ string) uint32 { return 1 + uint32(len(name))%3 }
	var in strings.Builder
	for i := range 9000 {
		switch {
		case i%50 == 7:
			in.WriteString("\n")
		case i%50 == 8:
			in.WriteString("{\n")
		default:
			fmt.Fprintf(&in, "{\"name\":\"%s\"}\n", strings.Repeat("x", 1+i%7))
		}
	}
	out := lines[wire.BulkResult](t, call(t, w, "POST", "/jobs:bulk", in.String(), nil).Body)
	if len(out) != 9000-180 {
		t.Fatalf("%d answers", len(out))
	}
	for i, r := range out {
		if i > 0 && out[i-1].Line >= r.Line {
			t.Fatalf("line %d is answered behind %d", r.Line, out[i-1].Line)
		}
		if k := (r.Line - 1) % 50; k == 8 {
			if r.Error == nil || r.Error.Code != job.CodeMalformed {
				t.Fatalf("line %d: %+v", r.Line, r)
			}
		} else if r.Status != "created" || r.JobID.Group() != uint8(1+len(r.Name)%3) || uint64(*r.JobID)&0xffff != uint64(r.Line) {
			t.Fatalf("line %d: %+v", r.Line, r)
		}
	}
	w.down[2] = true
	out = lines[wire.BulkResult](t, call(t, w, "POST", "/jobs:bulk", in.String(), nil).Body)
	failed, untried := 0, 0
	for _, r := range out {
		if r.Error != nil && strings.HasPrefix(r.Error.Message, "group 2") {
			failed++
		} else if r.Error != nil && strings.HasPrefix(r.Error.Message, "not tried") {
			untried++
		}
	}
	if len(out) != 9000-180 || failed == 0 || untried == 0 {
		t.Errorf("%d answers, %d failed, %d were not tried", len(out), failed, untried)
	}
	w.down[1], w.down[3] = true, true
	if rec := call(t, w, "POST", "/jobs:bulk", in.String(), nil); rec.Code != 503 {
		t.Errorf("without any group: %d %s", rec.Code, rec.Body)
	}
}

// An action goes over the groups under one key. What is expected is the sum, and it goes on from its cursor.
func TestActGoesFromGroupToGroup(t *testing.T) {
	w := newWorld(1, 2, 3)
	var ids []string
	for _, g := range w.numbers {
		for n := range 600 {
			j := job.Job{ID: idIn(g, uint64(n+1)), Status: job.StatusScheduled}
			j.Namespace, j.Name = "default", fmt.Sprintf("x%d", n)
			w.groups[g].jobs = append(w.groups[g].jobs, j)
			if n < 2 {
				ids = append(ids, `"`+j.ID.String()+`"`)
			}
		}
	}
	act := func(body string) []wire.JobActionProgress {
		t.Helper()
		rec := call(t, w, "POST", "/jobs:act", body, nil)
		if rec.Code != 200 {
			t.Fatalf("%d %s", rec.Code, rec.Body)
		}
		return lines[wire.JobActionProgress](t, rec.Body)
	}
	out := act(`{"action":"pause","filter":{"status":"scheduled"},"dry_run":true}`)
	if last := out[len(out)-1]; last.Matched != 1800 || !last.Finished || last.Total != 1800 || last.Cursor != "" {
		t.Errorf("dry run: %+v", last)
	}
	out = act(`{"action":"pause","filter":{"status":"scheduled"},"expect":1800}`)
	if last := out[len(out)-1]; last.Done != 1800 || !last.Finished || w.groups[2].keys[0] != "k1:"+w.groups[2].acted[0] {
		t.Errorf("with 1800 expected: %+v", last)
	}
	for _, p := range out[:len(out)-1] {
		rest := act(`{"action":"pause","filter":{"status":"scheduled"},"cursor":"` + p.Cursor + `"}`)
		if last := rest[len(rest)-1]; p.Done+last.Done != 1800 || !last.Finished {
			t.Errorf("from %q: %d and %d", p.Cursor, p.Done, last.Done)
		}
	}
	out = act(`{"action":"pause","filter":{"ids":[` + strings.Join(ids, ",") + `]}}`)
	if last := out[len(out)-1]; last.Done != 6 || !last.Finished {
		t.Errorf("by ids: %+v", last)
	}
	for body, want := range map[string]int{
		`{"action":"pause","filter":{"status":"scheduled"},"expect":5}`:        409,
		`{"action":"pause","filter":{}}`:                                       400,
		`{"action":"pouse","filter":{"all":true}}`:                             400,
		`{"action":"pause","filter":{"all":true},"cursor":"j_1"}`:              400,
		`{"action":"pause","filter":{"all":true},"cursor":"gx~1.n"}`:           400,
		`{"action":"delete","filter":{"all":true}}`:                            400,
		`{"action":"pause","filter":{"all":true,"ids":["` + ids[0][1:] + `]}}`: 400,
	} {
		if rec := call(t, w, "POST", "/jobs:act", body, nil); rec.Code != want {
			t.Errorf("%s: %d %s", body, rec.Code, rec.Body)
		}
	}
	w.down[2] = true
	out = act(`{"action":"pause","filter":{"all":true}}`)
	if last := out[len(out)-1]; last.Error == nil || !strings.Contains(last.Error.Message, "group 2") || last.Done != 600 || last.Cursor != "gx~2." || last.Finished {
		t.Errorf("without group 2: %+v", last)
	}
}

// A stream of events has what each group sends: one greeting, the sum of the statistics, the cluster's from group 0.
func TestEventsAreJoined(t *testing.T) {
	w := newWorld(1, 2)
	w.home = func(job.NameKind, string, string) uint32 { return 1 }
	w.groups[1].moved = map[string]uint32{"moved": 2}
	j := job.Job{ID: idIn(2, 5)}
	j.Namespace, j.Name = "default", "moved"
	w.groups[2].jobs = []job.Job{j}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rec := &cutting{ResponseRecorder: httptest.NewRecorder(), cancel: cancel, frames: 6}
	r := httptest.NewRequest("GET", "/api/v1/events?topics=stats,cluster,runs,job:moved", nil).WithContext(ctx)
	r.Host = "localhost"
	func() {
		defer func() { recover() }() //nolint:errcheck // a stream that is cut off
		w.ServeHTTP(rec, r)
	}()
	got := map[string]int{}
	for _, frame := range strings.Split(rec.Body.String(), "\n\n") {
		name, _, _ := strings.Cut(strings.TrimPrefix(frame, "event: "), "\n")
		got[name]++
		if name == "stats" && !strings.Contains(frame, `"succeeded":3,`) || name == "stats" && !strings.Contains(frame, `"jobs":3`) ||
			name == "cluster" && !strings.Contains(frame, `"group":0`) || name == "job" && !strings.Contains(frame, `"group":2`) {
			t.Errorf("%s", frame)
		}
	}
	if want := map[string]int{"hello": 1, "stats": 1, "cluster": 1, "runs": 2, "job": 1, "": 1}; !reflect.DeepEqual(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

// cutting hangs up after some frames.
type cutting struct {
	*httptest.ResponseRecorder
	frames int
	cancel func()
}

func (c *cutting) Write(b []byte) (int, error) {
	n, err := c.ResponseRecorder.Write(b)
	if c.frames--; c.frames == 0 {
		c.cancel()
	}
	return n, err
}
