package proof

import (
	"bytes"
	"os"
	"testing"

	"github.com/carillon-scheduler/carillon/internal/faultpoint/mutant"
	"github.com/carillon-scheduler/carillon/proof/harness"
)

// TestTheBinaryHasNoMutants: the faults that tests can plant are not even compiled into what people run.
func TestTheBinaryHasNoMutants(t *testing.T) {
	if mutant.Built {
		t.Skip("this is a build with mutants")
	}
	data, err := os.ReadFile(harness.Build(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte("CARILLON_ADDR")) {
		t.Error("not even what must be in the binary was found in it")
	}
	for _, sign := range []string{"CARILLON_MUTANT", "internal/faultpoint/mutant", "dispatchEarly", "skip-fence",
		"CARILLON_CRASH", "home-reserved"} {
		if bytes.Contains(data, []byte(sign)) {
			t.Errorf("the binary contains %q", sign)
		}
	}
}
