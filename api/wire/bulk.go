package wire

import (
	"strconv"

	"github.com/carillon-scheduler/carillon/internal/jsontext"
)

// AppendResult writes a line's answer, for most of them without reflection.
func AppendResult(b []byte, r *BulkResult) ([]byte, error) {
	if r.Error != nil || !jsontext.Plain(r.Name) || !jsontext.Plain(r.Status) {
		return AppendJSON(b, r)
	}
	b = strconv.AppendInt(append(b, `{"line":`...), int64(r.Line), 10)
	b = append(append(b, `,"status":"`...), r.Status...)
	if r.JobID != nil {
		b = append(append(b, `","job_id":"`...), r.JobID.String()...)
	}
	if r.Name != "" {
		b = append(append(b, `","name":"`...), r.Name...)
	}
	return append(b, "\"}\n"...), nil
}

// AppendJSON writes a line of JSON without the escapes that only HTML needs.
func AppendJSON(b []byte, v any) ([]byte, error) {
	text, err := jsontext.Marshal(v)
	return append(append(b, text...), '\n'), err
}
