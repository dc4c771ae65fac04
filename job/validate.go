package job

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits of a job. They keep a Raft entry far below the size at which it would endanger leadership.
const (
	MaxPayload  = 128 << 10
	MaxName     = 200
	MaxTags     = 64
	MaxTagBytes = 256
	// MaxCalendars is how many calendars a job may name.
	MaxCalendars = 16
	// MaxWaiting is how many runs of one job may wait behind an open one under overlap "queue".
	MaxWaiting = 100
	// MaxBackfill is how many runs one backfill may make.
	MaxBackfill = 1000

	maxDuration = Duration(10 * 365 * 24 * time.Hour)
)

// The defaults of a job.
const (
	DefaultRetries   = 3
	DefaultBase      = Duration(time.Second)
	DefaultCap       = Duration(5 * time.Minute)
	DefaultJitter    = 0.2
	DefaultTimeout   = Duration(5 * time.Minute)
	DefaultGrace     = Duration(time.Minute)
	DefaultMissedMax = 10
	DefaultRetention = Duration(24 * time.Hour)
)

// Normalize fills in the defaults, so that what is stored and shown says everything. It is idempotent.
func (s *Spec) Normalize() {
	s.Name = strings.TrimSpace(s.Name)
	if s.Schedule = strings.TrimSpace(s.Schedule); strings.EqualFold(s.Schedule, ScheduleManual) {
		s.Schedule = ScheduleManual
	}
	def := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	defd := func(p *Duration, v Duration) {
		if *p == 0 {
			*p = v
		}
	}
	if s.Timezone == "" && !namesZone(s.Schedule) {
		s.Timezone = "UTC"
	}
	s.Notify = s.Notify.normalize()
	s.Payload = spellRefs(s.Payload)
	def(&s.Namespace, DefaultNamespace)
	def(&s.Overlap, OverlapSkip)
	def(&s.Delivery, DeliverAtLeastOnce)
	def(&s.Priority, "normal")
	def(&s.DSTGap, "run_after")
	def(&s.Missed.Policy, MissedRunOnce)
	def(&s.Missed.Window, WindowAuto)
	if s.Missed.Max == 0 {
		s.Missed.Max = DefaultMissedMax
	}
	defd(&s.Missed.Grace, DefaultGrace)
	defd(&s.Timeout, DefaultTimeout)
	defd(&s.Retention, DefaultRetention)
	s.Retry.normalize(s.Delivery)
	def(&s.Retry.Backoff, BackoffExponential)
	defd(&s.Retry.Base, DefaultBase)
	defd(&s.Retry.Cap, max(DefaultCap, s.Retry.Base))
}

func (r *Retry) normalize(delivery string) {
	if r.MaxRetries != nil && r.Jitter != nil {
		return
	}
	var own struct { // most jobs take both defaults: they are allocated together
		n int
		j float64
	}
	if own.n, own.j = DefaultRetries, DefaultJitter; delivery == DeliverAtMostOnce {
		own.n = 0
	}
	if r.MaxRetries == nil {
		r.MaxRetries = &own.n
	}
	if r.Jitter == nil {
		r.Jitter = &own.j
	}
}

// namesZone says whether an expression names its zone itself.
func namesZone(schedule string) bool {
	// Most are cron expressions, and nothing in those looks like it.
	return strings.ContainsAny(schedule, "=:") && zoneInSchedule.MatchString(schedule)
}

