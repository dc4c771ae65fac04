package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
)

// Every module of a binary is listed once, under the hash that go.sum has of it, and the same binary gives the same
// document.
func TestDocumentOfABinary(t *testing.T) {
	sums, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(t.TempDir(), "carillon")
	build := exec.Command("go", "build", "-o", bin, "../..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := run(w, bin); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("one binary, two documents")
	}
	var d document
	if err := json.Unmarshal(first.Bytes(), &d); err != nil || d.Format != "CycloneDX" ||
		d.Metadata.Component.Name != "github.com/carillon-scheduler/carillon" || d.Components[0].Name != "std" {
		t.Fatalf("%v: %s", err, first.String())
	}
	seen := map[string]bool{}
	for _, c := range d.Components {
		if seen[c.Ref] {
			t.Errorf("%s is there twice", c.Ref)
		}
		if seen[c.Ref] = true; c.Name == "std" {
			continue
		}
		sum, err := hex.DecodeString(c.Hashes[0].Content)
		line := c.Name + " " + c.Version + " h1:" + base64.StdEncoding.EncodeToString(sum) + "\n"
		if err != nil || !strings.Contains(string(sums), line) {
			t.Errorf("go.sum has no line %q (%v)", line, err)
		}
	}
}

func TestDocumentOfModules(t *testing.T) {
	sum := "h1:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xab}, 32))
	info := &debug.BuildInfo{GoVersion: "go1.26.1", Main: debug.Module{Path: "example.com/app", Version: "v1.0.0+dirty"},
		Deps: []*debug.Module{{Path: "example.com/a", Version: "v1.2.3", Sum: sum},
			{Path: "example.com/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v0.1.0",
				Sum: sum}}}}
	d, err := describe(info)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range append([]component{d.Metadata.Component}, d.Components...) {
		got = append(got, c.PURL)
	}
	want := "pkg:golang/example.com/app@v1.0.0%2Bdirty pkg:golang/std@1.26.1 pkg:golang/example.com/a@v1.2.3 " +
		"pkg:golang/example.com/fork@v0.1.0"
	if strings.Join(got, " ") != want || d.Components[1].Hashes[0].Content != strings.Repeat("ab", 32) {
		t.Errorf("%q, %+v", got, d.Components[1])
	}
	info.Deps[0].Sum = ""
	if _, err := describe(info); err == nil || !strings.Contains(err.Error(), "example.com/a v1.2.3 has no hash") {
		t.Errorf("a module without a hash: %v", err)
	}
	if err := run(&bytes.Buffer{}, "sbom_test.go"); err == nil {
		t.Error("a file that is no binary was described")
	}
}
