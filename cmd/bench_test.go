package cmd

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
	"github.com/carillon-scheduler/carillon/client"
	"github.com/carillon-scheduler/carillon/cmd/exit"
)

// forgetful is a cluster that acknowledges jobs and does not have them.
type forgetful struct{ api.Backend }

func (f forgetful) Status(ctx context.Context, r api.Read) (client.Status, error) {
	s, err := f.Backend.Status(ctx, r)
	s.Jobs = 7
	return s, err
}

// How fast a cluster was that lost something is not said, in neither form, and the command fails.
func TestBenchWithoutFigures(t *testing.T) {
	submit := func(s *shell, addr string, more ...string) (string, string, int) {
		return s.run("", append([]string{"bench", "submit", "--addr", addr, "--clients", "2", "--duration", "50ms"},
			more...)...)
	}
	wrong := func(more ...string) (string, string, int) {
		s := newShell(t)
		srv := httptest.NewServer(api.New(forgetful{s.node().Backend}, api.Options{}))
		defer srv.Close()
		return submit(s, srv.Listener.Addr().String(), more...)
	}
	out, errOut, code := wrong()
	if code != exit.Failure || !strings.Contains(errOut, "the work was wrong") || !strings.Contains(out, "problem ") ||
		!strings.Contains(out, "creates were acknowledged") || !strings.Contains(out, "lost, repeated") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
	for _, figure := range []string{"rate", "/s", "latency", "lag", " s\n", "CPU"} {
		if strings.Contains(out, figure) {
			t.Errorf("%q is in\n%s", figure, out)
		}
	}
	out, _, code = wrong("--json")
	var r map[string]any
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exit.Failure {
		t.Fatalf("exit %d, %v\n%s", code, err, out)
	}
	if problems, ok := r["problems"].([]any); !ok || len(problems) == 0 || r["lost"] == 0.0 || r["created"] == 0.0 {
		t.Error(out)
	}
	for _, figure := range []string{"per_second", "seconds", "latency_ms", "lag_ms"} {
		if _, there := r[figure]; there {
			t.Errorf("%s is in\n%s", figure, out)
		}
	}
	// The same of a cluster that has them.
	s := newShell(t)
	out, errOut, code = submit(s, s.addr)
	if code != 0 || errOut != "" || !strings.Contains(out, "rate ") || !strings.Contains(out, "latency ") ||
		strings.Contains(out, "problem") {
		t.Errorf("exit %d\n%s%s", code, out, errOut)
	}
}

// What makes no sense is refused before anything is started, with the flag that is meant.
func TestBenchFlags(t *testing.T) {
	s := newShell(t)
	for _, c := range []struct{ args, says string }{
		{"hot --jobs -1", "--jobs"},
		{"hot --idle -1", "--idle"},
		{"hot --target smoke", "use noop, queue or http"},
		{"hot --workers -1", "--workers"},
		{"hot --slots -1", "--slots"},
		{"hot --slots 0", "--slots"},
		{"hot --jobs 0", "--jobs"},
		{"steady --rate -1", "--rate"},
		{"steady --rate 0", "--rate"},
		{"lag --nodes 0", "--nodes"},
		{"lag --nodes 8", "--nodes"},
		{"lag --groups 0", "--groups"},
		{"lag --groups 65", "--groups"},
		{"lag --groups 2 --addr 127.0.0.1:1", "--groups"},
		{"lag --duration 0s", "--duration"},
		{"lag --duration=-1s", "--duration"},
		{"lag --workers 0", "--workers"},
		{"submit --clients -1", "--clients"},
		{"submit --clients 0", "--clients"},
		{"submit --bulk -1", "--bulk"},
		{"failover --kills -1", "--kills"},
		{"failover --kills 0", "--kills"},
		{"failover --nodes 1", "--nodes"},
		{"load --jobs x", "--jobs"},
		{"growth --sizes 5,x", "--sizes"},
		{"growth --sizes=", "--sizes"},
		{"growth --sizes 0", "--sizes"},
		{"growth --sizes 300000,200000", "--sizes"},
		{"growth --plot", "--plot"},
		{"hot --node-flag", "--node-flag"},
		{"hot --data-dir", "--data-dir"},
		{"hot extra", "extra"},
	} {
		if out, errOut, code := s.run("", append([]string{"bench"}, strings.Fields(c.args)...)...); code != exit.Usage ||
			out != "" || !strings.Contains(errOut, c.says) {
			t.Errorf("%s: exit %d\n%s%s", c.args, code, out, errOut)
		}
	}
}
