package proof

import (
	"bytes"
	"testing"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

// With heartbeat timeouts of six seconds a leader that is killed is missed after six to eighteen. Its port refuses
// connections at once, and the next one stands for election because of that.
func TestKilledLeaderIsSucceededAtOnce(t *testing.T) {
	beside(t)
	cl := harness.NewCluster(t, harness.Build(t), 3, "--raft-multiplier", "10")
	for range 3 {
		leader := cl.Leader()
		leader.Kill("leading")
		next := cl.Leader()
		if !bytes.Contains(next.Log(), []byte("leader gone: standing for election")) {
			t.Errorf("%s leads after %s, and not because that was gone", next.ID, leader.ID)
		}
		leader.Start()
		if err := leader.AwaitReady(); err != nil {
			t.Fatal(err)
		}
	}
	cl.StopAndCheck()
}
