package proof

import (
	"flag"
	"os"
	"runtime"
	"strconv"
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
	if args := os.Getenv(attackEnv); args != "" {
		os.Exit(attackMain(args))
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given && !harness.Long() {
		// These tests wait more than they work: for elections, leases, seconds to come. One uses a sixth of a core.
		if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)+4)); err != nil {
			panic(err)
		}
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

// scenario marks a heavy test that the plain run leaves out: other tests have what it is about in small.
func scenario(t *testing.T) {
	t.Helper()
	heavy(t)
	if !harness.Long() {
		t.Skip("a long scenario; set CARILLON_LONG=1")
	}
}

// beside marks a heavy test that runs beside others, unless its load is that of the long variant.
func beside(t *testing.T) {
	t.Helper()
	heavy(t)
	if !harness.Long() {
		t.Parallel()
	}
}
