package proof

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/proof/harness"
)

const module = "github.com/carillon-scheduler/carillon"

// layers has every package of the product, from top to bottom, as docs/architecture.md lists them: imports point down
// only. Packages on one line do not import each other.
var layers = [][]string{
	{"", "internal/manpages"}, // main.go, and what writes its manual
	{"cmd"}, {"cmd/applier"}, {"cmd/bencher", "cmd/compare", "cmd/complete", "cmd/contexts", "cmd/devcluster", "cmd/exit", "cmd/exporter", "cmd/habits", "cmd/importer", "cmd/jobflags", "cmd/notifyflags", "cmd/settings", "cmd/watch"}, {"cmd/output", "cmd/values"},
	{"web/e2e"}, // tests only
	{"bench", "bench/bare", "bench/speed", "api/apitest"},
	{"node"},
	{"node/router"},
	{"node/meters", "node/tracing"}, {"node/service"}, {"node/names"}, {"node/insight"}, {"node/view"}, {"node/disk"}, {"node/security"}, {"node/membership"}, {"node/scrub"}, {"node/forward"}, {"node/access"},
	{"node/formation", "node/propose", "node/standing", "node/vault"}, {"node/datadir"}, {"node/raftlog"},
	{"node/listen", "node/memberrows", "node/placement", "node/quorum", "node/raftslog"},
	{"api", "web"}, {"api/guard", "api/lines", "api/openapi"},
	{"notify"},
	{"scheduler"}, {"scheduler/decide", "scheduler/stamp"},
	{"executor/meters"}, {"executor"},
	{"fsm"}, {"fsm/ends", "fsm/snapshots"}, {"fsm/chain", "fsm/stream"}, {"store"},
	{"transport"}, {"client"}, {"api/wire"}, {"internal/crontab", "internal/dkron", "wheel"}, {"internal/daylight"}, {"schedule"},
	{"internal/enroll", "internal/login", "internal/otlp", "internal/statedir"}, {"internal/jobfile", "internal/keys", "internal/membudget", "internal/mergepatch", "internal/slowread", "internal/traceid", "internal/worker"},
	{"job"},
	{"internal/faultpoint", "internal/fieldgen"},
	{"internal/boltpages", "internal/dirlock", "internal/duplex", "internal/egress", "internal/elapsed", "internal/event", "internal/expand", "internal/faultpoint/crash", "internal/faultpoint/mutant",
		"internal/gc", "internal/jsontext", "internal/lineage", "internal/mask", "internal/metric", "internal/otlp/otlptest", "internal/pack", "internal/ratelimit", "internal/replica",
		"internal/sbom", "internal/sealer", "internal/slowread/slowreadtest", "internal/systemd", "internal/terminal", "internal/undumpable", "internal/verdict", "internal/wait"},
}

