package security

import (
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/node/datadir"
)

// A member that lost its disk after its operator deleted the keys, as the documents ask for, must not be sent to make
// keys of another cluster only.
func TestLostDirectoryIsToldToJoin(t *testing.T) {
	_, err := Open(Options{Config: Config{On: true}, Forms: true,
		Dir: &datadir.Dir{Path: t.TempDir(), Identity: datadir.Identity{NodeID: "n3"}, Fresh: true}})
	e, ok := err.(*job.Error)
	if !ok || e.Field != "--keys-from" {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"carillon cluster init", "carillon cluster remove n3", "--token-file", "--insecure"} {
		if !strings.Contains(e.Remedy, want) {
			t.Errorf("%q does not say %q", e.Remedy, want)
		}
	}
}
