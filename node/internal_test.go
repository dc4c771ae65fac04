package node

import (
	"os"
	"strings"
	"testing"

	"github.com/carillon-scheduler/carillon/api"
)

// What nodes ask each other is for nodes, and docs/api.md says so.
func TestInternalEndpointsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range (&Node{}).internalEndpoints() {
		if row := "| `" + e.Path + "` | " + e.Role.String() + " |"; !strings.Contains(string(text), row) {
			t.Errorf("docs/api.md has no row %s", row)
		}
	}
}

// What is not of the API has its bounds too: what nodes ask each other is read from the share of the members, and never
// passed on; the page takes no body.
func TestEndpointsAreBounded(t *testing.T) {
	for _, e := range (&Node{}).internalEndpoints() {
		if e.Role != api.Node || !strings.HasPrefix(e.Path, "/internal/") || e.Body <= 0 || e.Body > 4<<20 {
			t.Errorf("%s is for the role %s and reads %d bytes", e.Path, e.Role, e.Body)
		}
	}
	for _, e := range pageEndpoints() {
		if e.Role != api.Anyone || e.Body != api.NoBody {
			t.Errorf("%s is for the role %s and reads %d bytes", e.Path, e.Role, e.Body)
		}
	}
}
