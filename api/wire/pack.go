package wire

import (
	"github.com/carillon-scheduler/carillon/internal/pack"
	"github.com/carillon-scheduler/carillon/job"
)

// The three messages that carry runs and their results are packed by hand: they are most of what a busy leader sends
// and reads. What they look like on the wire is what the library would make of the structs, names and all, so that
// either side may have another version. A test holds that no field is forgotten.

// packMessage packs a message if it is one of those.
func packMessage(v any) ([]byte, bool) {
	switch m := v.(type) {
	case *job.PollReply:
		return packPollReply(m), true
	case job.PollReply:
		return packPollReply(&m), true
	case *job.Report:
		return packReport(m), true
	case *job.ReportReply:
		return packReportReply(m), true
	case job.ReportReply:
		return packReportReply(&m), true
	}
	return nil, false
}

// unpackMessage reads a message if it is one of those and looks as expected. Otherwise v is as it was.
func unpackMessage(data []byte, v any) bool {
	r := &pack.Reader{B: data}
	switch m := v.(type) {
	case *job.PollReply:
		return finish(r, m, readPollReply(r))
	case *job.Report:
		return finish(r, m, readReport(r))
	case *job.ReportReply:
		return finish(r, m, readReportReply(r))
	}
	return false
}

func finish[T any](r *pack.Reader, to *T, v T) bool {
	if r.Bad || len(r.B) > 0 {
		return false
	}
	*to = v
	return true
}

// fields counts those of a struct that are sent: omitted ones do not count.
func fields(always int, present ...bool) int {
	for _, p := range present {
		if p {
			always++
		}
	}
	return always
}

func packPollReply(m *job.PollReply) []byte {
	size := 64 + 10*(len(m.Cancel)+len(m.Watch))
	for i := range m.Assignments {
		a := &m.Assignments[i]
		size += 400 + len(a.Payload) + len(a.JobName) + len(a.Key)
	}
	b := make([]byte, 0, size)
	b = pack.Map(b, fields(0, len(m.Assignments) > 0, len(m.Cancel) > 0, len(m.Watch) > 0, m.Number != 0,
		m.Ready != 0))
	if len(m.Assignments) > 0 {
		b = pack.Array(pack.Str(b, "assignments"), len(m.Assignments))
		for i := range m.Assignments {
			b = packAssignment(b, &m.Assignments[i])
		}
	}
	if len(m.Cancel) > 0 {
		b = packFences(pack.Str(b, "cancel"), m.Cancel)
	}
	if len(m.Watch) > 0 {
		b = packFences(pack.Str(b, "watch"), m.Watch)
	}
	if m.Number != 0 {
		b = pack.Uint(pack.Str(b, "number"), m.Number)
	}
	if m.Ready != 0 {
		b = pack.Int(pack.Str(b, "ready"), int64(m.Ready))
	}
	return b
}

func packFences(b []byte, fences []uint64) []byte {
	b = pack.Array(b, len(fences))
	for _, f := range fences {
		b = pack.Uint(b, f)
	}
	return b
}

func packAssignment(b []byte, a *job.Assignment) []byte {
	b = pack.Map(b, fields(11, a.JobName != "", a.Namespace != "", a.Traceparent != "", len(a.Secrets) > 0,
		len(a.Hosts) > 0))
	b = pack.Uint(pack.Str(b, "number"), a.Number)
	b = pack.Uint(pack.Str(b, "term"), a.Term)
	b = packRun(pack.Str(b, "run"), a.Run)
	if a.JobName != "" {
		b = pack.Str(pack.Str(b, "job_name"), a.JobName)
	}
	if a.Namespace != "" {
		b = pack.Str(pack.Str(b, "namespace"), a.Namespace)
	}
	b = pack.Int(pack.Str(b, "attempt"), int64(a.Attempt))
	b = pack.Uint(pack.Str(b, "fence"), a.Fence)
	b = pack.Str(pack.Str(b, "idempotency_key"), a.Key)
	b = pack.Str(pack.Str(b, "type"), string(a.Type))
	b = pack.Bin(pack.Str(b, "payload"), a.Payload)
	b = pack.Int(pack.Str(b, "timeout"), int64(a.Timeout))
	b = pack.Str(pack.Str(b, "delivery"), a.Delivery)
	if a.Traceparent != "" {
		b = pack.Str(pack.Str(b, "traceparent"), a.Traceparent)
	}
	b = pack.Int(pack.Str(b, "claimed_at"), int64(a.ClaimedAt))
	if len(a.Secrets) > 0 {
		b = packTexts(pack.Str(b, "secrets"), a.Secrets)
	}
	if len(a.Hosts) > 0 {
		b = packTexts(pack.Str(b, "hosts"), a.Hosts)
	}
	return b
}

