package router_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/api/wire"
	_ "github.com/carillon-scheduler/carillon/executor" // the types of job
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/router"
	"github.com/carillon-scheduler/carillon/store"
)

// fake is a group in memory: the API over lists, with the cursors of a node.
type fake struct {
	api.Backend
	group    uint32
	budget   int // how many jobs one request looks at; 0: any number
	jobs     []job.Job
	runs     []job.Run // in the order of the list
	dead     []job.DeadLetter
	upcoming []wire.Upcoming
	audit    []wire.AuditRecord // newest first
	stats    wire.Stats
	load     wire.UpcomingLoad
	summary  wire.RunSummary
	letters  wire.DeadGroupPage
	queues   []wire.Queue
	status   wire.Status
	moved    map[string]uint32 // names of jobs in other groups
	release  wire.ReleaseResult
	full     bool         // its node has no room for a copy
	copies   atomic.Int32 // that are open

	mu       sync.Mutex
	created  []wire.BulkLine
	redriven []wire.DeadQuery
	acted    []string
	keys     []string
}

// after cuts a page out of rows, from the first one that is behind the cursor on.
func after[T any](rows []T, limit int, behind func(T) bool) (page []T, more bool) {
	i := 0
	for i < len(rows) && !behind(rows[i]) {
		i++
	}
	rows = rows[i:]
	return rows[:min(limit, len(rows))], len(rows) > limit
}

func bad() error { return job.Invalid("cursor", "", "this is not a cursor of this list") }

func (f *fake) ListJobs(_ context.Context, q wire.JobQuery, rd api.Read) (wire.JobPage, error) {
	order, key := byte('j'), func(j *job.Job) string { return fmt.Sprintf("%020d", j.ID) }
	switch {
	case q.Text != "":
		order, key = 's', func(j *job.Job) string { return store.NameKey(j.Namespace, j.Name) }
	case q.Prefix != "" && rd.Space.Namespace != job.AllNamespaces:
		order, key = 'n', func(j *job.Job) string { return j.Name }
	}
	at := ""
	if q.Cursor != "" {
		if q.Cursor[0] != order {
			return wire.JobPage{}, bad()
		}
		if order == 'j' {
			id, err := job.ParseID(q.Cursor)
			if err != nil {
				return wire.JobPage{}, bad()
			}
			at = fmt.Sprintf("%020d", id)
		} else {
			text, err := base64.RawURLEncoding.DecodeString(q.Cursor[1:])
			if err != nil {
				return wire.JobPage{}, bad()
			}
			at = string(text)
		}
	}
	jobs := slices.Clone(f.jobs)
	slices.SortFunc(jobs, func(a, b job.Job) int { return cmp.Compare(key(&a), key(&b)) })
	page := wire.JobPage{}
	for i := range jobs {
		j := &jobs[i]
		if at != "" && key(j) <= at {
			continue
		}
		if len(page.Jobs) == q.Limit || f.budget > 0 && page.Scanned == f.budget {
			prev := &jobs[i-1]
			switch order {
			case 'j':
				page.NextCursor = prev.ID.String()
			default:
				page.NextCursor = string(order) + base64.RawURLEncoding.EncodeToString([]byte(key(prev)))
			}
			break
		}
		page.Scanned++
		if rd.Space.Lists(j.Namespace) && strings.Contains(j.Name, q.Text) && strings.HasPrefix(j.Name, q.Prefix) &&
			(q.Status == "" || j.Status == q.Status) {
			page.Jobs = append(page.Jobs, *j)
		}
	}
	if !q.Filters() {
		page.Scanned = 0
	} else if rd.Space.All {
		page.Total = uint64(len(f.jobs))
	}
	return page, nil
}

func (f *fake) GetJob(_ context.Context, ref string, _ api.Read) (job.Job, error) {
	if g, ok := f.moved[ref]; ok {
		return job.Job{}, job.OtherGroup(g)
	}
	for _, j := range f.jobs {
		if j.ID.String() == ref || j.Name == ref {
			return j, nil
		}
	}
	return job.Job{}, job.Errorf(job.CodeNotFound, "", "there is no job %q", ref)
}

