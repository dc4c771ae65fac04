package node

import (
	"os"
	"strings"
	"testing"
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
