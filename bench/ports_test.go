package bench_test

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/bench"
)

// A port that another process took before the node could is no reason to give up; one that stays taken is.
func TestPortThatIsTaken(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes; left out with -short")
	}
	t.Setenv(asCarillon, "1")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	go func() {
		for {
			c, err := taken.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ lost, asked int }{{1, 2}, {100, 6}} {
		asked := 0
		restore := bench.FreeAddr(func() (string, error) {
			if asked++; asked <= tt.lost {
				return taken.Addr().String(), nil
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return "", err
			}
			defer ln.Close()
			return ln.Addr().String(), nil
		})
		c, err := bench.StartCluster(t.Context(), self, t.TempDir(), 1, 1, false)
		restore()
		if err == nil {
			c.Stop()
		}
		if (err == nil) != (tt.lost < 6) || err != nil && !strings.Contains(err.Error(), "address already in use") || asked < tt.asked {
			t.Errorf("after %d of %d: %v", asked, tt.lost, err)
		}
	}
}
