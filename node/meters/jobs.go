package meters

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillon-scheduler/carillon/api/wire"
	"github.com/carillon-scheduler/carillon/internal/membudget"
	"github.com/carillon-scheduler/carillon/internal/metric"
	"github.com/carillon-scheduler/carillon/job"
)

const (
	maxJobs = 1000 // that have metrics of their own
	// maxOmitted is how far those are counted that have none: each is read for that.
	maxOmitted = 10_000
)

// Jobs serves metrics of single jobs, which it reads as its caller could: with list, which answers the list of jobs for
// the whole cluster, and the caller's own identity.
func Jobs(list http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all := &jobs{seen: map[job.QueueKey]bool{}}
		q := r.URL.Query()
		q.Set("limit", strconv.Itoa(maxJobs))
		for more := true; more; {
			cursor, failed := all.page(list, listRequest(r, q))
			if failed != nil {
				failed.pass(w)
				return
			}
			more = cursor != "" && all.omitted < maxOmitted
			q.Set("cursor", cursor)
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(all)
		metric.Handler(registry).ServeHTTP(w, r)
	})
}

// page adds a page of the list, and returns where the next one begins, or the answer that is an error. The page is in
// memory until it was read, and not until all are.
func (a *jobs) page(list http.Handler, r *http.Request) (next string, failed *listing) {
	ctx, end := membudget.Part(r.Context())
	defer end()
	part := &listing{header: http.Header{}}
	list.ServeHTTP(part, r.WithContext(ctx))
	var page wire.JobPage
	if part.code() != http.StatusOK || json.Unmarshal(part.body.Bytes(), &page) != nil {
		return "", part
	}
	for i := range page.Jobs {
		a.add(&page.Jobs[i])
	}
	return page.NextCursor, nil
}

// listRequest asks for a page of the list of jobs.
func listRequest(of *http.Request, q url.Values) *http.Request {
	r := of.Clone(of.Context())
	r.Method, r.Body, r.ContentLength = http.MethodGet, http.NoBody, 0
	r.URL = &url.URL{Path: "/api/v1/jobs", RawQuery: q.Encode()}
	r.RequestURI = r.URL.RequestURI()
	r.Pattern = ""
	for _, name := range []string{"Accept", "Accept-Encoding"} { // they are about the metrics
		r.Header.Del(name)
	}
	return r
}

// listing takes an answer.
type listing struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (l *listing) Header() http.Header { return l.header }

func (l *listing) WriteHeader(status int) {
	if l.status == 0 && status >= http.StatusOK {
		l.status = status
	}
}

func (l *listing) Write(b []byte) (int, error) { return l.body.Write(b) }

func (l *listing) code() int {
	if l.status == 0 {
		return http.StatusOK
	}
	return l.status
}

// pass gives the answer to another caller: it is an error.
func (l *listing) pass(w http.ResponseWriter) {
	maps.Copy(w.Header(), l.header)
	w.Header().Del("Content-Length")
	if l.code() == http.StatusOK {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	w.WriteHeader(l.code())
	_, _ = w.Write(l.body.Bytes()) //nolint:errcheck // its caller is gone
}

// jobs are the metrics of single jobs.
type jobs struct {
	shown   []job.Job
	seen    map[job.QueueKey]bool // by namespace and name: one that is edited meanwhile may be listed twice
	omitted int
}

func (a *jobs) add(j *job.Job) {
	if j.Name == "" {
		j.Name = j.ID.String()
	}
	key := job.QueueKey{Namespace: j.Namespace, Name: j.Name}
	switch {
	case a.seen[key]:
	case len(a.shown) == maxJobs:
		a.omitted++
	default:
		a.seen[key] = true
		a.shown = append(a.shown, job.Job{ID: j.ID, Spec: job.Spec{Name: j.Name, Namespace: j.Namespace},
			NextRunAt: j.NextRunAt, LastSuccessAt: j.LastSuccessAt, LastRunStatus: j.LastRunStatus, Failing: j.Failing})
	}
}

var (
	jobLastSuccess = desc("job_last_success_timestamp_seconds",
		"When a run of the job last succeeded; absent if none did.", "namespace", "job_name")
	jobNextRun = desc("job_next_run_timestamp_seconds", "The next occurrence of the job; absent if there is none.",
		"namespace", "job_name")
	jobFailing = desc("job_failing", "1 if the last run of the job is dead, lost or expired, 0 otherwise.",
		"namespace", "job_name")
	jobsOmitted = desc("jobs_omitted", "Jobs that are not shown, as they are more than 1,000: choose some by prefix "+
		"or namespace. Counting stops at about 10,000.")
)

// Describe implements prometheus.Collector.
func (*jobs) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{jobLastSuccess, jobNextRun, jobFailing, jobsOmitted} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (a *jobs) Collect(ch chan<- prometheus.Metric) {
	seconds := func(t job.Instant) float64 { return float64(t) / 1000 }
	for i := range a.shown {
		j := &a.shown[i]
		if j.LastSuccessAt != 0 {
			gauge(ch, jobLastSuccess, seconds(j.LastSuccessAt), j.Namespace, j.Name)
		}
		if j.NextRunAt != 0 {
			gauge(ch, jobNextRun, seconds(j.NextRunAt), j.Namespace, j.Name)
		}
		gauge(ch, jobFailing, boolValue(j.Fails()), j.Namespace, j.Name)
	}
	gauge(ch, jobsOmitted, float64(a.omitted))
}
