package insight

import (
	"testing"
	"testing/synctest"
	"time"
)

// Time alone does not end a look that has hardly begun, and a fair number alone does not either.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := patient(100)
		if p.over(1000) {
			t.Error("no time has passed")
		}
		time.Sleep(lookTime + 1)
		if p.over(99) || !p.over(100) {
			t.Error("the number does not count")
		}
	})
}
