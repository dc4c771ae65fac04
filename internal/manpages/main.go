// Command manpages writes what packages install beside the binary: a manual page for every command, and completion for
// the shells. It is a program of its own so that the binary need not have the means.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra/doc"

	"github.com/carillon-scheduler/carillon/cmd"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: manpages DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

// write fills DIR/man1 and DIR/completions. SOURCE_DATE_EPOCH makes the pages the same every time.
func write(dir string) error {
	man, completions := filepath.Join(dir, "man1"), filepath.Join(dir, "completions")
	for _, d := range []string{man, completions} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	root := cmd.CommandLine()
	root.DisableAutoGenTag = true
	err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Carillon", Manual: "Carillon"}, man)
	if err != nil {
		return err
	}
	for name, generate := range map[string]func(string) error{
		"carillon.bash": func(path string) error { return root.GenBashCompletionFileV2(path, true) },
		"_carillon":     root.GenZshCompletionFile,
		"carillon.fish": func(path string) error { return root.GenFishCompletionFile(path, true) },
	} {
		if err := generate(filepath.Join(completions, name)); err != nil {
			return err
		}
	}
	return nil
}
