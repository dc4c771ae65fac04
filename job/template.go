package job

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// keyFields are the placeholders of an idempotency key template.
var keyFields = []string{"job_id", "job_name", "scheduled_at", "scheduled_at_unix", "scheduled_at_unix_ms", "origin",
	"run_id"}

// DefaultKeyTemplate gives scheduled runs their idempotency key.
const DefaultKeyTemplate = "{job_id}:{scheduled_at_unix}"

// The bounds of a template and of the keys that it makes: a key travels as a header and sits in every open run of its
// job.
const (
	maxTemplateBytes = 256
	maxKeyBytes      = 512
)

// IdempotencyKey is the key of a run: the same for every attempt of it, and of no other run. A run that was not made
// by the schedule carries its origin and its milliseconds, because two manual runs may fall into one second. So may two
// occurrences when an edit moves the schedule off the whole second: scheduled times carry milliseconds where there are
// any.
func IdempotencyKey(template, name string, k RunKey) string {
	if template == "" {
		return defaultKey(k)
	}
	at, layout := time.UnixMilli(k.At).UTC(), time.RFC3339
	if fraction(k) > 0 {
		layout = "2006-01-02T15:04:05.000Z07:00"
	}
	key := strings.NewReplacer(
		"{job_id}", k.Job.String(),
		"{job_name}", name,
		"{scheduled_at}", at.Format(layout),
		"{scheduled_at_unix}", string(appendUnix(nil, k)),
		"{scheduled_at_unix_ms}", strconv.FormatInt(k.At, 10),
		"{origin}", k.Origin.String(),
		"{run_id}", k.String(),
	).Replace(template)
	if k.Origin != OriginSchedule && !strings.Contains(template, "{run_id}") {
		key += ":" + k.Origin.String() + ":" + strconv.FormatInt(k.At, 10)
	}
	return key
}

// defaultKey is what DefaultKeyTemplate gives. Almost every run has it, so it costs no template.
func defaultKey(k RunKey) string {
	var room [80]byte
	b := append(room[:0], idPrefix...)
	b = strconv.AppendUint(b, uint64(k.Job), 32)
	b = append(b, ':')
	b = appendUnix(b, k)
	if k.Origin != OriginSchedule {
		b = append(append(append(b, ':'), k.Origin.String()...), ':')
		b = strconv.AppendInt(b, k.At, 10)
	}
	return string(b)
}

// fraction is how many milliseconds after the whole second an occurrence is. Runs of other origins have theirs at the
// end of the key.
func fraction(k RunKey) int64 {
	if k.Origin != OriginSchedule {
		return 0
	}
	return int64(time.UnixMilli(k.At).Nanosecond()) / int64(time.Millisecond)
}

// appendUnix writes a run's time in seconds since 1970, with three decimals if it is not on the whole second.
func appendUnix(b []byte, k RunKey) []byte {
	b = strconv.AppendInt(b, time.UnixMilli(k.At).Unix(), 10)
	if ms := fraction(k); ms > 0 {
		b = append(b, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10))
	}
	return b
}

const forcedMark = ":forced:"

// ForcedKey is the key of a forced backfill: it repeats what ran, so a target must not take it for that.
func ForcedKey(key string, now int64) string { return key + forcedMark + strconv.FormatInt(now, 10) }

// Forced says whether a run with this key is a forced backfill.
func Forced(k RunKey, key string) bool {
	i := strings.LastIndex(key, forcedMark)
	return k.Origin == OriginBackfill && i >= 0 && strings.Trim(key[i+len(forcedMark):], "0123456789") == ""
}

// checkKey refuses a template whose key would not tell two occurrences apart, or could not be sent.
func checkKey(s *Spec) *Error {
	const field = "idempotency_key"
	template := s.IdempotencyKey
	if template == "" {
		return nil
	}
	if len(template) > maxTemplateBytes {
		return Invalid(field, "shorten it", "the template has %d bytes, at most %d are allowed", len(template),
			maxTemplateBytes)
	}
	usesTime := false
	rest := template
	for {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			break
		}
		end := strings.IndexByte(rest[i:], '}')
		if rest[i] == '}' || end < 0 {
			return Invalid(field, "write placeholders as {"+strings.Join(keyFields, "}, {")+"}",
				"unbalanced braces in the template %q", template)
		}
		name := rest[i+1 : i+end]
		known := false
		for _, f := range keyFields {
			known = known || f == name
		}
		if !known {
			return Invalid(field, "use "+strings.Join(keyFields, ", "),
				"the template %q has the unknown placeholder {%s}%s", template, name, Suggest(name, keyFields))
		}
		usesTime = usesTime || strings.HasPrefix(name, "scheduled_at") || name == "run_id"
		if name == "job_name" && s.Name == "" {
			return Invalid(field, "give the job a name, or use {job_id}",
				"the template %q uses {job_name}, and the job has no name", template)
		}
		rest = rest[i+end+1:]
	}
	for i := 0; i < len(template); i++ {
		if template[i] < 0x20 || template[i] > 0x7e {
			return Invalid(field, "use printable ASCII", "the template %q cannot be sent as a header", template)
		}
	}
	if !usesTime {
		return Invalid(field, "add {scheduled_at_unix} or {run_id}",
			"with the template %q every occurrence would have the same key", template)
	}
	longest := 0
	for _, o := range []Origin{OriginSchedule, OriginBackfill} { // decimals of a second, or the origin at the end
		last := time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
		k := RunKey{Job: math.MaxUint64, At: last.UnixMilli(), Origin: o}
		longest = max(longest, len(IdempotencyKey(template, s.Name, k)))
	}
	if longest > maxKeyBytes {
		return Invalid(field, "use fewer placeholders, or a shorter name",
			"a key could be %d bytes long, at most %d are allowed", longest, maxKeyBytes)
	}
	return nil
}