func (f *fake) PauseJob(ctx context.Context, ref string, rq api.Request) (job.Job, error) {
	j, err := f.GetJob(ctx, ref, api.Read{})
	if err == nil {
		f.mu.Lock()
		f.acted = append(f.acted, ref)
		f.keys = append(f.keys, rq.Key)
		f.mu.Unlock()
	}
	return j, err
}

func (f *fake) UpdateJob(ctx context.Context, ref string, s job.Spec, _ uint64, _ api.Request) (job.Job, error) {
	j, err := f.GetJob(ctx, ref, api.Read{})
	j.Spec.Timezone = s.Timezone
	return j, err
}

func (f *fake) CreateJob(_ context.Context, s job.Spec, rq api.Request) (job.Job, bool, error) {
	f.keys = append(f.keys, rq.Key)
	return job.Job{ID: idIn(f.group, 1), Spec: s}, false, nil
}

func (f *fake) BulkCreate(_ context.Context, lines []wire.BulkLine, _ api.Request) (out []wire.BulkResult, _ error) {
	for _, l := range lines {
		l.Raw = bytes.Clone(l.Raw)
		f.created = append(f.created, l)
		id := idIn(f.group, uint64(l.Line))
		r := wire.BulkResult{Line: l.Line, Status: "created", JobID: &id, Name: l.Spec.Name}
		if l.Err != nil {
			r = wire.BulkResult{Line: l.Line, Status: "error", Error: l.Err}
		}
		out = append(out, r)
	}
	return out, nil
}

func (f *fake) Runs(_ context.Context, q wire.RunQuery, _ api.Read) (wire.RunPage, error) {
	rows, more := after(f.runs, q.Limit, func(r job.Run) bool {
		switch {
		case q.Cursor == "":
			return true
		case q.Cursor[0] == 'h':
			seq, _ := strconv.ParseUint(q.Cursor[1:], 32, 64)
			return r.Seq != 0 && r.Seq < seq
		}
		if r.Seq != 0 {
			return true
		}
		at, _ := job.ParseRunKey(q.Cursor)
		k, _ := job.ParseRunKey(r.RunID)
		return newer(at, k)
	})
	page := wire.RunPage{Runs: rows}
	if more {
		last := rows[len(rows)-1]
		if page.NextCursor = last.RunID; last.Seq != 0 {
			page.NextCursor = "h" + strconv.FormatUint(last.Seq, 32)
		}
	}
	return page, nil
}

func newer(a, b job.RunKey) bool {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Job, b.Job), cmp.Compare(a.Origin, b.Origin)) > 0
}

func (f *fake) GetRun(_ context.Context, id string, _ api.Read) (wire.RunDetail, error) {
	return wire.RunDetail{Run: job.Run{RunID: id, Worker: fmt.Sprint(f.group)}}, nil
}

func (f *fake) DeadLetters(_ context.Context, q wire.DeadQuery, _ api.Read) (wire.DeadPage, error) {
	below, _ := strconv.ParseUint(q.Cursor, 10, 64)
	rows, more := after(f.dead, q.Limit, func(d job.DeadLetter) bool {
		return (below == 0 || d.Seq < below) && (len(q.IDs) == 0 || d.Seq == q.IDs[0])
	})
	page := wire.DeadPage{Dead: rows}
	if more {
		page.NextCursor = strconv.FormatUint(rows[len(rows)-1].Seq, 10)
	}
	return page, nil
}

func (f *fake) Redrive(_ context.Context, q wire.DeadQuery, rq api.Request) (wire.DeadResult, error) {
	f.redriven, f.keys = append(f.redriven, q), append(f.keys, rq.Key)
	n := len(f.dead)
	if len(q.IDs) > 0 {
		return wire.DeadResult{Count: len(q.IDs) - 1, Unknown: q.IDs[:1]}, nil
	}
	if q.Max > 0 {
		n = min(n, q.Max)
	}
	return wire.DeadResult{Count: n}, nil
}

