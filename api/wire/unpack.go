package wire

import (
	"unsafe"

	"github.com/carillon-scheduler/carillon/internal/expand"
	"github.com/carillon-scheduler/carillon/internal/pack"
	"github.com/carillon-scheduler/carillon/job"
)

// list reads an array of structs.
func list[T any](r *pack.Reader, read func(*pack.Reader) T) (out []T) {
	n := r.Len()
	var one T
	if int64(n)*int64(unsafe.Sizeof(one)) > expand.Most(len(r.B)) {
		r.Bad = true // elements without their fields
		return nil
	}
	if n > 0 {
		out = make([]T, 0, min(n, 4096)) // what a message says of its length is not worth more memory than this
	}
	for range n {
		if r.Bad {
			return nil
		}
		out = append(out, read(r))
	}
	return out
}

func readPollReply(r *pack.Reader) (m job.PollReply) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "assignments":
			m.Assignments = list(r, readAssignment)
		case "cancel":
			m.Cancel = list(r, (*pack.Reader).Uint)
		case "watch":
			m.Watch = list(r, (*pack.Reader).Uint)
		case "number":
			m.Number = r.Uint()
		case "ready":
			m.Ready = int(r.Int())
		default:
			r.Bad = true
		}
	})
	return m
}

func readAssignment(r *pack.Reader) (a job.Assignment) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "number":
			a.Number = r.Uint()
		case "term":
			a.Term = r.Uint()
		case "run":
			a.Run = readRun(r)
		case "job_name":
			a.JobName = r.Str()
		case "namespace":
			a.Namespace = r.Str()
		case "attempt":
			a.Attempt = int(r.Int())
		case "fence":
			a.Fence = r.Uint()
		case "idempotency_key":
			a.Key = r.Str()
		case "type":
			a.Type = job.TypeOf(r.Raw())
		case "payload":
			a.Payload = r.Bin()
		case "timeout":
			a.Timeout = job.Duration(r.Int())
		case "delivery":
			a.Delivery = r.Str()
		case "traceparent":
			a.Traceparent = r.Str()
		case "claimed_at":
			a.ClaimedAt = job.Instant(r.Int())
		case "secrets":
			a.Secrets = list(r, (*pack.Reader).Str)
		case "hosts":
			a.Hosts = list(r, (*pack.Reader).Str)
		default:
			r.Bad = true
		}
	})
	return a
}

func readRun(r *pack.Reader) (k job.RunKey) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "job_id":
			k.Job = job.ID(r.Uint())
		case "scheduled_at_ms":
			k.At = r.Int()
		case "origin":
			n := r.Uint()
			r.Bad = r.Bad || n > 255
			k.Origin = job.Origin(n)
		default:
			r.Bad = true
		}
	})
	return k
}

func readReport(r *pack.Reader) (m job.Report) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "session":
			m.Session = readSessionRef(r)
		case "results":
			m.Results = list(r, readResult)
		default:
			r.Bad = true
		}
	})
	return m
}

func readSessionRef(r *pack.Reader) (s job.SessionRef) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "worker":
			s.Worker = r.Str()
		case "incarnation":
			s.Incarnation = r.Uint()
		case "group":
			n := r.Uint()
			s.Group, r.Bad = uint32(n), r.Bad || n>>32 != 0
		case "term":
			s.Term = r.Uint()
		case "registration":
			s.Registration = r.Uint()
		case "secret":
			s.Secret = r.Str()
		default:
			r.Bad = true
		}
	})
	return s
}

func readResult(r *pack.Reader) (v job.Result) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "run":
			v.Run = readRun(r)
		case "fence":
			v.Fence = r.Uint()
		case "outcome":
			n := r.Uint()
			r.Bad = r.Bad || n > 255
			v.Outcome = job.Outcome(n)
		case "permanent":
			v.Permanent = r.Bool()
		case "timed_out":
			v.TimedOut = r.Bool()
		case "egress_denied":
			v.EgressDenied = r.Bool()
		case "retry_after":
			v.RetryAfter = job.Duration(r.Int())
		case "error":
			v.Error = r.Str()
		case "output":
			v.Output = r.Str()
		case "started_at":
			v.StartedAt = job.Instant(r.Int())
		case "finished_at":
			v.FinishedAt = job.Instant(r.Int())
		default:
			r.Bad = true
		}
	})
	return v
}

func readReportReply(r *pack.Reader) (m job.ReportReply) {
	r.Fields(func(key []byte) {
		if string(key) != "acks" {
			r.Bad = true
			return
		}
		m.Acks = list(r, func(r *pack.Reader) (a job.Ack) {
			r.Fields(func(key []byte) {
				switch string(key) {
				case "fence":
					a.Fence = r.Uint()
				case "stale":
					a.Stale = r.Bool()
				default:
					r.Bad = true
				}
			})
			return a
		})
	})
	return m
}