func packTexts(b []byte, texts []string) []byte {
	b = pack.Array(b, len(texts))
	for _, s := range texts {
		b = pack.Str(b, s)
	}
	return b
}

func packRun(b []byte, k job.RunKey) []byte {
	b = pack.Map(b, 3)
	b = pack.Uint(pack.Str(b, "job_id"), uint64(k.Job))
	b = pack.Int(pack.Str(b, "scheduled_at_ms"), k.At)
	return pack.Uint(pack.Str(b, "origin"), uint64(k.Origin))
}

func packReport(m *job.Report) []byte {
	size := 128
	for i := range m.Results {
		size += 160 + len(m.Results[i].Error) + len(m.Results[i].Output)
	}
	b := pack.Map(make([]byte, 0, size), 2)
	b = pack.Map(pack.Str(b, "session"), fields(3, m.Session.Group != 0, m.Session.Registration != 0,
		m.Session.Secret != ""))
	b = pack.Str(pack.Str(b, "worker"), m.Session.Worker)
	b = pack.Uint(pack.Str(b, "incarnation"), m.Session.Incarnation)
	if m.Session.Group != 0 {
		b = pack.Uint(pack.Str(b, "group"), uint64(m.Session.Group))
	}
	b = pack.Uint(pack.Str(b, "term"), m.Session.Term)
	if m.Session.Registration != 0 {
		b = pack.Uint(pack.Str(b, "registration"), m.Session.Registration)
	}
	if m.Session.Secret != "" {
		b = pack.Str(pack.Str(b, "secret"), m.Session.Secret)
	}
	b = pack.Array(pack.Str(b, "results"), len(m.Results))
	for i := range m.Results {
		b = packResult(b, &m.Results[i])
	}
	return b
}

func packResult(b []byte, r *job.Result) []byte {
	b = pack.Map(b, fields(3, r.Permanent, r.TimedOut, r.EgressDenied, r.RetryAfter != 0, r.Error != "", r.Output != "",
		r.StartedAt != 0, r.FinishedAt != 0))
	b = packRun(pack.Str(b, "run"), r.Run)
	b = pack.Uint(pack.Str(b, "fence"), r.Fence)
	b = pack.Uint(pack.Str(b, "outcome"), uint64(r.Outcome))
	if r.Permanent {
		b = pack.Bool(pack.Str(b, "permanent"), true)
	}
	if r.TimedOut {
		b = pack.Bool(pack.Str(b, "timed_out"), true)
	}
	if r.EgressDenied {
		b = pack.Bool(pack.Str(b, "egress_denied"), true)
	}
	if r.RetryAfter != 0 {
		b = pack.Int(pack.Str(b, "retry_after"), int64(r.RetryAfter))
	}
	if r.Error != "" {
		b = pack.Str(pack.Str(b, "error"), r.Error)
	}
	if r.Output != "" {
		b = pack.Str(pack.Str(b, "output"), r.Output)
	}
	if r.StartedAt != 0 {
		b = pack.Int(pack.Str(b, "started_at"), int64(r.StartedAt))
	}
	if r.FinishedAt != 0 {
		b = pack.Int(pack.Str(b, "finished_at"), int64(r.FinishedAt))
	}
	return b
}

func packReportReply(m *job.ReportReply) []byte {
	b := pack.Map(make([]byte, 0, 32+32*len(m.Acks)), 1)
	b = pack.Array(pack.Str(b, "acks"), len(m.Acks))
	for _, a := range m.Acks {
		b = pack.Map(b, fields(1, a.Stale))
		b = pack.Uint(pack.Str(b, "fence"), a.Fence)
		if a.Stale {
			b = pack.Bool(pack.Str(b, "stale"), true)
		}
	}
	return b
}
