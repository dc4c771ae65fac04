//go:build carillon_browser

package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The pictures of the docs are there, and small enough for a repository.
func TestPicturesOfTheDocs(t *testing.T) {
	all := int64(0)
	text, err := os.ReadFile(docs + ".md")
	must(t, err)
	for _, name := range shown {
		info, err := os.Stat(filepath.Join(docs, name+".png"))
		if err != nil {
			t.Errorf("%v: go test -tags carillon_browser ./web/e2e -run Clean -update makes it", err)
			continue
		}
		all += info.Size()
		if !bytes.Contains(text, []byte("page/"+name+".png")) {
			t.Errorf("docs/page.md does not show %s", name)
		}
	}
	if all > 600<<10 {
		t.Errorf("the pictures have %d bytes together", all)
	}
}