func (f *fake) Upcoming(_ context.Context, q wire.UpcomingQuery, _ api.Read) (wire.UpcomingPage, error) {
	at, ref, _ := strings.Cut(q.Cursor, ".")
	ms, _ := strconv.ParseInt(at, 36, 64)
	id, _ := job.ParseID(ref)
	rows, more := after(f.upcoming, q.Limit, func(u wire.Upcoming) bool {
		return q.Cursor == "" || cmp.Or(cmp.Compare(int64(u.StartAt), ms), cmp.Compare(u.JobID, id)) > 0
	})
	page := wire.UpcomingPage{Occurrences: rows}
	if more {
		last := rows[len(rows)-1]
		page.NextCursor = strconv.FormatInt(int64(last.StartAt), 36) + "." + last.JobID.String()
	}
	return page, nil
}

func (f *fake) Audit(_ context.Context, q wire.AuditQuery, _ api.Read) (wire.AuditPage, error) {
	below, _ := strconv.ParseUint(q.Cursor, 10, 64)
	rows, more := after(f.audit, q.Limit, func(r wire.AuditRecord) bool { return below == 0 || r.Seq < below })
	rows = slices.DeleteFunc(slices.Clone(rows), func(r wire.AuditRecord) bool { return r.Seq <= q.After.Own() })
	page := wire.AuditPage{Records: rows}
	if more && len(rows) == q.Limit {
		page.NextCursor = strconv.FormatUint(rows[len(rows)-1].Seq, 10)
	}
	return page, nil
}

func (f *fake) ExportHistory(_ context.Context, from uint64, limit int, _ api.Read) (out []job.Run, _ error) {
	for _, r := range slices.Backward(f.runs) {
		if r.Seq > from && len(out) < limit {
			out = append(out, r)
		}
	}
	return out, nil
}

func (f *fake) ExportAudit(_ context.Context, q wire.AuditQuery, _ api.Read) (out []wire.AuditRecord, _ error) {
	for _, r := range slices.Backward(f.audit) {
		if r.Seq > q.After.Own() && len(out) < q.Limit {
			out = append(out, r)
		}
	}
	return out, nil
}

func (f *fake) Stats(context.Context, time.Duration, api.Read) (wire.Stats, error) {
	return f.stats, nil
}

func (f *fake) UpcomingLoad(context.Context, wire.LoadQuery, api.Read) (wire.UpcomingLoad, error) {
	return f.load, nil
}

func (f *fake) RunSummary(context.Context, wire.RunQuery, api.Read) (wire.RunSummary, error) {
	return f.summary, nil
}

func (f *fake) DeadGroups(context.Context, wire.DeadQuery, api.Read) (wire.DeadGroupPage, error) {
	return f.letters, nil
}

func (f *fake) Queues(_ context.Context, q wire.QueueQuery, _ api.Read) (page wire.QueueList, err error) {
	key := func(q wire.Queue) string { return q.Namespace + "/" + q.Name }
	at, err := base64.RawURLEncoding.DecodeString(q.Cursor)
	if err != nil {
		return page, bad()
	}
	var more bool
	page.Queues, more = after(f.queues, q.Limit, func(q wire.Queue) bool { return key(q) > string(at) })
	if more {
		page.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(key(page.Queues[len(page.Queues)-1])))
	}
	return page, nil
}

func (f *fake) GetQueue(_ context.Context, name string, rd api.Read) (wire.Queue, error) {
	return wire.Queue{Namespace: rd.Space.Name(), Name: name, Jobs: int(f.group)}, nil
}

func (f *fake) PutQueue(_ context.Context, name string, _ wire.QueueChange, _ uint64, _ bool, rq api.Request) (
	wire.Queue, error) {
	return wire.Queue{Namespace: rq.Space.Name(), Name: name, Jobs: int(f.group)}, nil
}

func (f *fake) Status(context.Context, api.Read) (wire.Status, error) { return f.status, nil }

func (f *fake) Tokens(context.Context, api.Read) ([]wire.Token, error) {
	return []wire.Token{{Name: fmt.Sprint(f.group)}}, nil
}

func (f *fake) Scrub(context.Context, api.Request) (wire.ScrubStatus, error) {
	f.acted = append(f.acted, "scrub")
	return wire.ScrubStatus{Groups: []wire.GroupScrub{{Group: f.group, Pass: 1}}}, nil
}

func (f *fake) ScrubStatus(context.Context, api.Read) (wire.ScrubStatus, error) {
	return wire.ScrubStatus{Groups: []wire.GroupScrub{{Group: f.group, Pass: 1, Done: true}}}, nil
}

