package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is in the tree follows from the declaration as it is.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	root := filepath.Join("..", "..")
	files, err := generate(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		if got, err := os.ReadFile(filepath.Join(root, path)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s does not follow from the fields of package job: run go generate ./job (%v)", path, err)
		}
	}
}

// A declaration of which only a part could be done is refused, with the field.
func TestRefusedDeclarations(t *testing.T) {
	for field, want := range map[string]string{
		"X string `json:\"x\"`":                            "Spec.X needs a name, a json tag and a codec tag",
		"X string `json:\"x\" codec:\"k\"`":                "Spec.X needs a name, a json tag and a codec tag",
		"X string `codec:\"x\"`":                           "Spec.X needs a name, a json tag and a codec tag",
		"X chan int `json:\"x\" codec:\"x\"`":              "no kind of field for a chan int",
		"X *int `json:\"x\" codec:\"x\"`":                  "a pointer needs a default",
		"X int `json:\"x\" codec:\"x\" default:\"few\"`":   "Spec.X: the default",
		"X []string `json:\"x\" codec:\"x\" default:\"a\"": "a []string cannot have one",
	} {
		dir := t.TempDir()
		text := "package job\n"
		for _, name := range []string{"Retry", "Missed", "Notify", "Spec"} {
			text += "type " + name + " struct {\nName string `json:\"name\" codec:\"k\"`\n"
			if name == "Spec" {
				text += strings.TrimSuffix(field, "`") + "`\n"
			}
			text += "}\n"
		}
		if err := os.WriteFile(filepath.Join(dir, "spec.go"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := parse(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", field, err, want)
		}
	}
}