// Validate checks a normalized spec, except for its schedule expression and zone, which package schedule reads.
func (s *Spec) Validate() error {
	for _, check := range []func(*Spec) *Error{checkName, checkSpace, checkZone, checkPolicies, checkDurations,
		checkBounds, checkLabels, checkNotify, checkPayload, checkKey} {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

func checkName(s *Spec) *Error {
	switch {
	case s.Name == "":
		return nil
	case strings.HasPrefix(s.Name, idPrefix) || strings.HasPrefix(s.Name, runPrefix):
		return Invalid("name", "choose another beginning",
			"a name may not begin with %q or %q: ids begin with them", idPrefix, runPrefix)
	}
	return checkAlphabet(s.Name)
}

// CheckCalendarName refuses what is not a name of a calendar: these have the alphabet of the names of jobs.
func CheckCalendarName(name string) error {
	if name == "" {
		return Invalid("name", "give it a name", "the calendar has no name")
	}
	if err := checkAlphabet(name); err != nil {
		return err
	}
	return nil
}

func checkAlphabet(name string) *Error {
	if len(name) > MaxName {
		return Invalid("name", "shorten it", "the name has %d bytes, at most %d are allowed", len(name), MaxName)
	}
	if dots(name) {
		return Invalid("name", "add a letter or a digit",
			"%q means a directory in a path, so no request could name it", name)
	}
	if plainName([]byte(name)) {
		return nil
	}
	if !utf8.ValidString(name) {
		return Invalid("name", "use letters, digits, - _ . @ +", "the name %q is not UTF-8", name)
	}
	for _, r := range name {
		if !unicode.IsGraphic(r) || unicode.IsSpace(r) || strings.ContainsRune(`/\?#%:"`, r) {
			return Invalid("name", "use letters, digits, - _ . @ +", "the name %q contains %q", name, r)
		}
	}
	return nil
}

// maxWindow bounds how a window is written: zeros around a number change nothing, and may be any number. A job would
// take the room of others in an entry of the log.
const maxWindow = 64

// checkZone refuses a zone before what has none. By its beginning is decided what a schedule is (OneOff, Manual), and
// with such a zone that would be a schedule that recurs.
func checkZone(s *Spec) *Error {
	text, ok := strings.CutPrefix(s.Schedule, "CRON_TZ=")
	if !ok {
		if text, ok = strings.CutPrefix(s.Schedule, "TZ="); !ok {
			return nil
		}
	}
	zone := strings.IndexFunc(text, unicode.IsSpace)
	bare := Spec{Schedule: strings.TrimSpace(text[max(0, zone):])}
	switch {
	case bare.OneOff():
		return Invalid("schedule", "leave out the zone before "+bare.Schedule, "an instant says its offset itself")
	case strings.EqualFold(bare.Schedule, ScheduleManual):
		return Invalid("schedule", "leave out the zone before "+bare.Schedule, "a job without a schedule has no zone")
	}
	return nil
}

func checkSpace(s *Spec) *Error { return checkNamespace(s.Namespace) }

// dots says that a name is one that paths take for a directory.
func dots(s string) bool { return s == "." || s == ".." }

func oneOf(field, value string, allowed ...string) *Error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return Invalid(field, "use "+strings.Join(allowed, ", "), "%q is not allowed%s", value, Suggest(value, allowed))
}

func checkPolicies(s *Spec) *Error {
	checks := []*Error{
		checkType(s),
		oneOf("overlap", s.Overlap, OverlapSkip, OverlapQueue, OverlapAllow, OverlapReplace),
		oneOf("delivery", s.Delivery, DeliverAtLeastOnce, DeliverAtMostOnce),
		oneOf("priority", s.Priority, laneNames[:]...),
		oneOf("missed.policy", s.Missed.Policy, MissedSkip, MissedRunOnce, MissedRunAll),
		oneOf("retry.backoff", s.Retry.Backoff, BackoffImmediate, BackoffLinear, BackoffExponential),
		oneOf("dst_gap", s.DSTGap, "run_after", "skip"),
		oneOf("dst_overlap", s.DSTOverlap, "", "first", "both"),
	}
	for _, err := range checks {
		if err != nil {
			return err
		}
	}
	if s.Schedule == "" {
		return Invalid("schedule", `use a cron expression, "@every 90s", an RRULE, an RFC 3339 time or "@manual"`,
			"a job needs a schedule")
	}
	if s.Delivery == DeliverAtMostOnce && s.Retry.Limit() != 0 {
		return Invalid("retry.max_retries", "set it to 0, or use delivery at_least_once",
			"delivery at_most_once never repeats a run")
	}
	return nil
}

func checkDurations(s *Spec) *Error {
	for _, d := range []struct {
		field string
		value Duration
	}{
		{"timeout", s.Timeout}, {"deadline", s.Deadline}, {"jitter", s.Jitter}, {"retention", s.Retention},
		{"missed.grace", s.Missed.Grace}, {"retry.base", s.Retry.Base}, {"retry.cap", s.Retry.Cap},
	} {
		if d.value < 0 {
			return Invalid(d.field, `use a positive duration such as "90s"`, "%s is negative", d.value)
		}
		if d.value > maxDuration {
			return Invalid(d.field, "use at most ten years", "%s is too long", d.value)
		}
	}
	if s.Retry.Cap < s.Retry.Base {
		return Invalid("retry.cap", "make it at least retry.base", "the cap %s is below the base %s", s.Retry.Cap,
			s.Retry.Base)
	}
	if len(s.Missed.Window) > maxWindow {
		return Invalid("missed.window", `use "auto" or a positive duration such as "2h"`, "%d bytes are not a window",
			len(s.Missed.Window))
	}
	if s.Missed.Window != WindowAuto {
		w, err := time.ParseDuration(s.Missed.Window)
		if err != nil || w <= 0 || Duration(w) > maxDuration {
			return Invalid("missed.window", `use "auto" or a positive duration such as "2h"`, "%q is not a window",
				s.Missed.Window)
		}
	}
	return nil
}

func checkBounds(s *Spec) *Error {
	for _, b := range []struct {
		field      string
		value, max int
	}{
		{"retry.max_retries", s.Retry.Limit(), 1000}, {"missed.max", s.Missed.Max, 10000},
		{"concurrency", s.Concurrency, 10000}, {"max_runs", s.MaxRuns, 1 << 30},
	} {
		if b.value < 0 || b.value > b.max {
			return Invalid(b.field, "", "%d is not between 0 and %d", b.value, b.max)
		}
	}
	if j := s.Retry.Jitter; j != nil && !(*j >= 0 && *j <= 1) {
		return Invalid("retry.jitter", "use a fraction such as 0.2", "%v is not between 0 and 1", *j)
	}
	if s.Concurrency > 1 && s.Overlap != OverlapAllow {
		return Invalid("concurrency", "set overlap to allow, or leave concurrency out",
			"overlap %s already means one run at a time", s.Overlap)
	}
	if s.StartAt != 0 && s.EndAt != 0 && s.EndAt < s.StartAt {
		return Invalid("end_at", "make it later than start_at", "the job would end (%s) before it starts (%s)", s.EndAt,
			s.StartAt)
	}
	return nil
}

func checkLabels(s *Spec) *Error {
	for _, labels := range []struct {
		field string
		m     map[string]string
	}{{"tags", s.Tags}, {"workers", s.Workers}} {
		if len(labels.m) == 0 {
			continue
		}
		if len(labels.m) > MaxTags {
			return Invalid(labels.field, "", "%d entries, at most %d are allowed", len(labels.m), MaxTags)
		}
		for _, k := range slices.Sorted(maps.Keys(labels.m)) {
			v := labels.m[k]
			if k == "" || len(k)+len(v) > MaxTagBytes || strings.ContainsAny(k, "=,\x00\x01") ||
				strings.ContainsAny(v, ",\x00") {
				return Invalid(labels.field, "use short keys without = or comma", "%q: %q is not a valid entry", k, v)
			}
		}
	}
	if len(s.Calendars) > MaxCalendars {
		return Invalid("calendars", "", "%d calendars, at most %d are allowed", len(s.Calendars), MaxCalendars)
	}
	for _, c := range s.Calendars {
		if c == "" {
			return Invalid("calendars", "", "a calendar needs a name")
		}
	}
	return nil
}

var (
	// zoneInSchedule finds an expression that names its zone itself, as RRULE and some crontabs do.
	zoneInSchedule = regexp.MustCompile(`(?i)(^\s*(CRON_)?TZ=|;TZID=|DTSTART:\d{8}T\d{6}Z)`)

	envRE   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	queueRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
)

func checkPayload(s *Spec) *Error {
	if len(s.Payload) > MaxPayload {
		return Invalid("payload", "keep the data elsewhere and send a reference",
			"the payload has %d bytes, at most %d are allowed", len(s.Payload), MaxPayload)
	}
	if len(s.Payload) == 0 {
		return Invalid("payload", "", "a job needs a payload")
	}
	if err := checkSecrets(s); err != nil { // checkPolicies found the type
		return err
	}
	return kindOf(s.Type).Check(s.Payload)
}

func decodePayload(data []byte, v any) *Error {
	if err := decodeStrict(data, v, "payload"); err != nil {
		return err.(*Error)
	}
	return nil
}

// CheckHTTP checks the payload of an http job.
func CheckHTTP(data []byte) *Error {
	if plainHTTP(data) {
		return nil
	}
	return checkHTTP(data)
}

func checkHTTP(data []byte) *Error {
	var p HTTPPayload
	if err := decodePayload(data, &p); err != nil {
		return err
	}
	const remedy = "use a full URL such as https://example.com/hook"
	if p.URL == "" {
		return Invalid("payload.url", remedy, "the URL is missing")
	}
	u, err := url.Parse(p.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return Invalid("payload.url", remedy, "%q is not an http or https URL", p.URL)
	}
	if p.Method != "" && !isMethod([]byte(p.Method)) {
		return Invalid("payload.method", "use GET, POST, PUT, …", "%q is not an HTTP method", p.Method)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		if reservedHeader([]byte(name), httpHeaders) {
			return Invalid("payload.headers", "remove it", "the header %s is set by Carillon",
				http.CanonicalHeaderKey(name))
		}
		if !isToken([]byte(name)) || strings.ContainsAny(p.Headers[name], "\r\n\x00") {
			return Invalid("payload.headers", "", "%q: %q is not a valid header", name, p.Headers[name])
		}
	}
	return nil
}

// CheckQueue checks the payload of a queue job.
func CheckQueue(data []byte) *Error {
	if plainQueue(data) {
		return nil
	}
	var p QueuePayload
	if err := decodePayload(data, &p); err != nil {
		return err
	}
	if !QueueName(p.Queue) {
		return Invalid("payload.queue", "use letters, digits, - _ .", "%q is not a queue name", p.Queue)
	}
	return nil
}

// Class is the text of the job's class.
func (s *Spec) Class() string {
	c := Class{Namespace: s.Namespace, Type: s.Type, Selector: s.Workers, Secrets: s.SecretRefs()}
	if s.Type == TypeQueue {
		// Not strictly: a replica that runs an older binary must find the same class in a payload with a field that it
		// does not know.
		var p struct {
			Queue string `json:"queue"`
		}
		if json.Unmarshal(s.Payload, &p) == nil {
			c.Queue = p.Queue
		}
	}
	return c.String()
}
