// Command fieldgen writes what follows from the declaration of a job's fields in package job: how jobs are read and
// written as JSON and in their stored form, without reflection, and their schemas in the OpenAPI document. `go
// generate ./job` runs it; a test holds that what it writes is what is in the tree.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(".."); err != nil {
		fmt.Fprintln(os.Stderr, "fieldgen:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for path, text := range files {
		if err := os.WriteFile(filepath.Join(root, path), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate is the text of every file that follows from the declaration, by its path below root.
func generate(root string) (map[string][]byte, error) {
	d, err := parse(filepath.Join(root, "job"))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	if files["job/json_gen.go"], err = d.jsonCode(); err != nil {
		return nil, err
	}
	if files["store/definition_gen.go"], err = d.storedCode(); err != nil {
		return nil, err
	}
	const document = "api/openapi.json"
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		return nil, err
	}
	files[document], err = d.document(text)
	return files, err
}
