package exit

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
)

// A token that was put where something else belongs is not printed.
func TestTokensAreNotSaid(t *testing.T) {
	var b strings.Builder
	Text(Masked(&b), job.Invalid("token-file", "name a file", "open ct1.abcdefgh.ijkl-mno.pqr_st: no such file"), "")
	if got := b.String(); !strings.Contains(got, "open ct1.…: no such file") {
		t.Error(got)
	}
}
