package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// An answer is the same whether it was written by hand or by package json.
func TestBulkAnswersAreJSON(t *testing.T) {
	id := job.ID(1 << 60)
	for _, r := range []BulkResult{
		{}, {Line: 1, Status: "created", JobID: &id, Name: "a"}, {Line: 1_000_000, Status: "exists", JobID: &id}, {Line: 2, Status: "created", Name: "größe"},
		{Line: 3, Status: "error", Name: `a"\` + "\n\x7f\xff", Error: job.Invalid("name", "shorten it", "too <long> & \"odd\"")}, {Line: -1, Status: "created", Name: "<&>"},
	} {
		var want strings.Builder
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(r); err != nil {
			t.Fatal(err)
		}
		if got, err := AppendResult([]byte("before "), &r); err != nil || string(got) != "before "+want.String() {
			t.Errorf("%q and not %q, %v", got, want.String(), err)
		}
	}
}