// only are packages that few others may import: the parts of something that has one way in. The list is exact: one that
// stopped importing is taken off, or it could begin again without anybody's deciding so.
var only = map[string][]string{
	"cmd":              {"", "internal/manpages"},
	"cmd/applier":      {"cmd"},
	"cmd/bencher":      {"cmd"},
	"cmd/compare":      {"cmd"},
	"cmd/complete":     {"cmd"},
	"cmd/contexts":     {"cmd"},
	"cmd/devcluster":   {"cmd"},
	"cmd/exit":         {"cmd", "cmd/applier"},
	"cmd/exporter":     {"cmd"},
	"cmd/habits":       {"cmd"},
	"cmd/importer":     {"cmd"},
	"cmd/jobflags":     {"cmd"},
	"cmd/notifyflags":  {"cmd"},
	"cmd/output":       {"cmd", "cmd/applier", "cmd/bencher", "cmd/contexts", "cmd/exit", "cmd/importer"},
	"cmd/settings":     {"cmd"},
	"cmd/values":       {"cmd", "cmd/jobflags", "cmd/notifyflags"},
	"cmd/watch":        {"cmd"},
	"bench":            {"cmd/bencher"},
	"node":             {"cmd", "api/apitest"},
	"node/service":     {"node"},
	"node/names":       {"node", "node/service"},
	"node/membership":  {"node", "node/meters", "node/service"},
	"node/formation":   {"node"},
	"node/forward":     {"node", "node/meters", "node/tracing", "node/service", "node/membership", "node/names", "node/scrub"},
	"node/access":      {"node"},
	"node/memberrows":  {"node/membership"},
	"node/quorum":      {"node/membership"},
	"node/placement":   {"node/service", "node/membership"},
	"node/scrub":       {"node", "node/membership", "node/service"},
	"node/standing":    {"node", "node/membership"},
	"node/vault":       {"node", "node/service"},
	"node/insight":     {"node/meters", "node/service"},
	"node/view":        {"node/service", "node/insight"},
	"node/raftlog":     {"node", "node/datadir"},
	"node/raftslog":    {"node"},
	"node/listen":      {"node", "node/meters"},
	"node/disk":        {"node", "node/meters", "node/service"},
	"node/propose":     {"node"},
	"node/security":    {"node"},
	"node/meters":      {"node"},
	"node/tracing":     {"node"},
	"scheduler":        {"node", "node/datadir", "node/meters", "node/service", "node/insight", "node/view", "node/forward", "node/propose", "notify"},
	"scheduler/decide": {"scheduler"},
	"scheduler/stamp":  {"node", "node/meters", "node/service", "node/membership", "node/placement", "scheduler"},
	"executor/meters":  {"cmd"},
	"fsm/ends":         {"fsm", "node/meters"},
	"fsm/snapshots":    {"node", "node/datadir"},
	"fsm/stream":       {"fsm", "fsm/snapshots"},
	"wheel":            {"scheduler"},
	"transport":        {"node", "node/membership", "node/listen", "node/raftslog"},
	"notify":           {"cmd", "cmd/notifyflags", "node", "node/service", "node/view"},
	// Who calls the API of a node: people and measurements, and a node that asks another one, for its status, about
	// membership, or to give its worker a way to the leader. What both sides send is in api/wire.
	"client":                 {"cmd", "cmd/applier", "cmd/compare", "cmd/complete", "cmd/contexts", "cmd/devcluster", "cmd/exporter", "cmd/watch", "bench", "node/service", "node/membership", "node/forward"},
	"internal/crontab":       {"cmd/importer"},
	"internal/daylight":      {"internal/crontab", "internal/dkron"},
	"internal/dkron":         {"cmd/importer"},
	"internal/duplex":        {"api", "api/lines", "node", "node/forward"},
	"internal/enroll":        {"cmd"},
	"internal/fieldgen":      {},
	"internal/jobfile":       {"cmd", "cmd/applier", "cmd/importer", "cmd/output", "cmd/settings", "internal/login"},
	"internal/login":         {"cmd", "cmd/contexts"},
	"internal/manpages":      {},
	"internal/mergepatch":    {"api"},
	"internal/otlp/otlptest": {},
	"internal/sbom":          {},
	"internal/statedir":      {"cmd"},
	"internal/verdict":       {},
	"internal/worker":        {"cmd", "bench", "node", "executor", "executor/meters", "client"},
	"api/apitest":            {},
	"web":                    {"node"},
}

// outside are directories with programs and tests that may import anything and that nothing of the product may import.
var outside = []string{"proof"}

// TestImportsPointDown holds the direction of the imports. Tests are exempt: they may look at a package from above.
func TestImportsPointDown(t *testing.T) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", module+"/...")
	cmd.Dir = harness.Sources(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	level := func(path string) (name string, n int) {
		name = strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
		return name, slices.IndexFunc(layers, func(l []string) bool { return slices.Contains(l, name) })
	}
	isOutside := func(name string) bool {
		family, _, _ := strings.Cut(name, "/")
		return slices.Contains(outside, family)
	}
	checked := 0
	unused := map[string][]string{}
	for to, from := range only {
		unused[to] = slices.Clone(from)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		from, n := level(p.ImportPath)
		if isOutside(from) {
			continue
		}
		if n < 0 {
			t.Errorf("%s has no layer: say in layers and in docs/architecture.md where it stands", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if imp != module && !strings.HasPrefix(imp, module+"/") {
				continue
			}
			checked++
			to, m := level(imp)
			unused[to] = slices.DeleteFunc(unused[to], func(name string) bool { return name == from })
			switch {
			case isOutside(to):
				t.Errorf("%s imports %s: the product does not stand on its tests", p.ImportPath, imp)
			case m <= n:
				t.Errorf("%s imports %s, which stands above or beside it", p.ImportPath, imp)
			case only[to] != nil && !slices.Contains(only[to], from):
				t.Errorf("%s imports %s, which only %q may import", p.ImportPath, imp, only[to])
			}
		}
	}
	for to, from := range unused {
		if len(from) > 0 {
			t.Errorf("%q may import %s and do not: take them off the list", from, to)
		}
	}
	if checked < 10 {
		t.Errorf("only %d imports were looked at", checked)
	}
}
