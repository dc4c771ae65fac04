package output

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// built is where `go run` keeps a program: in a temporary directory, or in the cache of builds.
var built = regexp.MustCompile(`/go-build\d+/b\d+/exe/[^/]+$|/[0-9a-f]{64}-d/[^/]+$`)

// Program is what to type for this program, so that a hint can be pasted as it is printed.
func Program() string {
	path, err := os.Executable()
	if err != nil {
		return "carillon"
	}
	return program(path)
}

func program(path string) string {
	if built.MatchString(filepath.ToSlash(path)) {
		return "go run ."
	}
	return "carillon"
}

// NameProgram makes the help texts of all commands name the program as it is started, where they say what to type.
func NameProgram(root *cobra.Command, program string) {
	if program == root.Name() {
		return
	}
	words := []string{"--"}
	for _, c := range root.Commands() {
		words = append(words, c.Name()+`\b`)
	}
	typed := regexp.MustCompile(`(^|[^\w./-])` + root.Name() + ` (` + strings.Join(words, "|") + `)`)
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, text := range []*string{&c.Long, &c.Example} {
			*text = typed.ReplaceAllString(*text, "${1}"+program+" ${2}")
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}