func (f *fake) ClockReset(context.Context, api.Request) error {
	f.acted = append(f.acted, "clock")
	return nil
}

func (f *fake) Events(ctx context.Context, q wire.EventQuery, _ api.Read, send func([]byte) error) error {
	event := func(name string, v any) error {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return send(fmt.Appendf(nil, "event: %s\nid: 1\ndata: %s\n\n", name, text))
	}
	if err := event("hello", wire.HelloEvent{Node: "n1", Topics: q.Topics}); err != nil {
		return err
	}
	for _, topic := range q.Topics {
		name, _, _ := strings.Cut(topic, ":")
		var v any = map[string]any{"group": f.group, "topic": topic}
		if topic == wire.TopicStats {
			jobs := uint64(f.group)
			v = wire.StatsEvent{At: 1000, Second: wire.StatsCounts{Succeeded: int64(f.group)}, Jobs: &jobs}
		}
		if err := event(name, v); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// world is some groups with a router above them.
type world struct {
	*router.Router
	numbers []uint32
	groups  map[uint32]*fake
	down    map[uint32]bool
	fails   func(group uint32, r *http.Request) bool
	place   func(namespace, name, queue, key string) uint32
	home    func(kind job.NameKind, namespace, name string) uint32
}

func newWorld(numbers ...uint32) *world {
	w := &world{numbers: numbers, groups: map[uint32]*fake{0: {}}, down: map[uint32]bool{}}
	handlers := map[uint32]http.Handler{}
	for _, g := range append([]uint32{0}, numbers...) {
		w.groups[g] = &fake{group: g}
		handlers[g] = api.New(w.groups[g], api.Options{})
	}
	w.Router = router.New(router.Options{
		Groups: func() []uint32 { return w.numbers },
		Handler: func(g uint32) http.Handler {
			if w.down[g] {
				return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
					api.WriteError(rw, job.Errorf(job.CodeNoLeader, "wait", "there is no leader"))
				})
			}
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if w.fails != nil && w.fails(g, r) {
					api.WriteError(rw, job.Errorf(job.CodeNoLeader, "wait", "there is no leader"))
					return
				}
				handlers[g].ServeHTTP(rw, r)
			})
		},
		Home:  func(kind job.NameKind, ns, name string) uint32 { return w.home(kind, ns, name) },
		Place: func(ns, name, queue, key string) uint32 { return w.place(ns, name, queue, key) },
	})
	return w
}

func idIn(group uint32, n uint64) job.ID { return job.ID(uint64(group)<<(64-job.GroupBits) | n) }

// call makes a request and reads the answer into v.
func call(t testing.TB, h http.Handler, method, target, body string, v any) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, "/api/v1"+target, strings.NewReader(body))
	if body == "" {
		r = httptest.NewRequest(method, "/api/v1"+target, nil)
	}
	r.Host = "localhost"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Idempotency-Key", "k1")
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	if v != nil {
		if rec.Code >= 300 {
			t.Fatalf("%s %s: %d %s", method, target, rec.Code, rec.Body)
		}
		if err := json.Unmarshal(rec.Body.Bytes(), v); err != nil {
			t.Fatalf("%s %s: %v in %s", method, target, err, rec.Body)
		}
	}
	return rec
}

// walk goes through all pages of a list.
func walk[P, T any](t testing.TB, h http.Handler, target string, limit func() int, of func(P) ([]T, string)) (all []T) {
	t.Helper()
	cursor := ""
	for range 10_000 {
		u := target + map[bool]string{true: "&", false: "?"}[strings.Contains(target, "?")] + "limit=" +
			strconv.Itoa(limit()) + "&cursor=" + url.QueryEscape(cursor)
		var p P
		call(t, h, "GET", u, "", &p)
		rows, next := of(p)
		all = append(all, rows...)
		if cursor = next; cursor == "" {
			return all
		}
	}
	t.Fatal("the list has no end")
	return nil
}

func lines[T any](t testing.TB, text io.Reader) (out []T) {
	t.Helper()
	for in := bufio.NewScanner(text); in.Scan(); {
		var v T
		if err := json.Unmarshal(in.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}
