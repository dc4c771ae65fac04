package wire

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/carillon-scheduler/carillon/internal/jsontext"
)

// AppendResult writes a line's answer, for most of them without reflection.
func AppendResult(b []byte, r *BulkResult) ([]byte, error) {
	if r.Error != nil || !jsontext.Plain(r.Name) || !jsontext.Plain(r.Status) {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		err := enc.Encode(r)
		return append(b, buf.Bytes()...), err
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
