package job

import "time"

// DecodeSpec reads a job as its owner writes it. It is DecodeStrict of a Spec, and for what most jobs look like much faster.
func DecodeSpec(data []byte) (Spec, error) {
	if s, ok := readSpec(data); ok {
		return s, nil
	}
	var s Spec
	err := DecodeStrict(data, &s)
	return s, err
}

// readSpec reads a job that looks like most. What it reads, DecodeStrict would read as the same.
func readSpec(data []byte) (s Spec, ok bool) {
	t := text{b: data}
	t.fields(func(key []byte) int {
		switch string(key) {
		case "name":
			s.Name = string(t.str())
			return 0
		case "type":
			s.Type = Type(t.known())
			return 1
		case "schedule":
			s.Schedule = string(t.str())
			return 2
		case "timezone":
			s.Timezone = t.known()
			return 3
		case "payload":
			s.Payload = t.copied()
			return 4
		case "retry":
			t.retry(&s.Retry)
			return 5
		case "timeout":
			s.Timeout = t.duration()
			return 6
		case "deadline":
			s.Deadline = t.duration()
			return 7
		case "missed":
			t.missed(&s.Missed)
			return 8
		case "overlap":
			s.Overlap = t.known()
			return 9
		case "delivery":
			s.Delivery = t.known()
			return 10
		case "priority":
			s.Priority = t.known()
			return 11
		case "concurrency":
			s.Concurrency = t.int()
			return 12
		case "jitter":
			s.Jitter = t.duration()
			return 13
		case "start_at":
			s.StartAt = t.instant()
			return 14
		case "end_at":
			s.EndAt = t.instant()
			return 15
		case "max_runs":
			s.MaxRuns = t.int()
			return 16
		case "calendars":
			s.Calendars = []string{}
			t.list(func() { s.Calendars = append(s.Calendars, string(t.str())) })
			return 17
		case "tags":
			s.Tags = t.strs()
			return 18
		case "workers":
			s.Workers = t.strs()
			return 19
		case "idempotency_key":
			s.IdempotencyKey = string(t.str())
			return 20
		case "retention":
			s.Retention = t.duration()
			return 21
		case "dst_gap":
			s.DSTGap = t.known()
			return 22
		case "dst_overlap":
			s.DSTOverlap = t.known()
			return 23
		}
		return t.unknown() // notify as well: few jobs have it
	})
	return s, t.ended()
}

func (t *text) retry(r *Retry) {
	t.fields(func(key []byte) int {
		switch string(key) {
		case "max_retries":
			n := t.int()
			r.MaxRetries = &n
			return 0
		case "backoff":
			r.Backoff = t.known()
			return 1
		case "base":
			r.Base = t.duration()
			return 2
		case "cap":
			r.Cap = t.duration()
			return 3
		case "jitter":
			f := t.float()
			r.Jitter = &f
			return 4
		}
		return t.unknown()
	})
}

func (t *text) missed(m *Missed) {
	t.fields(func(key []byte) int {
		switch string(key) {
		case "policy":
			m.Policy = t.known()
			return 0
		case "window":
			m.Window = t.known()
			return 1
		case "max":
			m.Max = t.int()
			return 2
		case "grace":
			m.Grace = t.duration()
			return 3
		}
		return t.unknown()
	})
}

// copied is any value, in memory of its own.
func (t *text) copied() []byte { return append([]byte{}, t.raw()...) }

func (t *text) strs() map[string]string {
	m := map[string]string{}
	t.fields(func(key []byte) int {
		m[string(key)] = string(t.str())
		return -1
	})
	return m
}

func (t *text) duration() Duration {
	d, err := time.ParseDuration(string(t.str()))
	t.bad = t.bad || err != nil
	return Duration(d)
}

func (t *text) instant() (i Instant) {
	if raw := t.raw(); t.bad || i.UnmarshalJSON(raw) != nil {
		t.bad = true
	}
	return i
}

// known reads a string that is the same in most jobs: it then takes no memory.
func (t *text) known() string {
	s := t.str()
	switch string(s) {
	case "http":
		return "http"
	case "shell":
		return "shell"
	case "message":
		return "message"
	case "queue":
		return "queue"
	case "UTC":
		return "UTC"
	case "skip":
		return "skip"
	case "allow":
		return "allow"
	case "replace":
		return "replace"
	case "run_once":
		return "run_once"
	case "run_all":
		return "run_all"
	case "auto":
		return "auto"
	case "exponential":
		return "exponential"
	case "linear":
		return "linear"
	case "high":
		return "high"
	case "low":
		return "low"
	}
	return string(s)
}
