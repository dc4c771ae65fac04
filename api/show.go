package api

import (
	"strconv"

	"github.com/carillon-scheduler/carillon/job"
)

// appendJob writes a job as package json would, without reflection: every create is answered with one. It says false of a job that has
// something out of the ordinary, and leaves that to the package.
func appendJob(b []byte, j *job.Job) ([]byte, bool) {
	s := &j.Spec
	if len(s.Calendars)+len(s.Tags)+len(s.Workers) > 0 || s.Notify != nil || j.LastNotification != nil || j.LastRunStatus != 0 || !compactJSON(s.Payload) {
		return b, false
	}
	o := shown{b: b, ok: true}
	o.begin("")
	o.str("job_id", j.ID.String())
	o.str("status", string(j.Status))
	o.some("name", s.Name)
	o.str("type", string(s.Type))
	o.str("schedule", s.Schedule)
	o.some("timezone", s.Timezone)
	o.key("payload")
	o.b = append(o.b, s.Payload...)
	o.retry(&s.Retry)
	o.duration("timeout", s.Timeout)
	o.duration("deadline", s.Deadline)
	o.begin("missed")
	o.some("policy", s.Missed.Policy)
	o.some("window", s.Missed.Window)
	o.int("max", s.Missed.Max)
	o.duration("grace", s.Missed.Grace)
	o.end()
	o.some("overlap", s.Overlap)
	o.some("delivery", s.Delivery)
	o.some("priority", s.Priority)
	o.int("concurrency", s.Concurrency)
	o.duration("jitter", s.Jitter)
	if s.StartAt != 0 {
		o.instant("start_at", s.StartAt)
	}
	if s.EndAt != 0 {
		o.instant("end_at", s.EndAt)
	}
	o.int("max_runs", s.MaxRuns)
	o.some("idempotency_key", s.IdempotencyKey)
	o.duration("retention", s.Retention)
	o.some("dst_gap", s.DSTGap)
	o.some("dst_overlap", s.DSTOverlap)
	o.instant("next_run_at", j.NextRunAt)
	o.instant("last_run_at", j.LastRunAt)
	o.number("open_runs", int64(j.OpenRuns))
	o.number("runs_started", int64(j.RunsStarted))
	o.some("wait_reason", j.WaitReason)
	if j.Failing {
		o.key("failing")
		o.b = append(o.b, "true"...)
	}
	o.key("version")
	o.b = strconv.AppendUint(o.b, j.Version, 10)
	o.instant("created_at", j.CreatedAt)
	o.instant("updated_at", j.UpdatedAt)
	o.end()
	return append(o.b, '\n'), o.ok
}

// shown writes the fields of a JSON object.
type shown struct {
	b  []byte
	ok bool // everything so far could be written
}

func (o *shown) begin(name string) {
	if name != "" {
		o.key(name)
	}
	o.b = append(o.b, '{')
}

func (o *shown) end() { o.b = append(o.b, '}') }

func (o *shown) key(name string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(append(append(o.b, '"'), name...), '"', ':')
}

func (o *shown) str(name, v string) {
	o.key(name)
	o.ok = o.ok && plainText(v)
	o.b = append(append(append(o.b, '"'), v...), '"')
}

// some is a field that is left out when it is empty.
func (o *shown) some(name, v string) {
	if v != "" {
		o.str(name, v)
	}
}

func (o *shown) number(name string, v int64) {
	o.key(name)
	o.b = strconv.AppendInt(o.b, v, 10)
}

func (o *shown) int(name string, v int) {
	if v != 0 {
		o.number(name, int64(v))
	}
}

func (o *shown) duration(name string, d job.Duration) {
	if d != 0 {
		o.str(name, d.String()) // of one with microseconds, the sign is not plain
	}
}

func (o *shown) instant(name string, i job.Instant) {
	if i == 0 {
		o.key(name)
		o.b = append(o.b, "null"...)
		return
	}
	o.str(name, i.String())
}

func (o *shown) retry(r *job.Retry) {
	o.begin("retry")
	if r.MaxRetries != nil {
		o.number("max_retries", int64(*r.MaxRetries))
	}
	o.some("backoff", r.Backoff)
	o.duration("base", r.Base)
	o.duration("cap", r.Cap)
	if r.Jitter != nil {
		f := *r.Jitter
		o.ok = o.ok && (f == 0 || f >= 1e-6 && f <= 1) // beyond them numbers are written otherwise
		o.key("jitter")
		o.b = strconv.AppendFloat(o.b, f, 'f', -1, 64)
	}
	o.end()
}

// compactJSON says that a text, which is known to be JSON, has no space that package json would take out.
func compactJSON(text []byte) bool {
	inside := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			inside = !inside
		case c == '\\':
			i++
		case c <= ' ' && !inside:
			return false
		}
	}
	return len(text) > 0
}
