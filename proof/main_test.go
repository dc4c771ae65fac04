package proof

import (
	"os"
	"testing"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(pullEnv); args != "" {
		os.Exit(pullMain(args))
	}
	if args := os.Getenv(crewEnv); args != "" {
		os.Exit(crewMain(args))
	}
	os.Exit(harness.Main(m))
}

// heavy marks a test that starts processes.
func heavy(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts the real binary; left out with -short")
	}
}
