package observe

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// dashboard is what of Grafana's model the file uses.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct{ List []variable }
	Panels        []panel
}

type variable struct {
	Name, Type string
	Query      json.RawMessage
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Datasource               struct{ UID string }
	Links                    []struct{ URL string }
	FieldConfig              json.RawMessage
	Transformations          json.RawMessage
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Instant                   bool
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 20 {
		t.Fatalf("only %d panels", len(d.Panels))
	}
	return d
}

// The dashboard can be imported: ids are unique, panels do not lie on each other, queries go to the data source that is
// chosen and use variables that there are; and its links lead to runbooks that there are.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
	}
	if !variables["datasource"] || !variables["job"] || !variables["group"] || d.UID == "" || d.SchemaVersion < 36 {
		t.Errorf("%q, schema %d, %v", d.UID, d.SchemaVersion, variables)
	}
	used := regexp.MustCompile(`\$(\w+)`)
	sections := runbookSections(t)
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: another panel has the id %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies on %s, or outside, at %d, %d", p.Title, other, x, y)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s: %d queries of %q", p.Title, len(p.Targets), p.Datasource.UID)
		}
		for _, q := range p.Targets {
			for _, m := range used.FindAllStringSubmatch(q.Expr, -1) {
				if !variables[m[1]] {
					t.Errorf("%s uses $%s, and there is no such variable", p.Title, m[1])
				}
			}
			if !strings.Contains(q.Expr, "$job") {
				t.Errorf("%s mixes clusters: %s", p.Title, q.Expr)
			}
		}
		for _, l := range p.Links {
			_, anchor, _ := strings.Cut(l.URL, "/docs/runbooks.md#")
			found := anchor == "runbooks"
			for s := range sections {
				found = found || strings.ToLower(s) == anchor
			}
			if !found {
				t.Errorf("%s links to %s, and there is no such runbook", p.Title, l.URL)
			}
		}
	}
}
