package wire

import (
	"github.com/carillon-scheduler/carillon/internal/pack"
	"github.com/carillon-scheduler/carillon/job"
)

// The three messages that carry runs and their results are packed by hand: they are most of what a busy leader sends
// and reads. All have the names of JSON, and what is not known is passed over, so that either side may have another
// version; an assignment has its run and its payload as the leader has them. A test holds that no field is forgotten.

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
	size := 128 + len(m.Session) + 32*(len(m.Stop)+len(m.Watch))
	for i := range m.Runs {
		a := &m.Runs[i]
		size += 400 + len(a.Payload) + len(a.JobName) + len(a.Key)
	}
	b := make([]byte, 0, size)
	b = pack.Map(b, fields(3, m.Opened, m.Waited != 0, len(m.Stop) > 0, len(m.Watch) > 0, m.Ready != 0))
	b = pack.Str(pack.Str(b, "session"), m.Session)
	if m.Opened {
		b = pack.Bool(pack.Str(b, "opened"), true)
	}
	b = pack.Int(pack.Str(b, "lease"), int64(m.Lease))
	if m.Waited != 0 {
		b = pack.Int(pack.Str(b, "waited"), int64(m.Waited))
	}
	b = pack.Array(pack.Str(b, "runs"), len(m.Runs))
	for i := range m.Runs {
		b = packAssignment(b, &m.Runs[i])
	}
	if len(m.Stop) > 0 {
		b = pack.Array(pack.Str(b, "stop"), len(m.Stop))
		for i := range m.Stop {
			b = packRef(pack.Map(b, refFields(&m.Stop[i].Ref)+1), &m.Stop[i].Ref)
			b = pack.Str(pack.Str(b, "why"), m.Stop[i].Why)
		}
	}
	if len(m.Watch) > 0 {
		b = pack.Array(pack.Str(b, "watch"), len(m.Watch))
		for i := range m.Watch {
			b = packRef(pack.Map(b, refFields(&m.Watch[i])), &m.Watch[i])
		}
	}
	if m.Ready != 0 {
		b = pack.Int(pack.Str(b, "ready"), int64(m.Ready))
	}
	return b
}

func refFields(r *job.Ref) int { return fields(0, r.Claim != "", r.Fence != 0) }

// packRef packs the fields of a Ref, which stand among those of what has it.
func packRef(b []byte, r *job.Ref) []byte {
	if r.Claim != "" {
		b = pack.Str(pack.Str(b, "claim"), r.Claim)
	}
	if r.Fence != 0 {
		b = pack.Uint(pack.Str(b, "fence"), r.Fence)
	}
	return b
}

// packAssignment leaves out the claim: who reads msgpack goes by the fence.
func packAssignment(b []byte, a *job.Assignment) []byte {
	b = pack.Map(b, fields(9, a.JobName != "", a.Namespace != "", a.Traceparent != "", len(a.Secrets) > 0,
		len(a.Hosts) > 0))
	b = pack.Uint(pack.Str(b, "fence"), a.Fence)
	b = packRun(pack.Str(b, "run"), a.Run)
	if a.JobName != "" {
		b = pack.Str(pack.Str(b, "job_name"), a.JobName)
	}
	if a.Namespace != "" {
		b = pack.Str(pack.Str(b, "namespace"), a.Namespace)
	}
	b = pack.Int(pack.Str(b, "attempt"), int64(a.Attempt))
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
	size := 128 + len(m.Session)
	for i := range m.Results {
		size += 128 + len(m.Results[i].Claim) + len(m.Results[i].Error) + len(m.Results[i].Output)
	}
	b := pack.Map(make([]byte, 0, size), fields(1, m.Session != ""))
	if m.Session != "" {
		b = pack.Str(pack.Str(b, "session"), m.Session)
	}
	b = pack.Array(pack.Str(b, "results"), len(m.Results))
	for i := range m.Results {
		b = packResult(b, &m.Results[i])
	}
	return b
}

func packResult(b []byte, r *job.Result) []byte {
	b = pack.Map(b, refFields(&r.Ref)+fields(1, r.Permanent, r.TimedOut, r.EgressDenied, r.RetryAfter != 0,
		r.Error != "", r.Output != "", r.StartedAt != 0, r.FinishedAt != 0))
	b = packRef(b, &r.Ref)
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
	b := pack.Map(make([]byte, 0, 32+32*len(m.Results)), 1)
	b = pack.Array(pack.Str(b, "results"), len(m.Results))
	for i := range m.Results {
		a := &m.Results[i]
		b = packRef(pack.Map(b, refFields(&a.Ref)+fields(1, a.Why != "", a.Repeated)), &a.Ref)
		b = pack.Str(pack.Str(b, "status"), a.Status)
		if a.Why != "" {
			b = pack.Str(pack.Str(b, "why"), a.Why)
		}
		if a.Repeated {
			b = pack.Bool(pack.Str(b, "repeated"), true)
		}
	}
	return b
}
