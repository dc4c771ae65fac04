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
	if n > job.MaxItems && int64(n)*int64(unsafe.Sizeof(one)) > expand.Most(len(r.B)) {
		r.Bad = true // elements without their fields; as many as a message may have are no harm
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
		case "session":
			m.Session = r.Str()
		case "opened":
			m.Opened = r.Bool()
		case "lease":
			m.Lease = job.Duration(r.Int())
		case "waited":
			m.Waited = job.Duration(r.Int())
		case "runs":
			m.Runs = list(r, readAssignment)
		case "stop":
			m.Stop = list(r, readStop)
		case "watch":
			m.Watch = list(r, func(r *pack.Reader) (ref job.Ref) {
				r.Fields(func(key []byte) { readRef(r, key, &ref) })
				return ref
			})
		case "ready":
			m.Ready = int(r.Int())
		default:
			r.Skip()
		}
	})
	return m
}

// readRef reads a field of a Ref, which stands among those of what has it.
func readRef(r *pack.Reader, key []byte, to *job.Ref) {
	switch string(key) {
	case "claim":
		to.Claim = r.Str()
	case "fence":
		to.Fence = r.Uint()
	default:
		r.Skip()
	}
}

func readStop(r *pack.Reader) (s job.Stop) {
	r.Fields(func(key []byte) {
		if string(key) == "why" {
			s.Why = r.Str()
			return
		}
		readRef(r, key, &s.Ref)
	})
	return s
}

func readAssignment(r *pack.Reader) (a job.Assignment) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "fence":
			a.Fence = r.Uint()
		case "run":
			a.Run = readRun(r)
		case "job_name":
			a.JobName = r.Str()
		case "namespace":
			a.Namespace = r.Str()
		case "attempt":
			a.Attempt = int(r.Int())
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
			r.Skip()
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
			r.Skip()
		}
	})
	return k
}

func readReport(r *pack.Reader) (m job.Report) {
	r.Fields(func(key []byte) {
		switch string(key) {
		case "session":
			m.Session = r.Str()
		case "results":
			m.Results = list(r, readResult)
		default:
			r.Skip()
		}
	})
	return m
}

func readResult(r *pack.Reader) (v job.Result) {
	r.Fields(func(key []byte) {
		switch string(key) {
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
			readRef(r, key, &v.Ref)
		}
	})
	return v
}

func readReportReply(r *pack.Reader) (m job.ReportReply) {
	r.Fields(func(key []byte) {
		if string(key) != "results" {
			r.Skip()
			return
		}
		m.Results = list(r, func(r *pack.Reader) (a job.Answer) {
			r.Fields(func(key []byte) {
				switch string(key) {
				case "status":
					a.Status = r.Str()
				case "why":
					a.Why = r.Str()
				case "repeated":
					a.Repeated = r.Bool()
				default:
					readRef(r, key, &a.Ref)
				}
			})
			return a
		})
	})
	return m
}
